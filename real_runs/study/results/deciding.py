"""What RACE decides from the whole grid, and whether it decides the same from fewer of its runs.

The arm with the best mean of three runs is a coin toss wherever a frontier is flat. The decision that a user takes away
is the planner's: a model, a regime, and where ρ* lies. So the full grid's decision is also taken as what the planner
decides from all of the grid's runs, and any smaller set of runs is put to the same planner. Whoever chose the runs, the
planner or a peer, the same decider is asked: what differs is the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from planner import PilotSpace
from planner.decision import Decision
from planner.progress import Pilot, Progress
from planner.proposer import Proposer
from race.ladders import Ladder
from race.records import PilotRecord
from real_runs.study.results.recorded import Grid

SIZES = (1 / 6, 1 / 3, 1 / 2, 1.0)  # of the real budget


def space_of(grid: Grid, horizon: float) -> PilotSpace:
    """The grid's models and reward system, with ``horizon`` of the grid's FLOPs for pilots."""
    rungs = Ladder(
        grid.rungs.name,
        tuple(m for m in grid.rungs.models if m.name in grid.models),
        grid.rungs.recipe_defaults,
        grid.rungs.reward_models,
    )
    return PilotSpace(
        rungs, (rungs.recipe(grid.reward),), grid.budget, int(horizon * grid.flops),
        tuple(int(share * grid.budget) for share in SIZES), (grid.target,),
    )  # fmt: skip


@dataclass
class Decider:
    """The planner's decision on a grid, from any of its runs."""

    grid: Grid
    _proposer: Proposer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._proposer = Proposer(space_of(self.grid, 1.0))

    @cached_property
    def whole(self) -> Decision:
        """From all runs of the grid."""
        return self.decide([run for arm in self.grid.arms for run in arm.runs])

    def decide(self, records: Sequence[PilotRecord]) -> Decision:
        """From ``records``, whole or stopped."""
        pilots = [Pilot(number, record.spec, "finished", record) for number, record in enumerate(records)]
        return self._proposer.decide(Progress(tuple(pilots)))

    def agrees(self, records: Sequence[PilotRecord]) -> bool:
        """Whether ``records`` lead to the whole grid's model and regime, and to a ρ inside its 90 % interval of ρ*."""
        mine, whole = self.decide(records), self.whole
        star = whole.view.rho_star
        same = mine.model == whole.model and mine.regime == whole.regime
        return same and star.lo <= mine.view.best_rho <= star.hi
