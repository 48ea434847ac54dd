"""The study behind a planner: opening it, and moving pilots in and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from planner import trials
from planner.progress import Progress
from planner.proposer import Proposer
from planner.sampler import RaceSampler
from race.errors import CannotDo, InvalidInput
from race.records import PilotRecord, PilotSpec

# Enough to draw a learning curve in a dashboard; the record keeps every point.
SHOWN_POINTS = 20


class StudyMemory:
    """One plan's trials in one study.

    One process should own a study that lives in SQLite; several machines share a PostgreSQL or journal storage.
    """

    def __init__(self, study: Study, proposer: Proposer, evidence: Sequence[PilotRecord] = ()) -> None:
        trials.freeze(study, proposer.space)
        self.study = study
        self.space = proposer.space
        self.sampler = RaceSampler.of(proposer, records=evidence)
        study.sampler = self.sampler

    @classmethod
    def open(
        cls,
        proposer: Proposer,
        *,
        evidence: Sequence[PilotRecord] = (),
        study: Study | None = None,
        storage: str | BaseStorage | None = None,
        name: str = "race",
    ) -> StudyMemory:
        """Use ``study``, or create or load the one called ``name`` in ``storage`` (``None``: in memory).

        Raises
        ------
        CannotDo
            The storage cannot be opened.
        InvalidInput
            The study was started with another space.
        """
        if study is None:
            try:
                study = optuna.create_study(
                    study_name=name, storage=_storage(storage), direction="maximize", load_if_exists=True
                )
            except _storage_errors() as error:
                first = str(error).strip().splitlines() or [type(error).__name__]
                raise CannotDo(f"storage: {storage} cannot be opened: {first[0]}") from error
        return cls(study, proposer, evidence)

    def progress(self) -> Progress:
        """All pilots so far."""
        return self.sampler.progress(self.study)

    def ask(self) -> PilotSpec:
        """Sample the next pilot; the trial stays running until told."""
        # Refuse before a trial exists: a question that has no answer leaves no trace in the study.
        self.sampler.ensure_something(self.study)
        return self.sampler.suggest(self.study.ask())

    def tell(self, spec: PilotSpec, record: PilotRecord) -> None:
        """Close the trial of ``spec`` with ``record``, or add the record as a trial of its own."""
        if (record.spec.model.lower(), record.spec.reward) != (spec.model.lower(), spec.reward):
            raise InvalidInput(
                f"record: found {record.spec.model} with reward {record.spec.reward} for a pilot of {spec.model} with "
                f"reward {spec.reward}; allowed is the record of the pilot that was asked for"
            )
        if any(t.user_attrs.get(trials.RECORD_ID) == record.id and t.state.is_finished() for t in self._trials()):
            return
        trial = self._running(spec)
        if trial is None:
            self._add(spec, record)
            return
        storage = self.study._storage  # user attributes of a trial by number have no public setter
        storage.set_trial_user_attr(trial._trial_id, trials.RECORD, record.to_dict())
        storage.set_trial_user_attr(trial._trial_id, trials.RECORD_ID, record.id)
        for step, shown in self._shown(record):
            storage.set_trial_intermediate_value(trial._trial_id, step, shown)
        state, value = self._outcome(record)
        self.study.tell(trial.number, value if state == TrialState.COMPLETE else None, state)

    def give_up(self, spec: PilotSpec, reason: str) -> None:
        """Fail the running trial of ``spec``."""
        trial = self._running(spec)
        if trial is None:
            raise InvalidInput("spec: found no running pilot like it in the study; it was told or given up before")
        self.study._storage.set_trial_user_attr(trial._trial_id, trials.NOTE, reason)
        self.study.tell(trial.number, state=TrialState.FAIL)

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _running(self, spec: PilotSpec) -> FrozenTrial | None:
        for trial in self._trials():
            if trial.state == TrialState.RUNNING and _same(trial.user_attrs.get(trials.SPEC), spec):
                return trial
        return None

    def _add(self, spec: PilotSpec, record: PilotRecord) -> None:
        """A late result of a pilot that was given up takes its charge over; a foreign one is its own trial."""
        state, value = self._outcome(record)
        failed = (t for t in self._trials() if t.state == TrialState.FAIL)
        lost = [t.number for t in failed if _same(t.user_attrs.get(trials.SPEC), spec)]
        attrs: dict[str, Any] = {
            trials.SPEC: spec.to_dict(),
            trials.RECORD: record.to_dict(),
            trials.RECORD_ID: record.id,
        }
        if lost:
            attrs[trials.REPLACES] = lost[-1]
        self.study.add_trial(
            create_trial(
                state=state,
                value=value if state == TrialState.COMPLETE else None,
                user_attrs=attrs,
                intermediate_values=dict(self._shown(record)),
            )
        )

    def _outcome(self, record: PilotRecord) -> tuple[TrialState, float | None]:
        value = trials.value_of(record, self.space.target)
        if value is None:
            return TrialState.FAIL, None
        return (TrialState.PRUNED if "pruned" in record.health.flags else TrialState.COMPLETE), value

    def _shown(self, record: PilotRecord) -> list[tuple[int, float]]:
        curve = record.curves.get(self.space.target)
        if curve is None:
            return []
        stride = max(1, -(-len(curve) // SHOWN_POINTS))
        points = list(zip(curve.step, curve.value, strict=True))
        return [*points[: len(points) - 1 : stride], points[-1]]


def _same(stored: Any, spec: PilotSpec) -> bool:
    # The seed is derived from the trial number, so that two pilots of one cell stay apart.
    return stored is not None and PilotSpec.from_dict(stored) == spec


def _storage(storage: str | BaseStorage | None) -> str | BaseStorage | None:
    if not isinstance(storage, (str, Path)) or "://" in str(storage):
        return storage
    path = Path(storage)
    if path.suffix in (".journal", ".log"):
        return JournalStorage(JournalFileBackend(str(path)))
    return f"sqlite:///{path}"


def _storage_errors() -> tuple[type[Exception], ...]:
    from sqlalchemy.exc import SQLAlchemyError  # of Optuna's own dependencies, and slow to import

    # ValueError is Optuna's for a URL it cannot read, ImportError for a database driver that is not installed.
    return OSError, ImportError, ValueError, SQLAlchemyError
