from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spine_strategies import ratios, recipes, small_arch

from race.allocation import (
    REGIMES,
    Allocation,
    allocation_from_dict,
    regime_of,
    size_run,
    solve_update_ratio,
    step_allocation,
    trained_samples,
    unit_costs,
)
from race.errors import InvalidInput
from race.flops import Architecture, cost_functions
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe

ARCH = small_arch()
QWEN = Architecture.from_config("qwen2.5-1.5b")
whole = st.integers(1, 2048)
flops = st.integers(0, 10**30)
# A tiny PRM would make every phase visible; the built-in 7B one dwarfs a tiny policy, so both are drawn.
archs = st.sampled_from([ARCH, QWEN])


def without_missing_models(recipe: Recipe) -> Recipe:
    """Score with a model of the built-in table whatever the reward system's default is."""
    return recipe if recipe.reward_model is None else replace(recipe, reward_model="qwen2.5-0.5b")


recipes_ = recipes().map(without_missing_models)
int_recipes = recipes(whole).map(without_missing_models)


@given(flops, flops, flops)
def test_shares_sum_to_one_and_phases_to_the_total(s: int, u: int, r: int) -> None:
    assume(s + u + r > 0)
    allocation = Allocation(s, u, r)
    assert allocation.total == s + u + r
    assert sum(allocation.shares.values()) == pytest.approx(1)
    assert (allocation.sigma, allocation.rho, allocation.phi) == tuple(allocation.shares.values())
    assert all(0 <= share <= 1 for share in allocation.shares.values())
    assert allocation + allocation == allocation * 2
    assert allocation_from_dict(allocation.to_dict(), where="flops") == allocation


@given(archs, recipes_, ratios)
def test_the_round_trip_from_a_to_rho_and_back_is_exact(arch: Architecture, recipe: Recipe, a: float) -> None:
    costs = unit_costs(arch, recipe)
    rho = float(costs.rho(a))
    assert 0 < rho < 1
    # rho -> a amplifies rounding by da/drho, which grows as rho -> 1; compare where it is well conditioned.
    assert float(costs.rho(costs.update_ratio(rho))) == pytest.approx(rho, rel=1e-12)
    if rho < 0.999:
        assert solve_update_ratio(arch, recipe, rho) == pytest.approx(a, rel=1e-9)


@given(archs, recipes_)
def test_rho_rises_with_a_and_the_kinks_are_continuous(arch: Architecture, recipe: Recipe) -> None:
    costs = unit_costs(arch, recipe)
    grid = np.unique(np.concatenate([np.geomspace(MIN_UPDATE_RATIO, MAX_UPDATE_RATIO, 200), [1.0, 2.0]]))
    learning = costs.learning(grid)
    assert np.all(np.diff(learning) > 0)
    assert np.all(np.diff(costs.rho(grid)) >= 0)
    for kink in (1.0, 2.0):
        left, right = costs.learning([kink - 1e-9, kink + 1e-9])
        assert left == pytest.approx(right, rel=1e-7)
    assert costs.rho_range == (float(costs.rho(MIN_UPDATE_RATIO)), float(costs.rho(MAX_UPDATE_RATIO)))


@given(archs, recipes_, st.lists(ratios, min_size=1, max_size=5))
def test_arrays_and_scalars_agree(arch: Architecture, recipe: Recipe, grid: list[float]) -> None:
    costs = unit_costs(arch, recipe)
    rho = costs.rho(grid)
    assert rho.shape == (len(grid),)
    assert [float(costs.rho(a)) for a in grid] == pytest.approx(rho.tolist(), rel=1e-15)
    assert [float(costs.update_ratio(r)) for r in rho] == costs.update_ratio(rho).tolist()
    sigma, again, phi = costs.shares(grid)
    np.testing.assert_allclose(sigma + again + phi, 1)
    np.testing.assert_array_equal(again, rho)


