"""Learning curves in a CSV file: one step column, one column of values per model.

    step,small,large
    0,0.12,0.31
    10,0.25,0.40
    20,,0.47          an empty cell: not evaluated at that step

Everything FLOPs depend on comes from the facts (``about.toml`` or command-line options), since the file says
nothing about it. All columns share one recipe; runs with different recipes are imported one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from race.errors import InvalidInput
from race.importers._assemble import table_of
from race.importers._base import ModelRef, RunFacts
from race.importers._csv import header_names
from race.importers._rebuild import Run, recipe_of, record_of, resolve
from race.importers._table import NUMBER, Table, read_table, shown
from race.records import PilotRecord

_VALUE = "a number from 0 to 1, or an empty cell where the model was not evaluated"


class CurvesImporter:
    """Importer of plain learning curves; see the module's description."""

    name = "csv"
    summary = "learning curves: a step column and one column of values per model"

    def recognises(self, path: Path) -> bool:
        """A file named ``*.csv`` whose first line has a column called step."""
        if path.suffix.lower() != ".csv" or not path.is_file():
            return False
        try:
            with path.open("rb") as file:
                first = file.readline(2**16).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return False
        if table_of(set(header_names(first.rstrip("\r\n")))) is not None:
            return False  # a Weights & Biases export of a trainer's metrics
        return any(cell.strip(' "').lower() == "step" for cell in first.strip().split(","))

    def read(self, path: Path, facts: RunFacts) -> list[PilotRecord]:
        """One record per model column; see `race.importers.Importer`."""
        recipe, taken = recipe_of(facts.recipe, where="recipe")
        table = read_table(path)
        step_column = _step_column(table, facts.step_column)
        models = _models(table, step_column, facts.models)
        steps = _steps(table, step_column)
        provenance = {
            "importer": self.name,
            "file": path.name,
            "sha256": table.sha256,
            "assumptions": [*facts.assumptions, *taken],
            "columns_left_out": [c for c in table.header if c != step_column and c not in models],
        }
        records: list[PilotRecord] = []
        columns: dict[str, str] = {}
        for column, ref in models.items():
            where = f"{path}, column {shown(column)}"
            run = _run(table, column, steps, provenance, allow_gaps=facts.allow_gaps)
            rung = resolve(ref, where=f"models[{column}]")
            seed = facts.seed if ref.seed is None else ref.seed
            record = record_of(run, rung, recipe, facts, where=where, seed=seed)
            if record.id in columns:
                raise InvalidInput(
                    f"{where}: holds the same run as column {shown(columns[record.id])}; allowed are different runs "
                    "(give each seed of a model its own seed)"
                )
            columns[record.id] = column
            records.append(record)
        return records


def _step_column(table: Table, name: str) -> str:
    for column in table.header:
        if column.lower() == name.strip().lower():
            return column
    raise InvalidInput(
        f"{table.path}, line 1: found no step column {name!r} among {shown(', '.join(table.header))}; allowed is a "
        "column of that name, or name another one (step_column)"
    )


def _models(table: Table, step_column: str, given: Mapping[str, ModelRef]) -> dict[str, ModelRef]:
    columns = [column for column in table.header if column != step_column]
    if not columns:
        raise InvalidInput(
            f"{table.path}, line 1: found a step column only; allowed is a column of values per model"
        )
    if not given:
        return {column: ModelRef(column) for column in columns}
    for name in given:
        if name not in columns:
            raise InvalidInput(
                f"models: found column {name!r}, which is not in {table.path}; allowed are {', '.join(columns)}"
            )
    return dict(given)


def _steps(table: Table, column: str) -> list[int]:
    index = table.header.index(column)
    steps: list[int] = []
    for line, cells in table.rows:
        cell = cells[index]
        where = f"{table.path}, line {line}, column {shown(column)}"
        number = float(cell) if NUMBER.fullmatch(cell) else -1.0
        if not (0 <= number <= 1e12 and number.is_integer()):
            raise InvalidInput(
                f"{where}: found {shown(cell)}; allowed is a whole number of optimisation steps >= 0"
            )
        step = int(number)
        if steps and step == steps[-1]:
            raise InvalidInput(f"{where}: found step {step} twice; allowed is each step once, increasing")
        if steps and step < steps[-1]:
            raise InvalidInput(f"{where}: found step {step} after {steps[-1]}; allowed are increasing steps")
        steps.append(step)
    return steps


def _run(
    table: Table, column: str, steps: list[int], provenance: Mapping[str, Any], *, allow_gaps: bool
) -> Run:
    index = table.header.index(column)
    at: list[int] = []
    values: list[float] = []
    for step, (line, cells) in zip(steps, table.rows, strict=True):
        if cells[index]:
            values.append(_value(cells[index], f"{table.path}, line {line}, column {shown(column)}"))
            at.append(step)
        elif not allow_gaps:
            raise InvalidInput(
                f"{table.path}, line {line}, column {shown(column)}: found an empty cell; allowed is {_VALUE}, or say "
                "that empty cells were not evaluated (allow_gaps)"
            )
    if not at:
        raise InvalidInput(f"{table.path}, column {shown(column)}: found no value; allowed is at least one")
    return Run(column, at, values, {**provenance, "rows": len(steps), "gaps": len(steps) - len(at)})


def _value(cell: str, where: str) -> float:
    if not NUMBER.fullmatch(cell):
        hint = "; a percentage is divided by 100" if cell.endswith("%") else ""
        raise InvalidInput(f"{where}: found {shown(cell)}; allowed is {_VALUE}{hint}")
    value = float(cell)
    if not 0 <= value <= 1:
        hint = "; if these are percentages, divide by 100" if 1 < value <= 100 else ""
        raise InvalidInput(f"{where}: found {shown(cell)}; allowed is {_VALUE}{hint}")
    return value
