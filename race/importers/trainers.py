"""Importers of trainers' own logs, one per key table: TRL, verl, OpenRLHF, prime-rl, NeMo-RL.

The container (``trainer_state.json``, JSON lines, console lines, a Weights & Biases export, TensorBoard events) is
recognised by content, the trainer by the keys in it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from race.cards.runlog import RunLog
from race.errors import InvalidInput, RaceError
from race.importers._assemble import run_log, runs_of, table_of
from race.importers._base import RunFacts
from race.importers._beside import config_beside
from race.importers._csv import read_csv
from race.importers._events import read_events
from race.importers._keys import KeyTable, key_tables
from race.importers._open import find_log, kind_of
from race.importers._recognise import names_at_start
from race.importers._records import record_of_run
from race.importers._rows import Rows, read_json, read_json_lines
from race.importers._text import read_text
from race.records import PilotRecord


class TrainerImporter:
    """Importer of one trainer's logs; see the module's description."""

    def __init__(self, table: KeyTable) -> None:
        self.table = table
        self.name = table.trainer
        self.summary = f"logs of {table.title} ({table.checked})"

    def recognises(self, path: Path) -> bool:
        """Whether the names at the start of the file are this trainer's, more than any other's."""
        try:
            names = names_at_start(path)
        except RaceError:
            return False
        table = table_of(names)
        return table is not None and table.trainer == self.name

    def read(self, path: Path, facts: RunFacts) -> list[PilotRecord]:
        """The run in ``path`` (or the one that ``facts.run`` names); see `race.importers.Importer`."""
        log = choose_run(
            path, read_runs(path, format=self.name, config=facts.config, salvage=facts.salvage), facts.run
        )
        return [record_of_run(path, log, self.table, facts)]


def trainer_importers() -> tuple[TrainerImporter, ...]:
    """One importer per key table."""
    return tuple(TrainerImporter(table) for table in key_tables().values())


def read_runs(
    path: Path | str, *, format: str = "auto", config: Path | None = None, salvage: bool = False
) -> list[RunLog]:
    """Every run in a log, in the order of the file.

    Parameters
    ----------
    path
        The log, or a folder with one.
    format
        A trainer's name, or ``auto``: the trainer whose keys are most numerous.
    config
        The run's config, or a folder with it; by default what lies beside the log.
    salvage
        Read the complete entries of a damaged JSON file instead of refusing it.

    Raises
    ------
    InvalidInput
        Not a log, not a GRPO-like run of a known trainer, or damaged; one line with file and place.
    """
    path = find_log(Path(path))
    containers = _read(path, salvage)
    found: list[RunLog] = []
    for rows in containers:
        names = rows.names()
        table = _table(path, names, format)
        facts = config_beside(path, table, config)
        runs = runs_of(path, rows, table)
        for at, run in enumerate(runs, 1):
            log = run_log(path, rows, table, run, facts)
            name = rows.run or (f"run {at}, from {rows.unit} {run.where}" if len(runs) > 1 else "")
            found.append(replace(log, run=name))
    if not found:
        raise InvalidInput(
            f"{path}: found no entry of a training step; allowed is a log of a run that took some"
        )
    return found


def _read(path: Path, salvage: bool) -> list[Rows]:
    kind = kind_of(path)
    if kind == "events":
        return [read_events(path)]
    if kind == "json":
        return [read_json(path, salvage=salvage)]
    if kind == "json lines":
        return [read_json_lines(path)]
    return read_csv(path) if kind == "csv" else [read_text(path)]


def _table(path: Path, names: set[str], format: str) -> KeyTable:
    tables = key_tables()
    for table in tables.values() if format == "auto" else [tables[format]]:
        what = table.foreign_run(names)
        if what is not None and table_of(names) in (None, table) and not _is_online(table, names):
            raise InvalidInput(
                f"{path}: is the log of {what}, which generates nothing; allowed are logs of GRPO and its relatives"
            )
    table = tables[format] if format != "auto" else table_of(names) or _unknown(path, names)
    if table.score(names) == 0:
        raise InvalidInput(
            f"{path}: has no key of {table.title}; allowed is one of its logs (found {_some(names)})"
        )
    return table


def _is_online(table: KeyTable, names: set[str]) -> bool:
    """Whether there is a training reward or completion length, which no offline run has."""
    wanted = ("completion_mean", "truncated_share", "zero_std_share")
    plain = {table.plain(name) for name in names}
    return any(key.find(plain) for f in table.fields if f.name in wanted for key in f.keys)


def _unknown(path: Path, names: set[str]) -> KeyTable:
    titles = ", ".join(t.title for t in key_tables().values())
    curves = "; plain learning curves are for race import" if path.suffix.lower() == ".csv" else ""
    raise InvalidInput(
        f"{path}: has keys of no trainer known here (found {_some(names)}); known are {titles}{curves}"
    )


def _some(names: set[str]) -> str:
    shown = sorted(names)[:5]
    return (", ".join(shown) + (", ..." if len(names) > 5 else "")) or "none"


def choose_run(path: Path, runs: list[RunLog], run: int | None) -> RunLog:
    """The one run of a log, or number ``run`` (from 1) of several.

    Raises
    ------
    InvalidInput
        Several runs and none was chosen, or there is no such run; they are listed.
    """
    if run is not None and not 1 <= run <= len(runs):
        raise InvalidInput(f"run: found {run}; allowed are 1 to {len(runs)}")
    if run is None and len(runs) > 1:
        listed = "; ".join(
            f"{at}: {r.run}, steps {r.steps[0]} to {r.steps[-1]}" for at, r in enumerate(runs, 1)
        )
        raise InvalidInput(
            f"{path}: holds {len(runs)} runs ({listed}); allowed is one: choose it with its number (run)"
        )
    return runs[0 if run is None else run - 1]
