"""The slice a decision is made on: models x update fractions at one budget, and where each draw of it peaks.

Notation (shapes)
    S   joint draws        L   models that the budget pays a step of        Q   update fractions per model
    V   (S, L, Q) values of the draws
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from race.allocation import REGIMES, UnitCosts, unit_costs
from race.errors import CannotDo
from race.ladders import LadderModel
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.simulator import Settings
from race.units import format_flops
from surrogate.points import FloatArray, IntArray

POINTS = 31
# Update ratios at which the cost of learning has a kink (a second pass needs old log-probs, a third starts), so that
# optima like to sit exactly there: the grid points nearest to them are moved onto them.
KINKS = (1.0, 2.0)


@dataclass(frozen=True)
class Slice:
    """One budget's models x update fractions.

    ``rhos`` has shape (L, Q), increasing and even in logit over each range but for the points at `KINKS`, which
    ``kinks`` (L, Q) marks.
    """

    models: tuple[LadderModel, ...]
    costs: tuple[UnitCosts, ...]
    rhos: FloatArray
    kinks: np.ndarray
    settings: Settings
    affordable: np.ndarray
    left_out: tuple[str, ...]

    @classmethod
    def build(
        cls, models: Sequence[LadderModel], recipe: Recipe, budget: float, *, points: int = POINTS
    ) -> Slice:
        """Lay the grid out.

        Raises
        ------
        CannotDo
            The budget pays for no step of any model.
        """
        kept, costs, rhos, kinks, rows, left_out = [], [], [], [], [], []
        for model in models:
            price = unit_costs(model.architecture, recipe)
            ends = np.array(price.rho_range)
            low, high = np.log(ends / (1 - ends))
            logit = np.linspace(low, high, points)
            at = np.clip(1 / (1 + np.exp(-logit)), *ends)
            ratios = np.clip(price.update_ratio(at), MIN_UPDATE_RATIO, MAX_UPDATE_RATIO)
            nearest = [int(np.abs(np.log(ratios / kink)).argmin()) for kink in KINKS]
            ratios[nearest] = KINKS
            at[nearest] = price.rho(np.array(KINKS))
            part = Settings.build([(model, recipe.with_update_ratio(float(a)), 1) for a in ratios])
            if part.step_flops.min() > budget:
                left_out.append(
                    f"{model.name} is left out: one step takes at least {format_flops(part.step_flops.min())} FLOPs, "
                    "more than the budget"
                )
                continue
            kept.append(model)
            costs.append(price)
            rhos.append(at)
            kinks.append(np.isin(np.arange(points), nearest))
            rows.append(part.with_budget(float(budget)))
        if not kept:
            raise CannotDo(
                f"budget: found {format_flops(budget)} FLOPs, below one step of every model asked about; raise the "
                "budget, or lower prompts_per_step, group_size or the lengths"
            )
        settings = Settings.concat(rows)
        grid = np.array(rhos)
        return cls(
            tuple(kept), tuple(costs), grid, np.array(kinks), settings,
            (settings.step_flops <= budget).reshape(grid.shape), tuple(left_out),
        )  # fmt: skip

    def regimes(self, line: IntArray, rho: FloatArray) -> IntArray:
        """Index into `REGIMES` of settings with update fraction ``rho`` on model ``line`` (same shapes)."""
        scoring = np.array([c.reward / c.overhead for c in self.costs])[line]
        # Search and reward keep their ratio whatever rho is, so comparing shares is comparing `scoring` to half.
        low = np.where(1 - scoring >= scoring, REGIMES.index("search-heavy"), REGIMES.index("reward-heavy"))
        return np.where(rho >= 0.5, REGIMES.index("update-heavy"), low)

    def peaks(self, values: FloatArray) -> tuple[FloatArray, FloatArray, np.ndarray]:
        """Each model's peak in each draw: ``(rho, value, at an end)``, all (S, L), from V (S, L, Q).

        A parabola in logit rho through the neighbours of the highest grid point removes the grid's spacing from
        the spread of rho*. At a kink of the costs the peak stays where it is if the response rises up to it and falls
        from it, each side extrapolated to the kink from its own two intervals.
        """
        cube = np.where(self.affordable, values, -np.inf)
        at = cube.argmax(axis=2)
        last = np.where(self.affordable, np.arange(self.rhos.shape[1]), 0).max(axis=1)
        inner = (at > 0) & (at < last)
        logit = np.log(self.rhos / (1 - self.rhos))
        line = np.arange(len(self.rhos))
        sides = [np.clip(at + i, 0, last) for i in (-2, -1, 0, 1, 2)]
        far_below, below, top, above, far_above = (np.take_along_axis(cube, i[..., None], 2)[..., 0] for i in sides)
        far_left, left, middle, right, far_right = (logit[line, i] for i in sides)
        # Divided differences: slope and half the curvature at the middle of three uneven points.
        before, after = np.where(inner, middle - left, 1), np.where(inner, right - middle, 1)
        rise, fall = np.where(inner, top - below, 0) / before, np.where(inner, above - top, 0) / after
        bend = (fall - rise) / (before + after)
        slope = (rise * after + fall * before) / (before + after)
        beyond = (at > 1) & (at < last - 1)
        rising = rise + _steepening(beyond, below - far_below, left - far_left, rise, before)
        falling = fall + _steepening(beyond, far_above - above, far_right - right, fall, after)
        safe = inner & (bend < 0) & ~(self.kinks[line, at] & (rising > 0) & (falling < 0))
        shift = np.where(safe, -slope / np.where(safe, 2 * bend, -1), 0).clip(-before / 2, after / 2)
        place = middle + shift
        # A peak held over several grid points (values clipped at 1, or all equal) has no place of its own: take
        # the middle of the plateau.
        level = cube >= top[..., None] - 1e-12
        width = level.sum(axis=2)
        first, final = level.argmax(axis=2), level.shape[2] - 1 - level[..., ::-1].argmax(axis=2)
        centre = (logit[line, first] + logit[line, final]) / 2
        place = np.where(width > 1, centre, place)
        value = np.minimum(top + np.where(safe, (slope + bend * shift) * shift, 0), 1)
        return 1 / (1 + np.exp(-place)), value, ~inner & (width == 1)


def _steepening(
    known: np.ndarray, change: FloatArray, width: FloatArray, slope: FloatArray, near: FloatArray
) -> FloatArray:
    """Slope at the peak less the slope of the interval of width ``near`` beside it, from the interval beyond.

    ``change`` over ``width`` is the slope of the interval beyond; 0 where ``known`` is false.
    """
    safe = np.where(known, width, 1)
    following = np.where(known, change, 0) / safe
    return np.asarray(np.where(known, (slope - following) / (near + safe) * near, 0))