@given(archs, int_recipes)
def test_a_step_with_whole_lengths_is_an_exact_int_with_the_shares_of_its_unit_costs(
    arch: Architecture, recipe: Recipe
) -> None:
    step = step_allocation(arch, recipe)
    assert all(type(v) is int for v in (step.search, step.learning, step.reward))
    trained = trained_samples(recipe.update_ratio, recipe.samples_per_step)
    sigma, rho, phi = unit_costs(arch, recipe).shares(trained / recipe.samples_per_step)
    assert (step.sigma, step.rho, step.phi) == pytest.approx(
        (float(sigma), float(rho), float(phi)), rel=1e-9, abs=1e-15
    )


@given(int_recipes)
def test_a_step_is_what_its_passes_cost(recipe: Recipe) -> None:
    """Recount one step sample by sample, from the passes themselves."""
    c = cost_functions(ARCH, lora=recipe.lora, gradient_checkpointing=recipe.gradient_checkpointing)
    p, k = recipe.prompt_tokens, recipe.completion_tokens
    generated = recipe.samples_per_step
    trained = trained_samples(recipe.update_ratio, generated)
    prefills = recipe.prompts_per_step * (1 if recipe.prefix_caching else recipe.group_size)
    learning = trained * c.update(p + k, logits=k)
    # Old log-probs once for every sample trained on again, or for every distinct one if the trainer insists; a
    # reference for every distinct one if beta > 0.
    old = (
        min(trained, generated)
        if recipe.recompute_old_logprobs
        else min(max(trained - generated, 0), generated)
    )
    learning += old * c.forward(p + k, logits=k)
    if recipe.kl:
        learning += min(trained, generated) * c.forward_base(p + k, logits=k)
    reward = 0
    if recipe.reward_model is not None:
        scorer = cost_functions(Architecture.from_config(recipe.reward_model), lora=None)
        reward = generated * scorer.forward(p + k, logits=p + k)
    assert step_allocation(ARCH, recipe) == Allocation(
        search=prefills * c.prefill(p) + generated * c.decode(p, k), learning=learning, reward=reward
    )


@given(archs, recipes_, st.floats(1, 1e9) | st.floats(1, 20))
def test_a_sized_run_never_exceeds_its_budget_and_leaves_less_than_one_more_group(
    arch: Architecture, recipe: Recipe, times: float
) -> None:
    budget = int(step_allocation(arch, recipe).total * times) + 1
    assume(budget <= 10**30)
    try:
        plan = size_run(arch, recipe, budget)
    except InvalidInput:
        # Putting a on whole samples within [1/16, 16] may make the step a few samples dearer.
        assume(times >= 2)
        raise
    assert plan.flops.total <= plan.budget == budget
    assert plan.steps >= 1
    assert 0 <= plan.last_step_prompts < plan.recipe.prompts_per_step
    trained = plan.recipe.update_ratio * plan.recipe.samples_per_step
    assert trained == pytest.approx(round(trained), abs=1e-6)
    assert MIN_UPDATE_RATIO <= plan.recipe.update_ratio <= MAX_UPDATE_RATIO
    group = unit_costs(arch, plan.recipe).step(1, max(1, math.ceil(trained / plan.recipe.prompts_per_step)))
    assert (
        budget - plan.flops.total < group.total * (1 + 1e-9)
        or plan.last_step_prompts == plan.recipe.prompts_per_step - 1
    )
    assert (
        plan.samples
        == (plan.steps * plan.recipe.prompts_per_step + plan.last_step_prompts) * plan.recipe.group_size
    )


@given(archs, recipes_, st.floats(0.05, 0.95))
def test_sizing_at_a_rho_gets_it_up_to_whole_samples(arch: Architecture, recipe: Recipe, rho: float) -> None:
    lo, hi = unit_costs(arch, recipe).rho_range
    assume(lo <= rho <= hi)
    a = solve_update_ratio(arch, recipe, rho)
    budget = int(step_allocation(arch, recipe.with_update_ratio(a)).total) * 60
    assume(budget <= 10**30)
    plan = size_run(arch, recipe, budget, rho=rho)
    step = 1 / plan.recipe.samples_per_step  # one sample more or less
    bounds = unit_costs(arch, recipe).rho(np.clip([a - step, a + step], MIN_UPDATE_RATIO, MAX_UPDATE_RATIO))
    assert bounds[0] - 1e-9 <= plan.step.rho <= bounds[1] + 1e-9


