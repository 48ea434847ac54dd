"""What a plan has asked for and learned so far, free of where it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from planner.space import PilotSpace
from race.errors import InvalidInput
from race.records import PilotRecord, PilotSpec

PilotState = Literal["running", "finished", "lost"]


def evidence_of(records: Iterable[PilotRecord]) -> tuple[PilotRecord, ...]:
    """The records as a tuple.

    Raises
    ------
    InvalidInput
        Something else than records, such as the store itself.
    """
    found = tuple(records) if isinstance(records, Iterable) else (records,)
    for item in found:
        if not isinstance(item, PilotRecord):
            raise InvalidInput(
                f"records: found {type(item).__name__}; allowed are PilotRecords, which a store gives as "
                "Store(path).records().records"
            )
    return found


@dataclass(frozen=True)
class Pilot:
    """One pilot of a plan.

    Attributes
    ----------
    number
        Position in the plan, from 0; Optuna's trial number.
    spec
        What was asked for.
    state
        ``lost`` when it failed or was given up without a record.
    record
        The outcome, when there is one.
    extra
        FLOPs reserved on top of the spec's budget, for what an earlier attempt has spent already.
    """

    number: int
    spec: PilotSpec
    state: PilotState
    record: PilotRecord | None = None
    extra: float = 0.0

    @property
    def charged(self) -> float:
        """FLOPs on the pilot budget: what was measured, or all of it while that is unknown.

        A running pilot has reserved its budget, and a lost one may have spent it.
        """
        return float(self.spec.budget + self.extra if self.record is None else self.record.spent)


@dataclass(frozen=True)
class Progress:
    """The pilots of a plan in order, and evidence that was there before it.

    Attributes
    ----------
    pilots
        By number.
    evidence
        Records from elsewhere; they inform, and cost the plan nothing.
    notes
        Plain words on what could not be read.
    """

    pilots: tuple[Pilot, ...] = ()
    evidence: tuple[PilotRecord, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def records(self) -> tuple[PilotRecord, ...]:
        """All records, each id once."""
        found: dict[str, PilotRecord] = {record.id: record for record in self.evidence}
        for pilot in self.pilots:
            if pilot.record is not None:
                found[pilot.record.id] = pilot.record
        return tuple(found.values())

    @property
    def pending(self) -> tuple[PilotSpec, ...]:
        """Specs still running."""
        return tuple(p.spec for p in self.pilots if p.state == "running")

    @property
    def finished(self) -> int:
        """Pilots that have reported."""
        return sum(p.record is not None for p in self.pilots)

    @property
    def spent(self) -> float:
        """FLOPs charged to the pilot budget."""
        return sum(p.charged for p in self.pilots)

    def known(self, space: PilotSpace) -> int:
        """Pilots asked for, plus records from elsewhere that are about this space."""
        about = sum(r.spec.model in space.ladder and r.spec.reward in space.rewards for r in self.evidence)
        return len(self.pilots) + about

    def with_running(self, specs: Iterable[PilotSpec]) -> Progress:
        """The same plan with ``specs`` asked for on top."""
        start = max((p.number for p in self.pilots), default=-1) + 1
        more = tuple(Pilot(start + i, spec, "running") for i, spec in enumerate(specs))
        return Progress((*self.pilots, *more), self.evidence, self.notes)
