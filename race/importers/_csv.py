"""Weights & Biases exports in CSV: a run's history (``_step`` and one column per key), or a chart.

A chart export has columns ``Step``, ``run - key``, ``run - key__MIN`` and ``run - key__MAX``, for one or more runs.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from race.errors import InvalidInput
from race.importers._open import WHAT, read_whole
from race.importers._rows import MAX_ROWS, Row, Rows, number, step_of

_STEPS = ("Step", "_step", "step", "global_step")
_BOUNDS = ("__MIN", "__MAX")


def read_csv(path: Path) -> list[Rows]:
    """The runs in a CSV export, in the order of their columns."""
    data, sha256 = read_whole(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{path}, line {line}: is not UTF-8 text; allowed is {WHAT}") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [cell.strip() for cell in next(reader, [])]
        columns = _columns(header)
        twice = sorted({header[at] for at in columns if header.count(header[at]) > 1})
        if twice:
            raise InvalidInput(
                f"{path}, line 1: column {twice[0]!r} appears twice; allowed is each name once: rename runs or columns"
            )
        runs: dict[str, list[Row]] = {run: [] for run, _ in columns.values()}
        for cells in reader:
            at = reader.line_num
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise InvalidInput(f"{path}, line {at}: found {len(cells)} cells; allowed are {len(header)}")
            _add(path, at, header, columns, cells, runs)
            if at > MAX_ROWS:
                raise InvalidInput(f"{path}: found more than {MAX_ROWS} rows; allowed are fewer: thin it")
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {reader.line_num}: is not CSV ({error})") from None
    return [Rows("CSV export", sha256, rows, unit="line", run=run) for run, rows in runs.items()]


def header_names(line: str) -> list[str]:
    """The logged names in the first line of an export."""
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error:
        return []
    return [name for _, name in _columns([cell.strip() for cell in cells]).values()]


def _columns(header: list[str]) -> dict[int, tuple[str, str]]:
    """Column to run and key; bounds that a chart adds to each line are left out."""
    columns: dict[int, tuple[str, str]] = {}
    for at, name in enumerate(header):
        if name.endswith(_BOUNDS) or not name:
            continue
        run, dash, key = name.partition(" - ")
        columns[at] = (run, key) if dash and name not in _STEPS else ("", name)
    named = {run for run, _ in columns.values()} - {""}
    if named:
        # Columns without a run name (the step) belong to every run.
        columns = {at: pair for at, pair in columns.items() if pair[0]}
    return columns


def _add(
    path: Path, at: int, header: list[str], columns: dict[int, tuple[str, str]], cells: list[str],
    runs: dict[str, list[Row]],
) -> None:  # fmt: skip
    steps = {
        name: v
        for name, c in zip(header, cells, strict=True)
        if name in _STEPS and (v := number(c)) is not None
    }
    values: dict[str, dict[str, float]] = {}
    for column, (run, key) in columns.items():
        cell = cells[column].strip()
        # An empty cell was not logged in this row; "NaN" and "1,234" were, and are no numbers: a gap that is noted.
        if cell:
            parsed = number(cell)
            values.setdefault(run, {})[key] = math.nan if parsed is None else parsed
    for run, found in values.items():
        if any(not math.isnan(v) for v in found.values()):
            runs[run].append(Row(step_of({**steps, **found}, f"{path}, line {at}"), found, at))
