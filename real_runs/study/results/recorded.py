"""A recorded world: the runs of one full grid, handed out as if they were being made.

An arm is one (model, ρ). Each of its recorded runs is handed out once, whole or stopped early, and charged the FLOPs
that it had spent by then. What a grid of everything decides is the arm with the best mean; arms that the bootstrap
gives a chance of at least `TIED` to be it are as good a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from race.allocation import Regime
from race.errors import CannotDo
from race.ladders import Ladder
from race.records import PilotRecord
from real_runs.study.results.evidence import cut, final, only, points_of, relative
from real_runs.study.results.response import Response, regimes, responses
from real_runs.study.tuning import Rates

TIED = 0.1


@dataclass(frozen=True)
class Arm:
    """One setting of the grid and its runs."""

    model: str
    rho: float
    runs: tuple[PilotRecord, ...]


@dataclass(frozen=True)
class Grid:
    """All arms of one reward system at one budget, models ascending in size."""

    reward: str
    budget: int
    target: str
    rungs: Ladder
    arms: tuple[Arm, ...]
    slices: tuple[Response, ...]

    @classmethod
    def build(
        cls, records: Sequence[PilotRecord], rates: Rates | None, rungs: Ladder, reward: str, budget: int, target: str
    ) -> Grid:
        """From runs at tuned rates.

        Raises
        ------
        CannotDo
            Fewer than two models with three arms each.
        """
        mine = [only(relative(r, rates), [target]) for r in records if target in r.curves]
        mine = [r for r in mine if (r.spec.reward, r.spec.budget) == (reward, budget)]
        order = [m.name for m in rungs.models]
        slices = sorted(responses(mine, [target]).values(), key=lambda r: order.index(r.key.model))
        slices = [s for s in slices if len(s.rhos) >= 3]
        if len(slices) < 2:
            raise CannotDo(f"replay: {reward} at {budget:.3g} FLOPs has no grid of two models with three arms yet")
        arms = tuple(
            Arm(s.key.model, float(rho), runs) for s in slices for rho, runs in zip(s.rhos, s.runs, strict=True)
        )
        return cls(reward, budget, target, rungs, arms, tuple(slices))

    @property
    def models(self) -> tuple[str, ...]:
        """Models in the grid."""
        return tuple(s.key.model for s in self.slices)

    @cached_property
    def flops(self) -> float:
        """What all runs together spent."""
        return float(sum(r.flops.total for arm in self.arms for r in arm.runs))

    @cached_property
    def means(self) -> npt.NDArray[np.float64]:
        """Mean final value per arm."""
        return np.concatenate([s.means[:, 0] for s in self.slices])

    @cached_property
    def decision(self) -> int:
        """The arm that the full grid decides for."""
        return int(self.means.argmax())

    @cached_property
    def as_good(self) -> frozenset[int]:
        """Arms that may as well be the best."""
        drawn = [s.draws(4000, seed=i) for i, s in enumerate(self.slices)]
        if any(d is None for d in drawn):
            return frozenset([self.decision])
        top = np.concatenate([d[:, :, 0] for d in drawn if d is not None], axis=1).argmax(axis=1)
        share = np.bincount(top, minlength=len(self.arms)) / len(top)
        return frozenset([self.decision, *np.flatnonzero(share >= TIED).tolist()])

    @cached_property
    def regime(self) -> tuple[Regime, ...]:
        """Regime of every arm."""
        return tuple(regimes(self.rungs, s.key, s.runs[0][0], rho)[0] for s in self.slices for rho in s.rhos)

    def start(self, order: int) -> RecordedWorld:
        """All runs unseen, in the ``order``-th shuffle."""
        return RecordedWorld(self, order)


class RecordedWorld:
    """Hands out runs of a grid."""

    def __init__(self, grid: Grid, order: int) -> None:
        self.grid, self.spent = grid, 0.0
        self.rng = np.random.default_rng([order, 1607])
        self._left: list[list[int]] = [self.rng.permutation(len(arm.runs)).tolist() for arm in grid.arms]

    @property
    def exhausted(self) -> bool:
        """Whether every run was handed out."""
        return not any(self._left)

    def left(self, arm: int) -> int:
        """Runs of an arm not handed out yet."""
        return len(self._left[arm])

    def nearest(self, model: str, rho: float) -> int | None:
        """The arm nearest to (model, ρ) in logit that has a run left: of the same model first; ``None`` without any."""
        order = self.grid.models
        able = [i for i in range(len(self.grid.arms)) if self._left[i]]

        def far(i: int) -> tuple[int, float]:
            arm = self.grid.arms[i]
            logit = abs(np.log(arm.rho / (1 - arm.rho)) - np.log(rho / (1 - rho)))
            return abs(order.index(arm.model) - order.index(model)), float(logit)

        return min(able, key=far, default=None)

    def run(self, arm: int, flops: float | None = None) -> PilotRecord:
        """The next run of an arm, whole or stopped at the evaluation nearest to ``flops``; charged."""
        record: PilotRecord = self.grid.arms[arm].runs[self._left[arm].pop()]
        if flops is not None:
            points = np.array(points_of(record))
            at = float(points[np.abs(np.log(points / flops)).argmin()])
            record = cut(record, at) or record
        self.spent += record.flops.total
        return record

    def value(self, record: PilotRecord) -> float:
        """Final value of a run handed out."""
        return final(record, self.grid.target)
