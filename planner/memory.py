"""The study behind a planner: opening it, and moving pilots in and out of it.

What several processes may do to one study at once is kept right by three things:

- asking happens inside `Storage.exclusive`, and a trial appears together with its spec and its lease in one
  transaction: whatever is killed, no half a pilot is left behind;
- a trial that was created all the same although the budget could not pay for it (its creator had lost the lock without
  knowing) is withdrawn before it starts. The rule needs no lock: the pilot with number n may start if what the pilots
  up to n have reserved or spent, and what all others have spent, fits the pilot budget. Of two that do not fit
  together only the later one is withdrawn, because numbers are given out by the storage, one after the other;
- a record has the id of its pilot's job, and is told once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from planner import trials
from planner.leases import Lease, Owner
from planner.locks import first_line
from planner.progress import Pilot, Progress
from planner.proposer import NoProposal, Proposer
from planner.sampler import WHY, RaceSampler
from planner.seeds import trial_seed
from planner.storage import Storage, open_storage, storage_errors
from race.errors import CannotDo, InvalidInput, RaceError
from race.records import ENDED, PRUNED, PilotRecord, PilotSpec

LEASE, TOKEN, FACTS = "race:lease", "race:token", "race:facts"

# Enough to draw a learning curve in a dashboard; the record keeps every point. Each is a transaction of its own.
SHOWN_POINTS = 8


@dataclass(frozen=True)
class Claim:
    """A pilot that this process runs.

    Attributes
    ----------
    number
        Of its trial.
    job
        Its name wherever it runs, and the id of its record.
    spec
        What to run.
    folder
        Where its folder is, or is to be made; empty when nobody has said.
    """

    number: int
    job: str
    spec: PilotSpec
    folder: str = ""


class StudyMemory:
    """One plan's trials in one study."""

    def __init__(
        self,
        study: Study,
        proposer: Proposer,
        evidence: Sequence[PilotRecord] = (),
        *,
        storage: Storage | None = None,
    ) -> None:
        self.study = study
        self.storage = Storage("memory", "memory", None) if storage is None else storage
        self.storage.bind(study.study_name)
        with self.storage.exclusive():
            trials.freeze(study, proposer.space)
            if TOKEN not in study.user_attrs:
                study.set_user_attr(TOKEN, uuid.uuid4().hex[:8])
        self.space = proposer.space
        self.sampler = RaceSampler.of(proposer, records=evidence)
        study.sampler = self.sampler
        self._evidence = tuple(evidence)
        self._known: dict[int, Pilot] = {}

    @classmethod
    def open(
        cls,
        proposer: Proposer,
        *,
        evidence: Sequence[PilotRecord] = (),
        study: Study | None = None,
        storage: str | BaseStorage | Storage | None = None,
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
        if study is not None:
            return cls(study, proposer, evidence)
        place = storage if isinstance(storage, Storage) else open_storage(storage)
        place.bind(name)
        try:
            with place.exclusive():
                study = optuna.create_study(
                    study_name=name, storage=place.optuna, direction="maximize", load_if_exists=True
                )
            return cls(study, proposer, evidence, storage=place)
        except RaceError:
            raise
        except storage_errors() as error:
            raise CannotDo(f"storage: {place.where} cannot be opened: {first_line(error)}") from error

    @property
    def token(self) -> str:
        """Tells this study's pilots from those of any other, also of one with the same name."""
        return str(self.study.user_attrs[TOKEN])

    def job(self, number: int) -> str:
        """Name of a trial's job: fit for a file name, and like no other study's."""
        return f"{_prefix(self.study.study_name, self.token)}{number:04d}"

    def agree(self, **facts: Any) -> None:
        """Keep ``facts`` about how the pilots are run with the study, or check them against those kept.

        Raises
        ------
        InvalidInput
            The study was started with others.
        """
        with self.storage.exclusive():
            found = self.study.user_attrs.get(FACTS)
            if found is None:
                self.study.set_user_attr(FACTS, facts)
                return
        for name, value in facts.items():
            if name in found and found[name] != value:
                raise InvalidInput(
                    f"{name}: found {value!r}, the study {self.study.study_name} in {self.storage.where} was started "
                    f"with {found[name]!r}; use that, or another study"
                )

    def progress(self) -> Progress:
        """All pilots so far."""
        return self._read(self._trials())

    def ask(self) -> PilotSpec:
        """Sample the next pilot; the trial stays running until told."""
        return self.claim(None).spec

    def claim(self, owner: Owner | None, folder: str = "") -> Claim:
        """The next pilot, reserved, with a lease for ``owner``, who is going to run it in ``folder``.

        Raises
        ------
        NoProposal
            Nothing fits what is left of the pilot budget.
        Busy
            Other processes are asking and do not come to an end.
        """
        with self.storage.exclusive():
            found = self._trials()
            progress = self._read(found)
            # Refuse before a trial exists: a question that has no answer leaves no trace in the study.
            self.sampler.proposer.ensure_something(progress)
            if any(t.state == TrialState.WAITING for t in found):
                return self._enqueued(owner, folder)
            proposal = self.sampler.proposer.propose(progress)
            number = 1 + max((t.number for t in found), default=-1)
            spec = self.space.spec(proposal.cell, seed=trial_seed(self.sampler.proposer.seed, number))
            attrs: dict[str, Any] = {
                trials.SPEC: spec.to_dict(),
                WHY: {"by": proposal.reason, "expected_gain": proposal.gain, "doubt": proposal.doubt},
            }
            if owner is not None:
                attrs[LEASE] = Lease(owner, folder=folder).to_dict()
            template = create_trial(
                state=TrialState.RUNNING,
                params=trials.params_of(proposal.cell, self.space),
                distributions=trials.distributions(self.space),
                user_attrs=attrs,
            )
            backend = self._backend
            trial = backend.get_trial(backend.create_new_trial(self.study._study_id, template_trial=template))
            self._admit(trial)
            return Claim(trial.number, self.job(trial.number), spec, folder)

    def extend(self, claim: Claim, spent: float) -> bool:
        """Reserve ``spent`` FLOPs on top of a pilot's budget, for what its earlier attempts have spent and it is going
        to spend again; false when the pilot budget does not pay for that."""
        with self.storage.exclusive():
            before = self._at(claim.number).user_attrs.get(trials.EXTRA, 0.0)
            more = max(0.0, spent - before)
            if self.progress().spent + more > self.space.pilot_budget:
                return False
            self._set(self._at(claim.number), trials.EXTRA, before + more)
            return True

    def held(self) -> dict[int, Lease]:
        """Leases of all running trials that have one, by trial number."""
        return {
            t.number: Lease.from_dict(t.user_attrs[LEASE])
            for t in self._trials()
            if t.state == TrialState.RUNNING and LEASE in t.user_attrs
        }

    def renew(self, owner: Owner) -> set[int]:
        """Raise the count of every lease of ``owner``; the trials it still holds."""
        with self.storage.exclusive():
            mine = {n: lease for n, lease in self.held().items() if lease.owner == owner}
            for number, lease in mine.items():
                self._set(self._at(number), LEASE, lease.renewed().to_dict())
            return set(mine)

    def release(self, owner: Owner) -> int:
        """Leave every pilot of ``owner`` for whoever comes next; how many."""
        with self.storage.exclusive():
            mine = {n: lease for n, lease in self.held().items() if lease.owner == owner}
            for number, lease in mine.items():
                self._set(self._at(number), LEASE, lease.released().to_dict())
            return len(mine)

    def take_over(self, number: int, owner: Owner, seen: Lease, folder: str) -> Claim | None:
        """Make ``owner`` run a pilot whose lease, last seen as ``seen``, has expired; ``None`` if it moved since."""
        with self.storage.exclusive():
            if self.held().get(number) != seen:
                return None
            trial = self._at(number)
            self._set(trial, LEASE, seen.taken(owner, folder).to_dict())
            spec = PilotSpec.from_dict(trial.user_attrs[trials.SPEC], where=f"trial {number} {trials.SPEC}")
            return Claim(number, self.job(number), spec, folder)

    def abandon(self, number: int, seen: Lease, reason: str) -> bool:
        """Fail a trial whose owner is gone, unless its lease has moved since ``seen``; its budget stays charged."""
        with self.storage.exclusive():
            if self.held().get(number) != seen:
                return False
            self._fail(self._at(number), reason)
            return True

    def finish(self, claim: Claim, record: PilotRecord, owner: Owner) -> bool:
        """Close the trial of ``claim``; false when the outcome of a pilot lost meanwhile adds nothing.

        A pilot whose lease somebody else has now is theirs: only a record with something in it is still told.
        """
        with self.storage.exclusive():
            trial = self._at(claim.number)
            held = trial.user_attrs.get(LEASE) if trial.state == TrialState.RUNNING else None
            lost = held is None or Lease.from_dict(held).owner != owner
            if lost and record.health.status in ("failed", "timeout"):
                return False
            if trial.state.is_finished():
                self.tell(claim.spec, record)
            else:
                self._close(trial, record)
            return True

    def tell(self, spec: PilotSpec, record: PilotRecord) -> None:
        """Close the trial of ``spec`` with ``record``, or add the record as a trial of its own."""
        if not isinstance(record, PilotRecord):
            raise InvalidInput(f"record: found {type(record).__name__}; allowed is the PilotRecord of the pilot")
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
        else:
            self._close(trial, record)

    def give_up(self, spec: PilotSpec, reason: str) -> None:
        """Fail the running trial of ``spec``."""
        trial = self._running(spec)
        if trial is None:
            raise InvalidInput("spec: found no running pilot like it in the study; it was told or given up before")
        self._fail(trial, reason)

    @property
    def _backend(self) -> BaseStorage:
        # Trials are created whole, and changed by number: neither has a public way in.
        return self.study._storage

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _read(self, found: list[FrozenTrial]) -> Progress:
        read = trials.read(
            self.study, self.space, seed=self.sampler.proposer.seed, found=found, known=self._known
        )
        return replace(read, evidence=self._evidence)

    def _at(self, number: int) -> FrozenTrial:
        try:
            where = self._backend.get_trial_id_from_study_id_trial_number(self.study._study_id, number)
        except KeyError:
            raise CannotDo(f"study: trial {number} is gone; somebody deleted it") from None
        return self._backend.get_trial(where)

    def _running(self, spec: PilotSpec) -> FrozenTrial | None:
        for trial in self._trials():
            if trial.state == TrialState.RUNNING and _same(trial.user_attrs.get(trials.SPEC), spec):
                return trial
        return None

    def _set(self, trial: FrozenTrial, name: str, value: Any) -> None:
        self._backend.set_trial_user_attr(trial._trial_id, name, value)

    def _fail(self, trial: FrozenTrial, reason: str) -> None:
        self._set(trial, trials.NOTE, reason)
        self.study.tell(trial.number, state=TrialState.FAIL)

    def _enqueued(self, owner: Owner | None, folder: str) -> Claim:
        """A pilot that somebody put into the study's queue (``study.enqueue_trial``)."""
        trial = self.study.ask()
        spec = self.sampler.suggest(trial)
        if owner is not None:
            trial.set_user_attr(LEASE, Lease(owner, folder=folder).to_dict())
        self._admit(self._at(trial.number))
        return Claim(trial.number, self.job(trial.number), spec, folder)

    def _admit(self, trial: FrozenTrial) -> None:
        """Withdraw a trial that the budget cannot pay for (see the module's text)."""
        pilots = self.progress().pilots
        up_to = sum(p.charged for p in pilots if p.number <= trial.number or p.record is not None)
        if up_to <= self.space.pilot_budget:
            return
        self._set(trial, trials.WITHDRAWN, True)
        self._fail(trial, "withdrawn: other processes have reserved what was left of the pilot budget")
        raise NoProposal(
            "pilots: none proposed, since other processes have reserved what was left of the pilot budget meanwhile"
        )

    def _close(self, trial: FrozenTrial, record: PilotRecord) -> None:
        self._set(trial, trials.RECORD, record.to_dict())
        self._set(trial, trials.RECORD_ID, record.id)
        for step, shown in self._shown(record):
            self._backend.set_trial_intermediate_value(trial._trial_id, step, shown)
        state, value = self._outcome(record)
        self.study.tell(trial.number, value if state == TrialState.COMPLETE else None, state)

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
        return (TrialState.PRUNED if {PRUNED, ENDED} & set(record.health.flags) else TrialState.COMPLETE), value

    def _shown(self, record: PilotRecord) -> list[tuple[int, float]]:
        curve = record.curves.get(self.space.target)
        if curve is None:
            return []
        stride = max(1, -(-len(curve) // SHOWN_POINTS))
        points = list(zip(curve.step, curve.value, strict=True))
        return [*points[: len(points) - 1 : stride], points[-1]]


def own_prefix(storage: Storage, study: str) -> str | None:
    """What the ids of a study's own records start with; ``None`` when there is no such study yet."""
    backend = storage.optuna
    if backend is None:
        return None
    try:
        found = backend.get_study_user_attrs(backend.get_study_id_from_name(study)).get(TOKEN)
    except KeyError:
        return None
    except storage_errors() as error:
        raise CannotDo(f"storage: {storage.where} cannot be read: {first_line(error)}") from error
    return None if found is None else _prefix(study, str(found))


def _prefix(study: str, token: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]+", "-", study).strip("-")[:64] or "study"
    return f"{name}-{token}-"


def _same(stored: Any, spec: PilotSpec) -> bool:
    # The seed is derived from the trial number, so that two pilots of one cell stay apart.
    return stored is not None and PilotSpec.from_dict(stored) == spec
