"""When to stop buying pilots: the regime is certain enough, the pilot budget is spent, or nothing left fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.decision import Decision
from race.errors import InvalidInput
from race.units import format_flops

CERTAINTY = 0.9


@dataclass(frozen=True)
class Stop:
    """Why the loop ends: a word for programs, a sentence for people."""

    code: Literal["regime-certain", "budget-spent", "nothing-fits"]
    reason: str


@dataclass(frozen=True)
class StoppingRule:
    """Limits, any of which ends the loop.

    Attributes
    ----------
    certainty
        Probability of the stated regime that is enough.
    min_pilots
        Finished pilots before certainty counts. The prior alone can be certain; a loop that stopped on that would
        report an assumption as a finding.

    With several targets the regime has to be certain for each of them, and a larger pilot of every model that is still
    in the race has to have been run where the pilot budget pays for it (`planner.proving`).
    """

    certainty: float = CERTAINTY
    min_pilots: int = 3

    def __post_init__(self) -> None:
        if not 0.5 <= self.certainty <= 1:
            raise InvalidInput(f"certainty: found {self.certainty!r}; allowed is a probability from 0.5 to 1")
        if self.min_pilots < 0:
            raise InvalidInput(f"min_pilots: found {self.min_pilots!r}; allowed is a whole number of at least 0")

    def check(
        self,
        decision: Decision,
        *,
        finished: int,
        spent: float,
        pilot_budget: int,
        smallest: float | None,
        unproven: bool = False,
    ) -> Stop | None:
        """The reason to stop, or ``None`` to go on.

        Parameters
        ----------
        finished
            Pilots that have reported.
        spent
            FLOPs spent by finished pilots and reserved for running ones.
        smallest
            Size of the smallest pilot that can be run at all; ``None`` when none can.
        unproven
            A larger pilot of a model in the race is running, or can be paid for.
        """
        if finished >= self.min_pilots and decision.certain(self.certainty) and not unproven:
            return Stop(
                "regime-certain",
                f"regime {decision.regime} at probability {decision.certainty:.2f}, at least {self.certainty:g}, "
                f"after {finished} pilots",
            )
        if smallest is None:
            return Stop(
                "nothing-fits",
                f"no pilot of two steps fits the sizes a pilot budget of {format_flops(pilot_budget)} FLOPs allows; "
                "raise the pilot budget or shorten the recipe",
            )
        if pilot_budget - spent < smallest:
            return Stop(
                "budget-spent",
                f"{format_flops(spent) if spent else '0'} of {format_flops(pilot_budget)} pilot FLOPs are spent or "
                f"reserved, and the smallest pilot takes {format_flops(smallest)}",
            )
        return None
