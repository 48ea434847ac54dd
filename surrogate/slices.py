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
from race.ladder import LadderModel
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.simulator import Settings
from race.units import format_flops
from surrogate.points import FloatArray, IntArray

POINTS = 31


@dataclass(frozen=True)
class Slice:
    """One budget's models x update fractions; ``rhos`` has shape (L, Q), even in logit over each range."""

    models: tuple[LadderModel, ...]
    costs: tuple[UnitCosts, ...]
    rhos: FloatArray
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
        kept, costs, rhos, rows, left_out = [], [], [], [], []
        for model in models:
            price = unit_costs(model.architecture, recipe)
            ends = np.array(price.rho_range)
            low, high = np.log(ends / (1 - ends))
            logit = np.linspace(low, high, points)
            at = np.clip(1 / (1 + np.exp(-logit)), *ends)
            ratios = np.clip(price.update_ratio(at), MIN_UPDATE_RATIO, MAX_UPDATE_RATIO)
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
            rows.append(part.with_budget(float(budget)))
        if not kept:
            raise CannotDo(
                f"budget: found {format_flops(budget)} FLOPs, below one step of every model asked about; raise the "
                "budget, or lower prompts_per_step, group_size or the lengths"
            )
        settings = Settings.concat(rows)
        grid = np.array(rhos)
        return cls(
            tuple(kept), tuple(costs), grid, settings,
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
        the spread of rho*.
        """
        cube = np.where(self.affordable, values, -np.inf)
        at = cube.argmax(axis=2)
        last = np.where(self.affordable, np.arange(self.rhos.shape[1]), 0).max(axis=1)
        inner = (at > 0) & (at < last)

        def pick(index: IntArray) -> FloatArray:
            return np.take_along_axis(cube, np.clip(index, 0, last)[..., None], axis=2)[..., 0]

        below, top, above = pick(at - 1), pick(at), pick(at + 1)
        bend = below - 2 * top + above
        safe = inner & (bend < 0)
        shift = np.where(safe, 0.5 * (below - above) / np.where(safe, bend, -1), 0).clip(-0.5, 0.5)
        logit = np.log(self.rhos / (1 - self.rhos))
        spacing = (logit[:, -1] - logit[:, 0]) / (self.rhos.shape[1] - 1)
        place = logit[np.arange(len(self.rhos)), at] + shift * spacing
        # A peak held over several grid points (values clipped at 1, or all equal) has no place of its own: take
        # the middle of the plateau.
        level = cube >= top[..., None] - 1e-12
        width = level.sum(axis=2)
        centre = np.where(level, logit, 0).sum(axis=2) / width
        place = np.where(width > 1, centre, place)
        value = np.minimum(top - np.where(safe, 0.25 * (below - above) * shift, 0), 1)
        return 1 / (1 + np.exp(-place)), value, ~inner & (width == 1)
