"""Log entries as they stand in a file: a step if the file gives one, and numbers by logged name.

Readers of JSON containers: a ``trainer_state.json``, a list of rows (a Weights & Biases export), a table of tags by
step, JSON lines. Numbers that are not finite, written as NaN, "NaN", null or Infinity, become NaN, and so does text
where a number should be; other values are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from race.errors import InvalidInput
from race.importers._open import WHAT, Lines, read_whole

MAX_ROWS = 2_000_000
_WORDS = {
    "nan": math.nan,
    "inf": math.nan,
    "infinity": math.nan,
    "-inf": math.nan,
    "-infinity": math.nan,
    "none": math.nan,
}
_STEP_NAMES = ("step", "_step", "Step", "global_step")


@dataclass
class Row:
    """One entry: its step (``None`` when the file gives none), its numbers, and its line or index."""

    step: int | None
    values: dict[str, float]
    where: int


@dataclass
class Rows:
    """What a file holds.

    Attributes
    ----------
    container
        Kind of file, in words.
    sha256
        Digest of the file.
    rows
        In the order of the file.
    state
        Facts about the whole run that the container has beside its rows.
    unit
        What ``where`` of a row counts: ``line`` or ``entry``.
    run
        Name of the run, where a file holds several.
    notes
        What had to be left out.
    """

    container: str
    sha256: str
    rows: list[Row]
    state: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "entry"
    run: str = ""
    notes: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """Every logged name."""
        return {name for row in self.rows for name in row.values}


def number(value: Any) -> float | None:
    """A logged value as a float, NaN when it is not finite or null, ``None`` when it is not a number."""
    if value is None:
        return math.nan
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            found = float(value)
        except OverflowError:
            return math.nan
        return found if math.isfinite(found) else math.nan
    if isinstance(value, str) and len(value) < 64:
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
        try:
            return number(float(word)) if word[:1].isdigit() or word[:1] in "+-." else None
        except ValueError:
            return None
    return None


def numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one entry by name."""
    found: dict[str, float] = {}
    for name, value in entry.items():
        # The usual case first: ten thousand entries hold a few hundred thousand floats.
        if type(value) is float and math.isfinite(value):
            found[name] = value
        elif (parsed := number(value)) is not None:
            found[name] = parsed
        elif isinstance(value, str):
            found[name] = math.nan  # "1,234" was logged and cannot be read: a gap, and noted
    return found


class _NamedTwiceError(Exception):
    """A JSON object has one name with two values."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; `json` would keep the last of two values and say nothing."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if repr(seen.setdefault(name, value)) != repr(value):  # NaN is not equal to itself
                raise _NamedTwiceError(
                    f"{name[:100]!r} has two values in one object; allowed is each name once"
                )
    return found


def step_of(values: Mapping[str, float], where: str) -> int | None:
    """The container's own step in an entry, if it has one."""
    for name in _STEP_NAMES:
        step = values.get(name)
        if step is not None and not math.isnan(step):
            return whole_step(step, where)
    return None


def whole_step(step: float, where: str) -> int:
    """A step counter, checked."""
    if not (0 <= step <= 1e12 and float(step).is_integer()):
        raise InvalidInput(f"{where}: found step {step!r}; allowed is a whole number of optimiser steps >= 0")
    return int(step)


def rows_of_entries(path: Path, entries: Sequence[Any], unit: str = "entry") -> list[Row]:
    """Flat objects as rows."""
    rows: list[Row] = []
    if len(entries) > MAX_ROWS:
        raise InvalidInput(f"{path}: found more than {MAX_ROWS} entries; allowed are fewer: thin it")
    for at, entry in enumerate(entries, 1):
        where = f"{path}, {unit} {at}"
        if not isinstance(entry, Mapping):
            raise InvalidInput(
                f"{where}: found {type(entry).__name__}; allowed is an object of logged values"
            )
        values = numbers(entry)
        rows.append(Row(step_of(values, where), values, at))
    return rows


def read_json(path: Path, *, salvage: bool = False) -> Rows:
    """A file that is one JSON value.

    Raises
    ------
    InvalidInput
        Not JSON (with line, column, byte, and how many complete entries come before it), or JSON of another kind.
    """
    data, sha256 = read_whole(path)
    notes: tuple[str, ...] = ()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{path}, line {line}: is not UTF-8 text; allowed is {WHAT}") from None
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except _NamedTwiceError as error:
        raise InvalidInput(f"{path}: {error}") from None
    except RecursionError:
        raise InvalidInput(f"{path}: is nested too deeply; allowed is {WHAT}") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and not salvage and text.lstrip().startswith("{"):
            return read_json_lines(path)
        entries = _complete_entries(text)
        place = f"line {error.lineno}, column {error.colno} (byte {len(text[: error.pos].encode())} of {len(data)})"
        if not salvage or not entries:
            hint = (
                f"; {len(entries)} complete entries come before it: read only those by saying so (salvage, --salvage)"
                if entries and '"log_history"' in text
                else ""
            )
            raise InvalidInput(f"{path}, {place}: is not JSON: {error.msg}{hint}") from None
        notes = (
            f"the file is damaged at {place}; only the {len(entries)} complete entries before it were read",
        )
        value = {"log_history": entries}
    except ValueError:  # an integer of more digits than Python converts
        raise InvalidInput(f"{path}: holds a number of thousands of digits; allowed is {WHAT}") from None
    rows = _rows_of_value(path, value, sha256)
    rows.notes = notes
    return rows


