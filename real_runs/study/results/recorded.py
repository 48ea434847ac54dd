"""A recorded world: the runs of one full grid, handed out as if they were being made.

An arm is one (model, ρ). Each of its recorded runs is handed out whole or stopped early, and charged the FLOPs that it
had spent by then. One that was stopped can be had again at a larger size, and is charged from its first step once more,
as the new run that it stands for would be. What a grid of everything decides is the arm with the best mean; an arm is
as good a decision where the bootstrap interval of the difference of their means, at `LEVEL`, holds 0.
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

LEVEL = 0.95


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
    fresh: tuple[float, ...] | None = None

    @classmethod
    def build(
        cls,
        records: Sequence[PilotRecord],
        rates: Rates | None,
        rungs: Ladder,
        reward: str,
        budget: int,
        target: str,
        *,
        later: Sequence[PilotRecord] = (),
    ) -> Grid:
        """From runs at tuned rates; ``fresh`` has each arm's mean over runs of ``later``, if all arms have some there.

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
        again: dict[tuple[str, float], list[float]] = {}
        for record in later:
            if (record.spec.reward, record.spec.budget) == (reward, budget) and target in record.curves:
                again.setdefault((record.spec.model, round(record.spec.rho, 6)), []).append(final(record, target))
        found = [again.get((arm.model, round(arm.rho, 6)), []) for arm in arms]
        fresh = tuple(float(np.mean(values)) for values in found) if all(found) else None
        return cls(reward, budget, target, rungs, arms, tuple(slices), fresh)

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
        """Arms whose means differ from the best one's by no more than the grid's own noise."""
        drawn = [s.draws(4000, seed=i) for i, s in enumerate(self.slices)]
        if any(d is None for d in drawn):
            return frozenset([self.decision])
        values = np.concatenate([d[:, :, 0] for d in drawn if d is not None], axis=1)
        above = (values >= values[:, [self.decision]]).mean(axis=0)
        return frozenset([self.decision, *np.flatnonzero(above >= (1 - LEVEL) / 2).tolist()])

    @cached_property
    def regime(self) -> tuple[Regime, ...]:
        """Regime of every arm."""
        return tuple(regimes(self.rungs, s.key, s.runs[0][0], rho)[0] for s in self.slices for rho in s.rhos)

    def distance(self, arm: int, model: str, rho: float) -> tuple[int, float]:
        """How far an arm is from (model, ρ): in models first, then in the logit of ρ."""
        mine = self.arms[arm]
        logit = abs(np.log(mine.rho / (1 - mine.rho)) - np.log(rho / (1 - rho)))
        return abs(self.models.index(mine.model) - self.models.index(model)), float(logit)

    def snap(self, model: str, rho: float) -> int:
        """The arm nearest to (model, ρ)."""
        return min(range(len(self.arms)), key=lambda i: self.distance(i, model, rho))

    def start(self, order: int) -> RecordedWorld:
        """All runs unseen, in the ``order``-th shuffle."""
        return RecordedWorld(self, order)


class RecordedWorld:
    """Hands out runs of a grid, whole or stopped early."""

    def __init__(self, grid: Grid, order: int) -> None:
        self.grid, self.spent = grid, 0.0
        self.rng = np.random.default_rng([order, 1607])
        self._order: list[list[int]] = [self.rng.permutation(len(arm.runs)).tolist() for arm in grid.arms]
        # How far each run was handed out already, in FLOPs.
        self._seen: list[list[float]] = [[0.0] * len(arm.runs) for arm in grid.arms]

    def exhausted(self, flops: float | None = None) -> bool:
        """Whether no arm has a run left at this size."""
        return not any(self.left(arm, flops) for arm in range(len(self.grid.arms)))

    def left(self, arm: int, flops: float | None = None) -> int:
        """Runs of an arm that were not handed out at this size or a larger one; ``None`` is whole."""
        return len(self._able(arm, flops))

    def nearest(self, model: str, rho: float, flops: float | None = None) -> int | None:
        """The arm nearest to (model, ρ) in logit with a run left at this size, of the same model first."""
        able = [i for i in range(len(self.grid.arms)) if self.left(i, flops)]
        return min(able, key=lambda i: self.grid.distance(i, model, rho), default=None)

    def run(self, arm: int, flops: float | None = None) -> PilotRecord:
        """A run of an arm, whole or stopped at the evaluation nearest to ``flops``; charged from its first step.

        A run that nobody has seen comes first; then the one that was stopped earliest.
        """
        index = min(self._able(arm, flops), key=lambda i: self._seen[arm][i])
        record: PilotRecord = self.grid.arms[arm].runs[index]
        end = _end(record, flops)
        self._seen[arm][index] = end
        record = cut(record, end) or record
        self.spent += record.flops.total
        return record

    def value(self, record: PilotRecord) -> float:
        """Final value of a run handed out."""
        return final(record, self.grid.target)

    def _able(self, arm: int, flops: float | None) -> list[int]:
        runs, seen = self.grid.arms[arm].runs, self._seen[arm]
        return [i for i in self._order[arm] if _end(runs[i], flops) > seen[i]]


def _end(record: PilotRecord, flops: float | None) -> float:
    """FLOPs at which a run asked for at this size ends."""
    points = np.array(points_of(record))
    return float(points[-1] if flops is None else points[np.abs(np.log(points / flops)).argmin()])
