"""Key tables: what each trainer calls each quantity, release by release, as data (``keys/*.json``).

A key is matched exactly, or with ``*`` for one or more path segments. Tables are checked when they are
loaded, so a slip in one is an error of ours and not a silently missing number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from race.cards.runlog import FIELDS

SCHEMA = "race.keys/1"
TABLES = ("trl", "verl", "openrlhf", "prime_rl", "nemo_rl")


@dataclass(frozen=True)
class Key:
    """One spelling of a field, with the first and last release that used it (empty: not dated)."""

    key: str
    since: str = ""
    until: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Compiled when the key has a ``*``."""
        return _pattern(self.key) if "*" in self.key else None

    def find(self, names: Iterable[str]) -> list[str]:
        """The logged names that this key matches, sorted."""
        if self.pattern is None:
            return [self.key] if self.key in names else []
        return sorted(name for name in names if self.pattern.fullmatch(name))


@dataclass(frozen=True)
class Field:
    """A canonical field and its spellings, the newest first.

    ``scale`` turns the logged number into the field's unit; with ``complement`` the field is one minus it.
    """

    name: str
    keys: tuple[Key, ...]
    note: str = ""
    scale: float = 1.0
    complement: bool = False


@dataclass(frozen=True)
class KeyTable:
    """Everything that is data about one trainer's logs; see the module's description."""

    trainer: str
    title: str
    checked: str
    prefixes: tuple[str, ...]
    steps: tuple[str, ...]
    averaged: bool
    identify: tuple[Key, ...]
    foreign: tuple[tuple[str, tuple[str, ...]], ...]
    fields: tuple[Field, ...]
    rewards: tuple[Key, ...]
    inserts: tuple[Key, ...]
    known: tuple[Key, ...]
    beside: tuple[str, ...]
    config: tuple[tuple[str, tuple[str, ...]], ...]
    defaults: Mapping[str, str]
    traps: tuple[str, ...]

    def plain(self, name: str) -> str:
        """A logged name without the prefix that a monitor puts in front of it."""
        for prefix in self.prefixes:
            if name.startswith(prefix):
                return name[len(prefix) :]
        return name

    def score(self, names: Iterable[str]) -> int:
        """How many of this trainer's tell-tale keys are among ``names``."""
        plain = {self.plain(name) for name in names}
        return sum(bool(key.find(plain)) for key in self.identify)

    def foreign_run(self, names: Iterable[str]) -> str | None:
        """``a DPO run`` when these are the keys of one of this trainer's other kinds of run."""
        plain = {self.plain(name) for name in names}
        return next((what for what, keys in self.foreign if any(k in plain for k in keys)), None)

    def releases(self, found: Mapping[str, Key]) -> str:
        """In words, which releases log the keys that were found."""
        since = max((k.since for k in found.values() if k.since), key=_version, default="")
        until = min((k.until for k in found.values() if k.until), key=_version, default="")
        if since and until and _version(since) > _version(until):
            return f"keys of {until} or earlier and of {since} or later"
        if until:
            return f"{since} to {until}" if since else f"{until} or earlier"
        return f"{since} or later" if since else ""

    def unknown(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names that the table knows nothing of, sorted."""
        used = [key for f in self.fields for key in f.keys] + [*self.rewards, *self.known]
        exact = {key.key for key in used if key.pattern is None} | set(self.steps)
        patterns = [key.pattern for key in used if key.pattern is not None]
        # A leading underscore is a monitor's own bookkeeping (_step, _runtime, _timestamp).
        strange = (n for n in names if n[:1] != "_" and n not in exact and self.plain(n) not in exact)
        return tuple(
            sorted(
                n for n in strange if not any(p.fullmatch(n) or p.fullmatch(self.plain(n)) for p in patterns)
            )
        )


@lru_cache(maxsize=1)
def key_tables() -> dict[str, KeyTable]:
    """Every table by trainer name."""
    tables = (_table(name) for name in TABLES)
    return {table.trainer: table for table in tables}


def _table(name: str) -> KeyTable:
    text = files("race.importers.keys").joinpath(f"{name}.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    if data.pop("schema") != SCHEMA:
        raise ValueError(f"keys/{name}.json: schema is not {SCHEMA}")
    fields = tuple(_field(name, entry) for entry in data.pop("fields"))
    keys: dict[str, Any] = {
        part: tuple(Key(k) for k in data.pop(part)) for part in ("identify", "rewards", "inserts", "known")
    }
    foreign = tuple((entry["what"], tuple(entry["keys"])) for entry in data.pop("foreign"))
    config = tuple((entry["field"], tuple(entry["paths"])) for entry in data.pop("config"))
    lists: dict[str, Any] = {part: tuple(data.pop(part)) for part in ("prefixes", "steps", "beside", "traps")}
    return KeyTable(fields=fields, foreign=foreign, config=config, **keys, **lists, **data)


def _field(table: str, entry: Mapping[str, Any]) -> Field:
    if entry["field"] not in FIELDS:
        raise ValueError(f"keys/{table}.json: unknown field {entry['field']!r}")
    rest = {k: v for k, v in entry.items() if k not in ("field", "keys")}
    return Field(entry["field"], tuple(Key(**key) for key in entry["keys"]), **rest)


def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(".+".join(re.escape(part) for part in key.split("*")))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
