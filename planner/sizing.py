"""The recommended recipe: sized so that it spends at least 97 % of the budget and never more than all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from race.allocation import RunPlan, size_run, solve_update_ratio, trained_samples, unit_costs
from race.errors import CannotDo, InvalidInput
from race.flops import Architecture
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.units import format_flops

MIN_SPENT = 0.97


@dataclass(frozen=True)
class Sized:
    """A run plan, and the update fraction it really has after rounding to whole samples."""

    plan: RunPlan
    note: str = ""

    @property
    def rho(self) -> float:
        """Update fraction of the whole run."""
        return self.plan.flops.rho


def size_to_budget(arch: Architecture, recipe: Recipe, budget: int, *, rho: float) -> Sized:
    """The run nearest to ``rho`` that spends at least 97 % of ``budget``.

    Budgets of many steps are filled by whole steps and one smaller step. When the budget is only a few steps, what
    is left over can be more than 3 %; then the number of trained samples per step is moved, the nearest first, until
    the rest is used. A recipe of a few samples per step can be too coarse even for that, within its first steps; then
    the fullest run is returned, and its note says how full.

    Raises
    ------
    CannotDo
        The budget pays for no step at any update ratio.
    """
    wanted = solve_update_ratio(arch, recipe, rho)
    generated = recipe.samples_per_step
    start = trained_samples(wanted, generated)
    low, high = math.ceil(generated * MIN_UPDATE_RATIO), math.floor(generated * MAX_UPDATE_RATIO)
    best: RunPlan | None = None
    for trained in sorted(range(low, high + 1), key=lambda n: (abs(n - start), n)):
        try:
            plan = size_run(arch, recipe.with_update_ratio(trained / generated), budget)
        except InvalidInput:  # this many trained samples make one step dearer than the budget; fewer may fit
            continue
        if best is None or plan.flops.total > best.flops.total:
            best = plan
        if plan.flops.total >= MIN_SPENT * budget:
            best = plan
            break
    if best is None:
        step = unit_costs(arch, recipe).step(recipe.prompts_per_step, low).total
        raise CannotDo(
            f"budget: found {format_flops(budget)} FLOPs, below one step of this recipe at any update ratio (at least "
            f"{format_flops(step)} FLOPs); raise the budget, or lower prompts_per_step, group_size or the lengths"
        )
    return Sized(best, _remark(best, wanted))


def _remark(plan: RunPlan, wanted: float) -> str:
    spent = plan.flops.total / plan.budget
    if spent < MIN_SPENT:
        return (
            f"only {spent:.0%} of the budget can be spent in whole samples of this recipe; fewer prompts per step or "
            "shorter completions would use the rest"
        )
    if abs(plan.recipe.update_ratio - wanted) <= max(1 / plan.recipe.samples_per_step, 0.1 * wanted):
        return ""
    return (
        f"the budget is only {plan.steps} step{'s' if plan.steps > 1 else ''} of this recipe, so the update ratio was "
        f"moved from {wanted:.3g} to {plan.recipe.update_ratio:.3g} to use it; fewer prompts per step would follow "
        "the plan more closely"
    )
