"""The logged names at the start of a file: enough to tell whose log it is, without reading all of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from race.importers._csv import header_names
from race.importers._events import read_events
from race.importers._open import find_log, head_of, kind_of

_JSON_NAME = re.compile(r'"((?:[^"\\]|\\.){1,200})"\s*:')
_DICT_NAME = re.compile(r"'([^']{1,200})'\s*:")
_PAIR_NAME = re.compile(r" - ([\w@./-]{1,200}):")


def names_at_start(path: Path) -> set[str]:
    """Names in the first 64 KiB of a text file, or all tags of TensorBoard events.

    Raises
    ------
    RaceError
        Not a log at all.
    """
    path = find_log(path)
    kind = kind_of(path)
    if kind == "events":
        return read_events(path).names()
    text = head_of(path).decode("utf-8", errors="replace").lstrip("\ufeff")
    if kind == "csv":
        return set(header_names(text.partition("\n")[0].rstrip("\r")))
    if kind == "text":
        lines = [
            line for line in text.splitlines() if "step:" in line or "Global step" in line or "{'" in line
        ]
        return {name for line in lines for name in (*_DICT_NAME.findall(line), *_PAIR_NAME.findall(line))}
    return {_unescaped(name) for name in _JSON_NAME.findall(text)}


def _unescaped(name: str) -> str:
    try:
        return str(json.loads(f'"{name}"'))
    except ValueError:
        return name
