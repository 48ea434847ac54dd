"""The recommended recipe: sized so that it spends at least 97 % of the budget and never more than all of it."""

from __future__ import annotations

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
    the rest is used.

    Raises
    ------
    CannotDo
        No update ratio fills the budget.
    """
    wanted = solve_update_ratio(arch, recipe, rho)
    generated = recipe.samples_per_step
    start = trained_samples(wanted, generated)
    low, high = -(-generated * MIN_UPDATE_RATIO // 1), generated * MAX_UPDATE_RATIO // 1
    best: RunPlan | None = None
    for trained in sorted(range(int(low), int(high) + 1), key=lambda n: (abs(n - start), n)):
        try:
            plan = size_run(arch, recipe.with_update_ratio(trained / generated), budget)
        except InvalidInput:  # this many trained samples make one step dearer than the budget; fewer may fit
            continue
        if plan.flops.total >= MIN_SPENT * budget:
            best = plan
            break
    if best is None:
        step = unit_costs(arch, recipe).step(recipe.prompts_per_step, start).total
        raise CannotDo(
            f"budget: found {format_flops(budget)} FLOPs, {budget / step:.2f} steps of {format_flops(step)}, and no "
            "update ratio fills it to 97 %; lower prompts_per_step or group_size"
        )
    off = abs(best.recipe.update_ratio - wanted)
    if off <= max(1 / generated, 0.1 * wanted):
        return Sized(best)
    return Sized(
        best,
        f"the budget is only {best.steps} step{'s' if best.steps > 1 else ''} of this recipe, so the update ratio was "
        f"moved from {wanted:.3g} to {best.recipe.update_ratio:.3g} to use it; fewer prompts per step would follow "
        "the plan more closely",
    )
