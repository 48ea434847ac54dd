"""The slice a decision is made on: every model and reward system at the real budget, along the update fraction.

One `surrogate.slices.Slice` per reward system, asked for one joint draw at a time: reward systems share draws, so
that a comparison between them is a comparison within each possible truth.

Notation (shapes)
    S    joint posterior draws          L    lines: (reward, model) pairs whose single step the budget pays for
    Q    update fractions per line      V    values of a draw on the slice, (S, L * Q), line-major
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.space import PilotSpace
from race.allocation import REGIMES
from race.errors import CannotDo
from race.simulator import Settings
from surrogate.slices import POINTS, Slice

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Optima:
    """Where each joint draw has its optimum; every array has shape (S,).

    Attributes
    ----------
    line
        Index into `BudgetSlice.lines`.
    rho, value
        The optimum, refined between grid points.
    regime
        Index into `race.allocation.REGIMES`.
    edge
        True where the optimum lies at an end of the feasible range.
    """

    line: IntArray
    rho: FloatArray
    value: FloatArray
    regime: IntArray
    edge: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BudgetSlice:
    """All settings a decision chooses among.

    Attributes
    ----------
    space
        Models, recipes and the real budget.
    parts
        One slice per reward system that the budget pays for.
    rewards
        Their indices on the reward axis.
    left_out
        Plain words on each model and reward the budget cannot pay one step for.
    """

    space: PilotSpace
    parts: tuple[Slice, ...]
    rewards: tuple[int, ...]
    left_out: tuple[str, ...]

    @classmethod
    def build(cls, space: PilotSpace, *, points: int = POINTS) -> BudgetSlice:
        """Lay the grid out.

        Raises
        ------
        CannotDo
            The budget pays for no step of any model under any reward system.
        """
        parts, rewards, left_out = [], [], []
        for index, recipe in enumerate(space.recipes):
            try:
                part = Slice.build(space.models, recipe, space.budget, points=points)
            except CannotDo as error:
                left_out.append(f"reward {recipe.reward} is left out: {error}")
                continue
            parts.append(part)
            rewards.append(index)
            left_out.extend(f"{note} (reward {recipe.reward})" for note in part.left_out)
        if not parts:
            raise CannotDo("; ".join(left_out).removeprefix(f"reward {space.rewards[0]} is left out: "))
        return cls(space, tuple(parts), tuple(rewards), tuple(left_out))

    @cached_property
    def lines(self) -> tuple[tuple[int, int], ...]:
        """(reward index, model index) of every line."""
        rung = {model.name: index for index, model in enumerate(self.space.models)}
        return tuple(
            (reward, rung[model.name])
            for reward, part in zip(self.rewards, self.parts, strict=True)
            for model in part.models
        )

    @cached_property
    def rhos(self) -> FloatArray:
        """Update fractions, shape (L, Q), increasing along each line and even in logit."""
        return np.concatenate([part.rhos for part in self.parts])

    @cached_property
    def affordable(self) -> npt.NDArray[np.bool_]:
        """True where the budget pays for one step at that update fraction; shape (L, Q)."""
        return np.concatenate([part.affordable for part in self.parts])

    @cached_property
    def settings(self) -> Settings:
        """Every setting at the real budget, line-major; shape (L * Q,)."""
        return Settings.concat([part.settings for part in self.parts])

    def best(self, values: FloatArray) -> tuple[int, int, float]:
        """(line, point, rho) of the greatest mean over the draws V, which minimises expected regret.

        ``rho`` is refined between grid points, ``point`` is the nearest one.
        """
        mean = values.mean(axis=0)
        cube = np.where(self.affordable, mean.reshape(self.rhos.shape), -np.inf)
        line, point = np.unravel_index(int(cube.argmax()), cube.shape)
        found = self.optima(mean[None])
        same = int(found.line[0]) == line
        return int(line), int(point), float(found.rho[0] if same else self.rhos[line, point])

    def optima(self, values: FloatArray) -> Optima:
        """Optimum of every draw of V, over all lines."""
        cube = values.reshape(len(values), *self.rhos.shape)
        rhos, peaks, regimes, edges = [], [], [], []
        start = 0
        for part in self.parts:
            stop = start + len(part.rhos)
            rho, peak, edge = part.peaks(cube[:, start:stop])
            line = np.broadcast_to(np.arange(len(part.rhos)), rho.shape)
            rhos.append(rho)
            peaks.append(peak)
            edges.append(edge)
            regimes.append(part.regimes(line, rho))
            start = stop
        value = np.concatenate(peaks, axis=1)
        line, draw = value.argmax(axis=1), np.arange(len(value))
        rho, regime, edge = (np.concatenate(x, axis=1)[draw, line] for x in (rhos, regimes, edges))
        return Optima(line, rho, value[draw, line], regime, edge)


def regime_probabilities(optima: Optima) -> dict[str, float]:
    """Share of draws whose optimum lies in each regime."""
    counts = np.bincount(optima.regime, minlength=len(REGIMES))
    return {name: float(count / counts.sum()) for name, count in zip(REGIMES, counts, strict=True)}