@pytest.mark.parametrize("rho", [0, 1, -0.1, 1.5, float("nan"), float("inf"), True, None, "0.5"])
def test_rho_outside_zero_one(rho: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^rho: found .*strictly between 0 and 1"):
        solve_update_ratio(QWEN, Recipe("sparse"), rho)


def test_an_infeasible_rho_gives_the_feasible_range() -> None:
    recipe = Recipe("prm")
    with pytest.raises(
        InvalidInput, match=r"^rho: found 0\.99, which needs update ratio a = \d+.*allowed is rho from"
    ) as e:
        solve_update_ratio(QWEN, recipe, 0.99)
    lo, hi = unit_costs(QWEN, recipe).rho_range
    # What the message allows is allowed: its bounds are rounded inwards.
    found = re.search(r"allowed is rho from (\S+) to (\S+)", str(e.value))
    assert found is not None
    assert lo <= float(found[1]) < lo + 0.001
    assert hi - 0.001 < float(found[2]) <= hi
    # Both ends of the range are themselves feasible.
    assert solve_update_ratio(QWEN, recipe, lo) == pytest.approx(MIN_UPDATE_RATIO)
    assert solve_update_ratio(QWEN, recipe, hi) == pytest.approx(MAX_UPDATE_RATIO)


def test_a_budget_below_one_step_says_what_one_step_costs() -> None:
    with pytest.raises(
        InvalidInput, match=r"^budget: found 1e6 FLOPs, below one step of this recipe \(.*e\d+ FLOPs\)"
    ):
        size_run(QWEN, Recipe("sparse"), 10**6)


def test_costs_move_the_way_the_words_say() -> None:
    base = Recipe("sparse")
    costs = unit_costs(QWEN, base)
    kl = unit_costs(QWEN, replace(base, kl=True))
    full = unit_costs(QWEN, replace(base, lora=None))
    repeated = unit_costs(QWEN, replace(base, prefix_caching=False))
    checkpointed = unit_costs(QWEN, replace(base, gradient_checkpointing=True))
    prm = unit_costs(QWEN, Recipe("prm"))
    assert costs.reference == 0 < kl.reference
    assert kl.reference < kl.old_logprobs  # the adapter is off in a reference pass
    recomputed = unit_costs(QWEN, replace(base, recompute_old_logprobs=True))
    assert recomputed.rho(1.0) > costs.rho(1.0)
    assert recomputed.rho(2.0) == costs.rho(2.0)  # every sample is used again: both need all old log-probs
    assert full.update > costs.update  # frozen weights get no weight gradients
    assert repeated.search_group > costs.search_group
    assert checkpointed.update > costs.update
    assert prm.reward > 0 == costs.reward
    assert prm.rho(1.0) < costs.rho(1.0)
    assert unit_costs(QWEN, base, attention="full").update > costs.update


def test_nothing_spent_has_no_shares() -> None:
    assert all(math.isnan(share) for share in Allocation(0, 0, 0).shares.values())


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_every_optimum_has_one_regime(a: float, b: float, c: float) -> None:
    assume(a + b + c > 0)
    sigma, rho, phi = (x / (a + b + c) for x in (a, b, c))
    regime = regime_of(rho, sigma, phi)
    assert regime in REGIMES
    assert (regime == "update-heavy") == (rho >= 0.5)
    if rho < 0.5:
        assert (regime == "reward-heavy") == (phi > sigma)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, None, "1e18", 10**400, 2e31])
@pytest.mark.parametrize("phase", ["search", "learning", "reward"])
def test_phases_read_back_are_checked_by_name(phase: str, value: Any) -> None:
    data = {"search": 1, "learning": 1, "reward": 0, phase: value}
    with pytest.raises(InvalidInput, match=rf"^record\.flops\.{phase}: found .*allowed is a number of FLOPs"):
        allocation_from_dict(data, where="record.flops")
