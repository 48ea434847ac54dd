"""The what-if grid and the page's arithmetic: the surrogate's own numbers, and Python's own sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from browser import Page
from report_records import BUDGET, RUNGS, pilots

from race.allocation import size_run, solve_update_ratio, unit_costs
from race.errors import InvalidInput
from race.hardware import hardware_cost
from race.recipe import Recipe
from race.reports.page import asset
from race.reports.payload import hardware
from race.simulator import Settings
from surrogate import Surrogate
from surrogate.grid import LEVELS, what_if_grid


@pytest.fixture(scope="module")
def fitted() -> Surrogate:
    return Surrogate.fit(pilots(3), ladder=RUNGS, recipe=RUNGS.recipe("prm"), targets=["judge", "native"])


@pytest.fixture(scope="module")
def grid(fitted: Surrogate) -> Any:
    return what_if_grid(fitted, budget=BUDGET)


def test_every_listed_value_is_what_predict_says(fitted: Surrogate, grid: Any) -> None:
    rng = np.random.default_rng(0)
    there = np.argwhere(np.isfinite(grid.mean))
    for t, v, m, b, q in rng.permutation(there)[:12]:
        recipe, rung = grid.variants[v].recipe, grid.models[m]
        solved = recipe.with_update_ratio(solve_update_ratio(rung.architecture, recipe, grid.rhos[q]))
        found = fitted.predict(Settings.build([(rung, solved, grid.budgets[b])]), grid.targets[t])
        for mine, theirs in ((grid.mean, found.mean), (grid.lo, found.lo), (grid.hi, found.hi)):
            assert mine[t, v, m, b, q] == pytest.approx(float(theirs[0]), rel=1e-6, abs=1e-9)


def test_collapse_is_the_surrogates_own_under_every_reward(fitted: Surrogate, grid: Any) -> None:
    prm = next(i for i, kind in enumerate(grid.variants) if kind.reward == "prm")
    for v, m, b, q in ((prm, 0, 0, 4), (prm, 2, 2, 8), (0, 1, 1, 6)):
        rung, recipe = grid.models[m], grid.variants[v].recipe
        solved = recipe.with_update_ratio(solve_update_ratio(rung.architecture, recipe, grid.rhos[q]))
        risk = fitted.collapse_risk(Settings.build([(rung, solved, grid.budgets[b])]))
        assert grid.collapse[v, m, b, q] == pytest.approx(float(risk[0]), abs=1e-9)
    assert (np.isfinite(grid.collapse) == np.isfinite(grid.mean[0])).all()


def test_holes_are_exactly_the_settings_that_cannot_be_run(grid: Any) -> None:
    for v in (0, 4):
        for b, budget in enumerate(grid.budgets):
            for q, rho in enumerate(grid.rhos):
                arch, recipe = grid.models[0].architecture, grid.variants[v].recipe
                try:
                    size_run(arch, recipe, budget, rho=rho)
                    runs = True
                except InvalidInput:
                    runs = False
                assert np.isfinite(grid.mean[0, v, 0, b, q]) == runs


def test_every_reward_system_and_several_scorers_are_listed(grid: Any) -> None:
    kinds = [(v.reward, v.scorer) for v in grid.variants]
    assert {reward for reward, _ in kinds} == {"sparse", "structured", "dense", "proxy-prm", "prm"}
    assert len({scorer for reward, scorer in kinds if reward == "prm"}) == 3
    assert len(set(kinds)) == len(kinds)
    assert BUDGET in grid.budgets


def test_levels_go_from_fine_to_coarse() -> None:
    sizes = [len(rhos) * len(shares) for rhos, shares in LEVELS]
    assert sizes == sorted(sizes, reverse=True)


CASES = """
const out = [];
for (const c of arguments[0]) {
  const ratio = updateRatio(c.costs, c.recipe, c.rho);
  const plan = sizeRun(c.costs, c.recipe, ratio, c.budget);
  const cost = plan && hardwareCost(plan.flops, c.gpu, 3, arguments[1]);
  out.push({ ratio, plan, cost, range: rhoRange(c.costs, c.recipe) });
}
return out;
"""


def _case(recipe: Recipe, model: int, rho: float, budget: int, gpu: dict[str, Any]) -> dict[str, Any]:
    costs = unit_costs(RUNGS.models[model].architecture, recipe)
    return {
        "rho": rho,
        "budget": budget,
        "gpu": gpu,
        "recipe": {"prompts": recipe.prompts_per_step, "group": recipe.group_size},
        "costs": {
            "search": costs.search_group, "reward": costs.reward, "update": costs.update, "old": costs.old_logprobs,
            "reference": costs.reference, "all": costs.recompute_old_logprobs,
        },
    }  # fmt: skip


def test_the_pages_arithmetic_is_pythons(browser: Callable[..., Page]) -> None:
    rng = np.random.default_rng(1)
    table = hardware()
    recipes, cases = [], []
    for i in range(80):
        recipe = RUNGS.recipe(
            str(rng.choice(["sparse", "prm", "proxy-prm"])), kl=bool(i % 2), prefix_caching=bool(i % 3),
            recompute_old_logprobs=bool(i % 5 == 0), prompts_per_step=int(rng.integers(1, 40)),
            group_size=int(rng.integers(2, 20)), completion_tokens=float(rng.choice([800, 512.5])),
        )  # fmt: skip
        recipes.append(recipe)
        rho, budget = float(rng.uniform(0.15, 0.85)), int(10 ** rng.uniform(16, 21))
        cases.append(_case(recipe, i % 3, rho, budget, table["gpus"][i % len(table["gpus"])]))
    page = browser(None)
    found = page.js(asset("accounting.js") + CASES, cases, table)
    planned = 0
    for i, (recipe, case, got) in enumerate(zip(recipes, cases, found, strict=True)):
        arch = RUNGS.models[i % 3].architecture
        costs = unit_costs(arch, recipe)
        assert got["range"] == pytest.approx(costs.rho_range)
        assert got["ratio"] == pytest.approx(float(costs.update_ratio(case["rho"])))
        try:
            plan = size_run(arch, recipe, case["budget"], rho=case["rho"])
        except InvalidInput:
            continue
        planned += 1
        assert (got["plan"]["steps"], got["plan"]["last"]) == (plan.steps, plan.last_step_prompts)
        assert got["plan"]["samples"] == plan.samples
        assert got["plan"]["ratio"] == pytest.approx(plan.recipe.update_ratio)
        for phase, share in plan.flops.shares.items():
            assert got["plan"]["shares"][phase] == pytest.approx(share, abs=1e-12)
        cost = hardware_cost(plan.flops, case["gpu"]["name"], count=3)
        for mine, theirs in (("hours", cost.total_gpu_hours), ("wall", cost.wall_hours), ("kwh", cost.kwh)):
            assert got["cost"][mine] == pytest.approx(theirs.to_dict())
        if cost.dollars is None:
            assert got["cost"]["dollars"] is None
        else:
            assert got["cost"]["dollars"] == pytest.approx(cost.dollars.to_dict())
    assert planned > 40


def test_the_page_writes_numbers_as_python_does(browser: Callable[..., Page]) -> None:
    from race.reports.words import three
    from race.units import format_flops

    rng = np.random.default_rng(2)
    numbers = [float(x) for x in 10 ** rng.uniform(-6, 8, 300)] + [0.0, 0.9995, 0.09996, 999.6, 9.995, 1e6, 0.001]
    page = browser(None)
    said = page.js(asset("accounting.js") + "return arguments[0].map((x) => [three(x), formatFlops(x)]);", numbers)
    assert said == [[three(x), format_flops(x)] for x in numbers]
