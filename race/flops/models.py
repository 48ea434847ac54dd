"""The built-in table: models whose architecture is known offline (``models.json``)."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Lower-case name -> config, and the short names in table order."""
    rows = json.loads(files("race.flops").joinpath("models.json").read_text(encoding="utf-8"))["models"]
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        for hub in row.get("hub", ()):
            table[hub.lower()] = row["config"]
            table[hub.lower().partition("/")[2]] = row["config"]
        table[row["name"].lower()] = row["config"]
    return table, tuple(row["name"].lower() for row in rows)


def builtin_config(name: str) -> dict[str, Any] | None:
    """The config of a built-in model, by short name, hub id or hub id without the owner; case is ignored."""
    config = _table()[0].get(name.strip().lower())
    return None if config is None else dict(config)


def hub_id(name: str) -> str | None:
    """Where the weights of a built-in model are: its id on the Hugging Face hub; ``None`` when it has none."""
    wanted = name.strip().lower()
    rows = json.loads(files("race.flops").joinpath("models.json").read_text(encoding="utf-8"))["models"]
    for row in rows:
        ids: list[str] = row.get("hub", [])
        for hub in ids:
            if wanted in (hub.lower(), hub.lower().partition("/")[2]):
                return hub
        if wanted == row["name"].lower():
            return ids[0] if ids else None
    return None


def builtin_names() -> tuple[str, ...]:
    """Short names of the built-in models, in table order."""
    return _table()[1]
