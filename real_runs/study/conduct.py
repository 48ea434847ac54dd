"""Carry a study out: what has no record yet is run, records are kept, anything may be interrupted at any moment.

    <out>/records/       the store: one record per run, its id the run's name
    <out>/jobs/<id>/     where the runner keeps checkpoints, so that an interrupted run resumes
    <out>/rates.json     the learning rates that tuning chose, for reading; they are worked out again from the records

A run that failed is tried again, up to ``tries`` times, each try with a folder and a record of its own: failures are
data, and the study goes on with the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from race.errors import InvalidInput
from race.store import Store
from real_runs.executors import Executor, Job, Outcome
from real_runs.study.design import TUNING_STAGE, StudyRun, study_runs, tuning_runs
from real_runs.study.tuning import Rates, tuned_rates

if TYPE_CHECKING:
    from race.records import PilotRecord
    from real_runs.study.file import Study

_UNFINISHED = ("failed", "timeout")
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Conduct:
    """Where a study stands.

    Attributes
    ----------
    runs
        Those asked for, tuning first.
    records
        Run id to its record, for the runs that came to an end.
    given_up
        Run id to the reason of its last failure.
    rates
        Once tuning is done.
    """

    runs: tuple[StudyRun, ...]
    records: Mapping[str, PilotRecord]
    given_up: Mapping[str, str]
    rates: Rates | None


@dataclass(frozen=True)
class Standing:
    """Told after every outcome: runs that ended, all of them, and the newest."""

    done: int
    total: int
    newest: PilotRecord
    running: Sequence[str]


def conduct(
    study: Study,
    executor: Executor,
    out: str | Path,
    *,
    stages: Sequence[str] = (),
    only: Sequence[str] = (),
    rates: Rates | None = None,
    tries: int = 2,
    told: Callable[[Standing], None] = lambda _: None,
) -> Conduct:
    """Run what ``out`` has no record of.

    Parameters
    ----------
    executor
        Entered by the caller, so that Ctrl-C finds it and stops what runs.
    stages, only
        Stages by name (``tuning`` is one), and run ids; empty means all.
    rates
        Tuned rates from elsewhere; tuning is then left out unless it is asked for by name.
    tries
        How often a run may fail.

    Raises
    ------
    InvalidInput
        An unknown stage or run id, or a store with a record of another setting under a run's name.
    CannotDo
        Tuned rates are asked for before tuning is done, or another process works in ``out``.
    """
    from real_runs.folder import RunFolder  # brings torch, which pricing and packing a study do without

    with RunFolder(Path(out)).locked():
        return _conduct(study, executor, Path(out), stages, only, rates, tries, told)


def _conduct(
    study: Study,
    executor: Executor,
    out: Path,
    stages: Sequence[str],
    only: Sequence[str],
    rates: Rates | None,
    tries: int,
    told: Callable[[Standing], None],
) -> Conduct:
    store = Store(out / "records", create=True)
    store.add_all([])  # a folder that cannot be written is found out now
    work = _Work(study, executor, store, out / "jobs", tries, told)
    chosen = _chosen_stages(study, stages)
    if rates is not None and not stages:
        chosen.discard(TUNING_STAGE)
    tuning = tuning_runs(study)
    asked = [run for run in tuning if (run.id in only if only else TUNING_STAGE in chosen)]
    work.carry_out(asked)
    if rates is None:
        rates = work.rates(tuning, needed=not only and any(_tuned(study, name) for name in chosen))
    if rates is not None:
        (out / "rates.json").write_text(json.dumps(rates.to_dict(), indent=1) + "\n", encoding="utf-8")
    runs = study_runs(study, rates)
    runs = _picked(runs, tuning, only) if only else [run for run in runs if chosen & set(run.stages)]
    work.carry_out(runs)
    asked += [run for run in runs if run.id not in {known.id for known in asked}]
    finished = work.finished()
    records = {run.id: finished[run.id] for run in asked if run.id in finished}
    return Conduct(tuple(asked), records, dict(work.given_up), rates)


class _Work:
    """The runs in hand."""

    def __init__(
        self,
        study: Study,
        executor: Executor,
        store: Store,
        jobs: Path,
        tries: int,
        told: Callable[[Standing], None],
    ) -> None:
        self._study, self._executor, self._store, self._jobs = study, executor, store, jobs
        self._tries, self._told = tries, told
        self.given_up: dict[str, str] = {}

    def finished(self) -> dict[str, PilotRecord]:
        """Run id to record, of the runs that came to an end."""
        found: dict[str, PilotRecord] = {}
        for record in self._store.records().records:
            if record.health.status not in _UNFINISHED:
                found[_without_try(record.id)] = record
        return found

    def rates(self, tuning: Sequence[StudyRun], *, needed: bool) -> Rates | None:
        """What tuning chose; ``None`` when it is not over and nothing needs it."""
        ended = {**self._failures(), **self.finished()}
        if not tuning or (not needed and any(run.id not in ended for run in tuning)):
            return None
        return tuned_rates(self._study, tuning, ended)

    def _failures(self) -> dict[str, PilotRecord]:
        return {r.id: r for r in self._store.records().records if r.health.status in _UNFINISHED}

    def carry_out(self, runs: Sequence[StudyRun]) -> None:
        failures = self._failures()
        finished = self.finished()
        for run in runs:
            record = finished.get(run.id)
            if record is not None and record.spec != run.spec:
                raise InvalidInput(
                    f"out: {self._store.path} has a record {record.id} of another setting; use another folder, or the "
                    "study file it was made with"
                )
        waiting = [run for run in runs if run.id not in finished]
        done = len(runs) - len(waiting)
        waiting.reverse()
        jobs: dict[str, StudyRun] = {}
        while waiting or jobs:
            while waiting and len(jobs) < self._executor.slots:
                run = waiting.pop()
                attempt = self._next_try(run, failures)
                if attempt is None:
                    done += 1
                    continue
                jobs[attempt] = run
                self._executor.submit(Job(attempt, run.spec, self._jobs / attempt))
            for outcome in self._executor.wait(_LOOK_EVERY_S):
                run = jobs.pop(outcome.job.id)
                record = self._keep(outcome, run)
                if record.health.status in _UNFINISHED:
                    failures[record.id] = record
                    waiting.append(run)  # `_next_try` says whether there is one
                else:
                    done += 1
                self._told(Standing(done, len(runs), record, [job.id for job in self._executor.running()]))

    def _next_try(self, run: StudyRun, failures: Mapping[str, PilotRecord]) -> str | None:
        for number in range(1, self._tries + 1):
            name = run.id if number == 1 else f"{run.id}_try{number}"
            if name not in failures:
                return name
            self.given_up[run.id] = failures[name].health.reason
        return None

    def _keep(self, outcome: Outcome, run: StudyRun) -> PilotRecord:
        about = {"study": self._study.name, "stages": list(run.stages)}
        record = replace(outcome.record, provenance={**outcome.record.provenance, **about})
        if record.id not in self._store:
            self._store.add(record)
        if record.health.status not in _UNFINISHED:
            self.given_up.pop(run.id, None)
        return record


def _without_try(record_id: str) -> str:
    head, mark, number = record_id.rpartition("_try")
    return head if mark and number.isdigit() else record_id


def _chosen_stages(study: Study, stages: Sequence[str]) -> set[str]:
    if not stages:
        return {TUNING_STAGE, *(stage.name for stage in study.stages)}
    for name in stages:
        if name != TUNING_STAGE or study.tuning is None:
            study.stage(name)
    return set(stages)


def _tuned(study: Study, stage: str) -> bool:
    return stage != TUNING_STAGE and study.stage(stage).rate == "tuned"


def _picked(runs: Sequence[StudyRun], tuning: Sequence[StudyRun], only: Sequence[str]) -> list[StudyRun]:
    """The runs called ``only``; tuned ones have their rate in their name, so they exist once tuning is done."""
    known = {run.id: run for run in (*tuning, *runs)}
    for name in only:
        if name not in known:
            raise InvalidInput(
                f"only: found {name!r}, which is no run of this study (runs with tuned rates have their names once "
                "tuning is done); race study cost FILE --json lists them"
            )
    tuned = {run.id for run in tuning}
    return [known[name] for name in only if name not in tuned]
