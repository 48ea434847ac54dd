from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.sizing import MIN_SPENT, size_to_budget
from race.allocation import step_allocation, unit_costs
from race.errors import CannotDo
from race.ladders import ladder

RUNGS = ladder("qwen2.5")


@given(
    model=st.integers(0, 2),
    reward=st.sampled_from(["sparse", "dense", "proxy-prm", "prm"]),
    steps=st.floats(1.0, 400),
    where=st.floats(0.05, 0.95),
    prompts=st.integers(1, 8),
    group=st.sampled_from([2, 4, 8]),
)
@settings(max_examples=150, deadline=None)
def test_never_above_the_budget_and_at_least_97_percent(
    model: int, reward: str, steps: float, where: float, prompts: int, group: int
) -> None:
    arch = RUNGS.models[model].architecture
    recipe = RUNGS.recipe(reward, prompts_per_step=prompts, group_size=group)
    low, high = unit_costs(arch, recipe).rho_range
    rho = low + where * (high - low)
    one = step_allocation(arch, recipe.with_update_ratio(float(unit_costs(arch, recipe).update_ratio(rho)))).total
    budget = int(one * steps)
    assume(budget >= one)
    sized = size_to_budget(arch, recipe, budget, rho=rho)
    assert sized.plan.flops.total <= budget
    if sized.plan.flops.total < MIN_SPENT * budget:
        # A few samples a step leave no room to move the update ratio within the first steps; then it is said. Of 32
        # samples each one is still more than 3 % of what a step trains on.
        assert recipe.samples_per_step <= 32
        assert steps < 40
        assert "% of the budget can be spent" in sized.note
    if steps > 40:
        wanted = float(unit_costs(arch, recipe).update_ratio(rho))
        assert abs(sized.plan.recipe.update_ratio - wanted) <= 1 / recipe.samples_per_step
        assert not sized.note


def test_a_budget_of_a_few_steps_says_what_was_moved() -> None:
    arch = RUNGS.models[0].architecture
    recipe = RUNGS.recipe("sparse", group_size=32, prompts_per_step=1)
    budget = int(1.5 * step_allocation(arch, recipe).total)
    sized = size_to_budget(arch, recipe, budget, rho=float(unit_costs(arch, recipe).rho(1.0)))
    assert sized.plan.flops.total >= MIN_SPENT * budget
    assert "only 2 steps" in sized.note


def test_a_budget_below_every_step_is_refused() -> None:
    arch = RUNGS.models[2].architecture
    with pytest.raises(CannotDo, match="below one step of this recipe"):
        size_to_budget(arch, RUNGS.recipe("prm"), 10**12, rho=0.4)