def _complete_entries(text: str) -> list[Any]:
    """The objects of ``log_history`` that are whole, up to the first that is not."""
    start = re.search(r'"log_history"\s*:\s*\[|\A\s*\[', text)
    entries: list[Any] = []
    if start is None:
        return entries
    decoder, at = json.JSONDecoder(), start.end()
    gap = re.compile(r"[\s,]*")
    while True:
        at = gap.match(text, at).end()  # type: ignore[union-attr]
        if not text.startswith("{", at):
            return entries
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return entries
        entries.append(entry)


def _rows_of_value(path: Path, value: Any, sha256: str) -> Rows:
    if isinstance(value, Mapping) and "log_history" in value:
        history = value["log_history"]
        if not isinstance(history, list):
            raise InvalidInput(
                f"{path}: log_history: found {type(history).__name__}; allowed is a list of entries"
            )
        state = {
            k: v for k, v in value.items() if isinstance(v, (int, float, str)) and not isinstance(v, bool)
        }
        return Rows("trainer_state.json", sha256, rows_of_entries(path, history), state)
    if isinstance(value, list):
        return Rows("JSON list of rows", sha256, rows_of_entries(path, value))
    if isinstance(value, Mapping) and isinstance(value.get("data"), Mapping):
        return Rows("JSON lines", sha256, [_data_row(path, value, 1)], unit="line")
    if isinstance(value, Mapping) and value and all(isinstance(v, Mapping) for v in value.values()):
        return Rows("JSON of tags by step", sha256, _tag_rows(path, value))
    if isinstance(value, Mapping) and any(number(v) is not None for v in value.values()):
        return Rows("JSON lines", sha256, rows_of_entries(path, [value], "line"), unit="line")
    raise InvalidInput(f"{path}: is JSON without log entries; allowed is {WHAT}")


def _tag_rows(path: Path, tags: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    by_step: dict[int, dict[str, float]] = {}
    for tag, points in tags.items():
        for step, value in points.items():
            at, parsed = number(step), number(value)
            if at is None or math.isnan(at):
                raise InvalidInput(f"{path}: {tag}: found {step!r}; allowed is a step for each value")
            if parsed is not None:
                by_step.setdefault(whole_step(at, f"{path}: {tag}"), {})[tag] = parsed
    return [Row(step, by_step[step], at) for at, step in enumerate(sorted(by_step), 1)]


def _data_row(path: Path, entry: Mapping[str, Any], line: int) -> Row:
    """verl's file logger: ``{"step": n, "data": {...}}``."""
    where = f"{path}, line {line}"
    values = numbers(entry["data"])
    step = number(entry.get("step"))
    if step is None or math.isnan(step):
        raise InvalidInput(f"{where}: found step {entry.get('step')!r}; allowed is a whole number")
    return Row(whole_step(step, where), values, line)


def read_json_lines(path: Path) -> Rows:
    """One flat JSON object a line; a last line that was cut off by a crash is left out and noted."""
    rows: list[Row] = []
    broken: tuple[int, str] | None = None
    lines = Lines(path)
    for at, text in lines:
        if not text.strip():
            continue
        if broken is not None:
            raise InvalidInput(
                f"{path}, line {broken[0]}: is not JSON: {broken[1]}; allowed is an object a line"
            )
        try:
            entry = json.loads(text, object_pairs_hook=_object)
        except _NamedTwiceError as error:
            raise InvalidInput(f"{path}, line {at}: {error}") from None
        except (ValueError, RecursionError) as error:
            broken = at, " ".join(str(getattr(error, "msg", error)).split())
            continue
        if not isinstance(entry, Mapping):
            raise InvalidInput(
                f"{path}, line {at}: found {type(entry).__name__}; allowed is an object of logged values"
            )
        if isinstance(entry.get("data"), Mapping):
            rows.append(_data_row(path, entry, at))
        else:
            values = numbers(entry)
            rows.append(Row(step_of(values, f"{path}, line {at}"), values, at))
        if len(rows) > MAX_ROWS:
            raise InvalidInput(f"{path}: found more than {MAX_ROWS} lines; allowed are fewer: thin it")
    if broken is not None and not rows:
        raise InvalidInput(f"{path}, line {broken[0]}: is not JSON: {broken[1]}; allowed is an object a line")
    notes = (f"line {broken[0]}, the last one, is cut off and was left out",) if broken else ()
    return Rows("JSON lines", lines.sha256, rows, unit="line", notes=notes)
