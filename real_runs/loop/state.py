"""How a loop is told to behave, why it ended, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from planner.decision import Decision
from planner.leases import TTL_S
from planner.progress import Progress
from race.errors import InvalidInput
from real_runs.executors._base import Job


@dataclass(frozen=True)
class LoopOptions:
    """How a loop behaves.

    Attributes
    ----------
    prune
        Stop running pilots that cannot change the decision any more.
    lost_work_inside
        Pilots pay for work that a crash makes them do again out of their own budget, as runs of ours do when they are
        told ``lost_work = "inside"``. Otherwise what an earlier attempt has spent is reserved on top before a pilot is
        started again, and it is not started when the pilot budget cannot pay for that.
    retries
        Further attempts of a pilot that crashed, made by the loop; executors that are told to try again themselves
        would spend what nobody has reserved.
    failures
        Pilots in a row that fail without having measured anything, after which the loop gives up: something is wrong
        with the set-up, and pilots that fail at once cost nothing, so the budget would never end it.
    ttl
        Seconds without a sign of life after which another loop's pilot is taken over.
    turn
        Longest time without looking around, in seconds.
    patience
        Seconds a storage may be out of reach before the loop gives up (pilots go on meanwhile).
    """

    prune: bool = True
    lost_work_inside: bool = True
    retries: int = 0
    failures: int = 4
    ttl: float = TTL_S
    turn: float = 1.0
    patience: float = 300.0

    def __post_init__(self) -> None:
        for name, least in (("failures", 1), ("retries", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(f"{name}: found {value!r}; allowed is a whole number of at least {least}")
        for name in ("ttl", "turn", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e7:
                raise InvalidInput(f"{name}: found {value!r}; allowed is a number of seconds above 0")


@dataclass(frozen=True)
class Ending:
    """Why a loop ended: a word for programs, a sentence for people."""

    code: str
    reason: str

    @property
    def failed(self) -> bool:
        """True when it could not do what it was asked to."""
        return self.code == "pilots-fail"


@dataclass(frozen=True)
class LoopState:
    """Where a loop stands; what a live view shows.

    Attributes
    ----------
    progress
        Pilots of the whole study, those of other loops included.
    decision
        The newest; without next pilots.
    running
        Jobs of this loop with the FLOPs they have spent so far.
    spent
        FLOPs of finished and lost pilots, and of this loop's running ones so far.
    budget
        FLOPs for all pilots.
    elsewhere
        Pilots that other loops run.
    seconds, rate
        Since the start; FLOPs spent a second since then, 0 before anything is known.
    ending
        Set once the loop is on its way out.
    """

    progress: Progress
    decision: Decision
    running: tuple[tuple[Job, float], ...]
    spent: float
    budget: int
    elsewhere: int
    seconds: float
    rate: float
    ending: Ending | None

    @property
    def eta(self) -> float | None:
        """Seconds until the pilot budget is spent at the present rate: the latest end."""
        if self.ending is not None:
            return 0.0
        return (self.budget - self.spent) / self.rate if self.rate > 0 else None
