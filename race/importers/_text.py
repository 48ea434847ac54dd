"""Console logs: the lines in which trainers print their metrics, among everything else that a console holds.

    verl      (TaskRunner pid=1) step:3 - actor/pg_loss:np.float64(0.1) - response_length/mean:312.5 - ...
    OpenRLHF  ✨ Global step 3: {'policy_loss': 0.1, 'response_length': 312.5, ...}
    TRL       {'loss': '0.1', 'reward': '0.5', 'completions/mean_length': '312.5', ...}

Dicts are read as literals, never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from race.errors import InvalidInput
from race.importers._open import WHAT, Lines
from race.importers._rows import MAX_ROWS, Row, Rows, number, numbers, whole_step

_VERL = re.compile(r"(?:^|\s)step:(\d{1,13}) - (.+)")
_OPENRLHF = re.compile(r"Global step (\d{1,13}):? *(\{.*\})")
_DICT = re.compile(r"(\{'[^{}]*\})\s*$")
# What numpy and torch print instead of a number; torch.Size and the like match nothing here.
_WRAPPED = re.compile(r"\b(?:np|numpy)\.(?:float|int|uint)\d*\(([^()]*)\)|\btensor\(\s*([^(),]*)[^()]*\)")
_BARE = re.compile(r"(?<=[:\s,\[(])-?(?:nan|inf)\b(?=\s*[,}\])])")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
MAX_DICT = 2**20


def read_text(path: Path) -> Rows:
    """Every line of metrics in a console log, streamed.

    Raises
    ------
    InvalidInput
        No such line, or lines of more than one trainer.
    """
    found: dict[str, list[Row]] = {"verl": [], "openrlhf": [], "trl": []}
    cut = 0
    lines = Lines(path)
    for at, text in lines:
        if "step" not in text and "{'" not in text:
            continue
        text = _COLOURS.sub("", text).strip()
        where = f"{path}, line {at}"
        if (match := _VERL.search(text)) and ":" in match[2]:
            found["verl"].append(Row(whole_step(float(match[1]), where), _pairs(match[2]), at))
        elif match := _OPENRLHF.search(text):
            entry = _literal(match[2])
            cut += entry is None
            if entry is not None:
                found["openrlhf"].append(Row(whole_step(float(match[1]), where), entry, at))
        elif match := _DICT.search(text):
            entry = _literal(match[1])
            if entry and ("loss" in entry or "reward" in entry):
                found["trl"].append(Row(None, entry, at))
        if any(len(rows) > MAX_ROWS for rows in found.values()):
            raise InvalidInput(
                f"{path}: found more than {MAX_ROWS} lines of metrics; allowed are fewer: thin it"
            )
    there = [name for name, rows in found.items() if rows]
    if not there:
        raise InvalidInput(f"{path}: found no line of metrics of any trainer known here; allowed is {WHAT}")
    if len(there) > 1 and "trl" in there:
        there.remove("trl")  # any program may print a dict
    if len(there) > 1:
        raise InvalidInput(f"{path}: found lines of {' and '.join(there)}; allowed is the log of one trainer")
    notes = (f"{cut} lines of metrics could not be read and were left out",) if cut else ()
    return Rows("console lines", lines.sha256, found[there[0]], unit="line", notes=notes)


def _pairs(text: str) -> dict[str, float]:
    """``a:1 - b:np.float64(2.0)`` as numbers."""
    values: dict[str, float] = {}
    # Unwrapped before it is split: a tensor's device has a colon of its own.
    for part in _WRAPPED.sub(lambda m: m[1] or m[2] or "", text).split(" - "):
        name, colon, value = part.strip().rpartition(":")
        parsed = number(value.strip())
        if colon and parsed is not None:
            values[name] = parsed
    return values


def _literal(text: str) -> dict[str, float] | None:
    """A printed dict as numbers; ``None`` when it is not a literal."""
    if len(text) > MAX_DICT:
        return None
    text = _WRAPPED.sub(lambda m: m[1] or m[2] or "None", text)
    try:
        entry = ast.literal_eval(_BARE.sub("None", text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    return numbers({str(k): v for k, v in entry.items()}) if isinstance(entry, Mapping) else None
