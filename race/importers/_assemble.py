"""From rows of a file to a `RunLog`: whose keys they are, in which order the run went, and canonical series.

Order. Rows of one step are merged, because a step may be logged in several parts (prime-rl's trainer and
orchestrator write the same file at different times). A step whose key was logged before is a step done again: a
resumed run goes back to a step inside the run, and the new values replace the old; going back to the first step is
another run, and two runs are never mixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from race.cards.runlog import FIELDS, FloatArray, IntArray, Known, RunLog
from race.errors import InvalidInput
from race.importers._keys import Key, KeyTable, key_tables
from race.importers._rows import Row, Rows, whole_step

# Only these say that an optimiser step was taken; validation and system metrics may be logged at any time.
_TRAINING = frozenset(FIELDS) - {"accuracy"}
_LARGEST = 1e9


def table_of(names: set[str]) -> KeyTable | None:
    """The trainer whose tell-tale keys are most numerous among ``names``; ``None`` when none has any."""
    scored = sorted(((t.score(names), t) for t in key_tables().values()), key=lambda pair: -pair[0])
    return scored[0][1] if scored[0][0] > 0 else None


@dataclass
class _Run:
    """Rows of one run by step, with what happened on the way."""

    values: dict[int, dict[str, float]] = field(default_factory=dict)
    where: int = 0
    redone: int = 0
    resumed: list[int] = field(default_factory=list)
    repeated: int = 0
    first: int = -1
    last: int = -1

    def add(self, step: int, values: Mapping[str, float]) -> None:
        there = self.values.get(step)
        if there is None:
            self.values[step] = dict(values)
            # Kept up to date here: looking for them per row would make reading quadratic.
            self.first = step if self.first < 0 else min(self.first, step)
            self.last = max(self.last, step)
        else:
            there.update(values)

    def forget_from(self, step: int) -> None:
        """Drop the steps that are done again from ``step`` on."""
        self.redone += self.last - step + 1
        self.resumed.append(step)
        self.values = {k: v for k, v in self.values.items() if k < step}
        self.last = max(self.values, default=-1)


def runs_of(path: Path, rows: Rows, table: KeyTable) -> list[_Run]:
    """The rows, put into runs and merged by step."""
    training = _training_keys(rows, table)
    runs: list[_Run] = []
    run = _Run()
    for row in _with_steps(path, rows, table):
        assert row.step is not None
        values = row.values
        there = run.values.get(row.step)
        again = there is not None and any(name in there for name in values if name in training)
        if again and row.step < run.last:
            if row.step <= run.first:
                runs.append(run)
                run = _Run(where=row.where)
            else:
                run.forget_from(row.step)
        elif again and there is not None:
            run.repeated += any(there[n] != v for n, v in values.items() if n in training and n in there)
        run.where = run.where or row.where
        run.add(row.step, values)
    runs.append(run)
    kept = [r for r in runs if any(n in training for v in r.values.values() for n in v)]
    return kept


def _training_keys(rows: Rows, table: KeyTable) -> set[str]:
    """Logged names behind any training field."""
    names = rows.names()
    plain = {table.plain(name): name for name in sorted(names)}
    keys = [key for f in table.fields if f.name in _TRAINING for key in f.keys]
    return {plain.get(found, found) for key in keys for found in key.find(plain)}


def _with_steps(path: Path, rows: Rows, table: KeyTable) -> list[Row]:
    """Rows with the trainer's own step counter, where it logs one beside the container's."""
    found: list[Row] = []
    for row in rows.rows:
        step = row.step
        for name in table.steps:
            value = row.values.get(name, math.nan)
            if not math.isnan(value):
                step = whole_step(value, f"{path}, {rows.unit} {row.where}, {name}")
                break
        found.append(Row(step, row.values, row.where))
    if found and all(row.step is None for row in found):
        return [Row(at, row.values, row.where) for at, row in enumerate(found, 1)]
    for row in found:
        if row.step is None and table.score(row.values):
            raise InvalidInput(
                f"{path}, {rows.unit} {row.where}: found values without a step; allowed is a step in each entry"
            )
    return [row for row in found if row.step is not None]


def run_log(
    path: Path,
    rows: Rows,
    table: KeyTable,
    run: _Run,
    config: Mapping[str, Known],
) -> RunLog:
    """Canonical series of one run.

    Raises
    ------
    InvalidInput
        A value that cannot be what its key says, a negative length for instance; file, step and key are named.
    """
    training = _training_keys(rows, table)
    at = sorted(step for step, values in run.values.items() if any(name in training for name in values))
    notes = [*rows.notes]
    ordered = all(row.step is None for row in rows.rows)
    if ordered:
        notes.append("the log has no steps: its rows were taken as consecutive, one optimiser step each")
    if at[0] == 0 and len(at) > 1:
        at, shift = at, 1  # a counter that starts at 0: the first row is the first step
    else:
        shift = 0
    steps = np.array(at, dtype=np.int64) + shift
    covered = _covered(steps, notes)
    columns = _columns(run, at)
    plain = {table.plain(name): values for name, values in sorted(columns.items(), reverse=True)}
    series, found, keys = _series(path, table, plain, steps, notes)
    if run.redone:
        notes.append(
            f"resumed from step {', '.join(str(s) for s in run.resumed)}: {run.redone} steps were done twice; the "
            "later values are used, both are charged"
        )
    if run.repeated:
        notes.append(f"{run.repeated} entries repeat a step with other values; the later ones are used")
    notes += _not_finite(run, at, keys)
    inserted = [
        name for key in table.inserts for name in key.find(plain) if np.nansum(np.abs(plain[name])) > 0
    ]
    if inserted:
        notes.append(
            f"{inserted[0]} is not 0: tokens that tools or environments insert are in no length here, so their FLOPs "
            "are missing"
        )
    own = rows.state.get("total_flos")
    # Text stands in as NaN: a column of it alone is no metric.
    logged = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    return RunLog(
        trainer=table.trainer,
        title=table.title,
        container=rows.container,
        file=path.name,
        sha256=rows.sha256,
        steps=steps,
        covered=covered,
        series=series,
        rewards=_rewards(table, plain),
        raw=logged,
        releases=table.releases(found),
        run=rows.run,
        averaged=table.averaged,
        config=config,
        redone=run.redone,
        own_total=float(own) if isinstance(own, (int, float)) else None,
        notes=tuple(notes),
        unknown_keys=table.unknown(logged),
        keys=keys,
    )


def _covered(steps: IntArray, notes: list[str]) -> IntArray:
    """Steps that each row stands for."""
    if len(steps) == 1:
        return np.maximum(steps, 1)
    gaps = np.diff(steps)
    cadence = int(np.median(gaps))
    first = int(steps[0])
    if first > 2 * cadence:
        notes.append(
            f"the log starts at step {first}: the {first - cadence} steps before its first row are not in it and not "
            "counted"
        )
        first = cadence
    holes = gaps[gaps >= 2 * cadence]
    if len(holes):
        missing = int((holes - cadence).sum())
        notes.append(
            f"{missing} steps in {len(holes)} gaps are not in the log; they are taken to be like the row after"
        )
    covered: IntArray = np.concatenate([[max(first, 1)], gaps]).astype(np.int64)
    return covered


def _columns(run: _Run, at: Sequence[int]) -> dict[str, FloatArray]:
    names = {name for step in at for name in run.values[step]}
    columns = {name: np.full(len(at), np.nan) for name in names}
    for index, step in enumerate(at):
        for name, value in run.values[step].items():
            columns[name][index] = value
    return columns


def _series(
    path: Path, table: KeyTable, plain: Mapping[str, FloatArray], steps: IntArray, notes: list[str]
) -> tuple[dict[str, FloatArray], dict[str, Key], dict[str, str]]:
    series: dict[str, FloatArray] = {}
    found: dict[str, Key] = {}
    keys: dict[str, str] = {}
    for spec in table.fields:
        values: FloatArray | None = None
        for key in spec.keys:
            there = key.find(plain)
            names = [n for n in there if np.isfinite(plain[n]).any()]
            if not names:
                if there:
                    notes.append(f"{there[0]} is a finite number in no entry; taken as not logged")
                continue
            if len(names) > 1:
                notes.append(f"{spec.name} is the mean of {len(names)} keys that match {key.key}")
            with np.errstate(invalid="ignore"):
                stack = np.stack([plain[n] for n in names])
                finite = np.isfinite(stack)
                count = finite.sum(axis=0)
                column = np.where(
                    count, np.where(finite, stack, 0).sum(axis=0) / np.maximum(count, 1), np.nan
                )
            column = 1 - column if spec.complement else column * spec.scale
            values = column if values is None else np.where(np.isfinite(values), values, column)
            found.setdefault(key.key, key)
            keys.setdefault(spec.name, names[0])
        if values is not None:
            _check(path, spec.name, keys[spec.name], values, steps)
            series[spec.name] = values
    return series, found, keys


def _not_finite(run: _Run, at: Sequence[int], keys: Mapping[str, str]) -> list[str]:
    """What was logged as NaN, null or infinite, as opposed to not logged."""
    found = []
    for name in keys.values():
        # A key of the table may stand in the log behind a monitor's prefix.
        count = sum(1 for step in at for key, v in run.values[step].items() if v != v and key.endswith(name))
        if count:
            found.append(f"{name} is not a finite number in {count} entries; the value before stands in")
    return found


def _check(path: Path, name: str, key: str, values: FloatArray, steps: IntArray) -> None:
    what = FIELDS[name]
    if what.startswith("tokens") or name in ("samples_step", "samples_trained", "generation_batches"):
        low, high = 0.0, _LARGEST if name != "tokens_total" else 1e18
    elif what.startswith("share"):
        low, high = -1e-6, 1 + 1e-6
    elif what.startswith("seconds"):
        low, high = 0.0, 1e9
    else:
        return
    bad = np.flatnonzero((values < low) | (values > high))  # false for NaN, which is a gap
    if len(bad):
        raise InvalidInput(
            f"{path}, step {steps[bad[0]]}, {key}: found {values[bad[0]]:g}; allowed is a number from {max(low, 0):g} "
            f"to {high:g} ({what})"
        )


def _rewards(table: KeyTable, plain: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Means of the reward's components, by the name of the component."""
    rewards: dict[str, FloatArray] = {}
    for key in table.rewards:
        for name in key.find(plain):
            if name.endswith("/std"):
                continue
            head, _, tail = key.key.partition("*")
            short = name[len(head) :].removesuffix("/mean") if tail or head != key.key else name
            rewards.setdefault(short, plain[name])
    return rewards
