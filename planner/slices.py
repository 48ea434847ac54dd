"""The slice a decision is made on: every model and reward system at the real budget, along the update fraction.

Notation (shapes)
    S    joint posterior draws          L    lines: (reward, model) pairs whose single step the budget pays for
    Q    update fractions per line      V    values of a draw on the slice, (S, L * Q), line-major
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.space import Cell, PilotSpace
from race.allocation import REGIMES
from race.errors import CannotDo
from race.simulator import Settings
from race.units import format_flops

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

POINTS_PER_LINE = 31


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
    """

    line: IntArray
    rho: FloatArray
    value: FloatArray
    regime: IntArray


@dataclass(frozen=True)
class BudgetSlice:
    """All settings a decision chooses among.

    Attributes
    ----------
    space
        Models, recipes and the real budget.
    lines
        (reward index, model index) pairs that fit the budget.
    rhos
        Update fractions, shape (L, Q), increasing along each line and even in logit.
    left_out
        Plain words on each pair the budget cannot pay one step for.
    """

    space: PilotSpace
    lines: tuple[tuple[int, int], ...]
    rhos: FloatArray
    left_out: tuple[str, ...]

    @classmethod
    def build(cls, space: PilotSpace, *, points: int = POINTS_PER_LINE) -> BudgetSlice:
        """Lay the grid out.

        Raises
        ------
        CannotDo
            The budget pays for no step of any model.
        """
        lines, rhos, left_out = [], [], []
        for reward in range(len(space.recipes)):
            for model, rung in enumerate(space.models):
                at = space.rhos(model, reward, np.linspace(0, 1, points))
                cheapest = space.step_flops(Cell(model, reward, 0, float(at[0])))
                if cheapest > space.budget:
                    left_out.append(
                        f"{rung.name} is left out: one step of it under reward {space.rewards[reward]} takes at "
                        f"least {format_flops(cheapest)} FLOPs, more than the budget"
                    )
                    continue
                lines.append((reward, model))
                rhos.append(at)
        if not lines:
            raise CannotDo(
                f"budget: found {format_flops(space.budget)} FLOPs, below one step of every model on the ladder; "
                "raise the budget, or lower prompts_per_step, group_size or the lengths"
            )
        return cls(space, tuple(lines), np.array(rhos), tuple(left_out))

    @cached_property
    def affordable(self) -> npt.NDArray[np.bool_]:
        """True where the budget pays for one step at that update fraction; shape (L, Q)."""
        return np.array([
            [
                self.space.step_flops(Cell(model, reward, 0, float(rho))) <= self.space.budget
                for rho in self.rhos[line]
            ]
            for line, (reward, model) in enumerate(self.lines)
        ])

    @cached_property
    def settings(self) -> Settings:
        """Every setting at the real budget, line-major; shape (L * Q,)."""
        cells = [
            Cell(model, reward, 0, float(rho))
            for line, (reward, model) in enumerate(self.lines)
            for rho in self.rhos[line]
        ]
        return self.space.settings(cells, self.space.budget)

    def shares(self, line: int, rho: npt.ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``(sigma, rho, phi)`` of a line at update fractions ``rho`` (broadcasts)."""
        reward, model = self.lines[line]
        costs = self.space.costs[reward][model]
        rho = np.asarray(rho, dtype=np.float64)
        scoring = costs.reward / costs.overhead
        return (1 - rho) * (1 - scoring), rho, (1 - rho) * scoring

    def optima(self, values: FloatArray) -> Optima:
        """Optimum of every draw: argmax over the slice, refined by a parabola in logit rho through the
        neighbours, which removes the grid's spacing from the spread of rho*.

        Parameters
        ----------
        values
            V, shape (S, L * Q).
        """
        draws = values.shape[0]
        cube = np.where(self.affordable, values.reshape(draws, *self.rhos.shape), -np.inf)
        flat = cube.reshape(draws, -1).argmax(axis=1)
        line, at = np.divmod(flat, self.rhos.shape[1])
        rho, value = self._refined(cube, line, at)
        regime = np.empty(draws, dtype=np.int64)
        for index in np.unique(line):
            mine = line == index
            sigma, fraction, phi = self.shares(int(index), rho[mine])
            # REGIMES order: search-heavy, update-heavy, reward-heavy (DESIGN section 2).
            regime[mine] = np.where(fraction >= 0.5, 1, np.where(sigma >= phi, 0, 2))
        return Optima(line, rho, value, regime)

    def _refined(self, cube: FloatArray, line: IntArray, at: IntArray) -> tuple[FloatArray, FloatArray]:
        draw = np.arange(len(line))
        last = self.rhos.shape[1] - 1
        left, right = np.maximum(at - 1, 0), np.minimum(at + 1, last)
        below, top, above = cube[draw, line, left], cube[draw, line, at], cube[draw, line, right]
        with np.errstate(invalid="ignore", divide="ignore"):
            shift = 0.5 * (below - above) / (below - 2 * top + above)
        inner = (at > 0) & (at < last) & np.isfinite(shift)
        shift = np.where(inner, np.clip(shift, -0.5, 0.5), 0.0)
        logit = np.log(self.rhos / (1 - self.rhos))
        spacing = (logit[:, -1] - logit[:, 0]) / last
        rho = 1 / (1 + np.exp(-(logit[line, at] + shift * spacing[line])))
        gain = np.where(inner, 0.25 * (above - below) * shift, 0.0)
        return rho, np.minimum(top + gain, 1.0)


def regime_probabilities(optima: Optima) -> dict[str, float]:
    """Share of draws whose optimum lies in each regime."""
    counts = np.bincount(optima.regime, minlength=len(REGIMES))
    return {name: float(count / counts.sum()) for name, count in zip(REGIMES, counts, strict=True)}

