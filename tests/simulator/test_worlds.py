from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from race.allocation import regime_of, unit_costs
from race.errors import CannotDo, InvalidInput
from race.ladders import Ladder
from race.records import PilotSpec
from race.simulator import Settings
from race.simulator.aliens import FAMILIES
from race.simulator.worlds import World, alien_worlds, own_worlds, world

NAMES = ["own-0", "own-17", *(f"alien-{family}-{i}" for family in FAMILIES for i in (0, 3))]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reward", ["sparse", "prm"])
def test_truth_is_the_brute_force_optimum(sizes: Ladder, name: str, reward: str) -> None:
    """Against an independent search: a dense even grid in rho over every model."""
    subject = world(name)
    recipe = sizes.recipe(reward)
    truth = subject.truth(sizes, recipe, 10**18)
    settings = Settings.grid(sizes, recipe, rhos=np.linspace(0.02, 0.98, 800), budgets=1e18)
    settings = settings[settings.feasible]
    values = subject.physics.expected(settings, "native")
    best = int(values.argmax())
    assert truth.value >= values[best] - 1e-9
    assert truth.value <= values[best] + 2e-3 * truth.range + 1e-9
    assert settings.params[best] == sizes[truth.model].params
    assert truth.lowest == pytest.approx(values.min(), abs=0.05 * truth.range)
    assert truth.regimes[0] == truth.regime
    low, high = truth.rho_band
    assert low - 1e-9 <= truth.rho <= high + 1e-9
    costs = unit_costs(sizes[truth.model].architecture, recipe)
    sigma, rho, phi = (float(x) for x in costs.shares(truth.update_ratio))
    assert truth.rho == pytest.approx(rho)
    assert truth.regime == regime_of(rho, sigma, phi)


@pytest.mark.parametrize("name", ["own-4", "alien-threshold-1"])
def test_regret_of_the_truth_is_nil_and_of_anything_else_is_not_negative(sizes: Ladder, name: str) -> None:
    recipe = sizes.recipe("prm")
    truth = world(name).truth(sizes, recipe, 10**18)
    assert truth.regret(truth) == pytest.approx(0, abs=1e-9)
    for model in sizes.models:
        for rho in (0.1, 0.3, 0.6, 0.8):
            decision = SimpleNamespace(model=model.name, rho=rho)
            assert 0 <= truth.regret(decision) <= truth.range + 1e-9
    plan = {
        "reward": "prm",
        "recommendation": {"model": truth.model, "rho": {"mean": truth.rho, "lo": 0, "hi": 1}},
    }
    assert truth.regret(plan) == pytest.approx(0, abs=1e-9)
    assert world(name).regret(plan, sizes, recipe, 10**18) == pytest.approx(0, abs=1e-9)


def test_a_run_that_rounding_moved_past_the_end_is_valued_at_the_end(sizes: Ladder) -> None:
    recipe = sizes.recipe("sparse")
    truth = world("own-4").truth(sizes, recipe, 10**18)
    low, high = unit_costs(sizes[truth.model].architecture, recipe).rho_range
    assert truth.value_at(truth.model, low - 1e-4) == pytest.approx(truth.value_at(truth.model, low))
    assert truth.value_at(truth.model, high + 1e-4) == pytest.approx(truth.value_at(truth.model, high))
    with pytest.raises(InvalidInput, match="no update ratio"):
        truth.value_at(truth.model, low - 0.05)


def test_truth_can_choose_among_reward_systems(sizes: Ladder) -> None:
    recipes = [sizes.recipe(r) for r in ("sparse", "prm")]
    subject = world("own-2")
    both = subject.truth(sizes, recipes, 10**18, "pass@1")
    alone = [subject.truth(sizes, r, 10**18, "pass@1") for r in recipes]
    assert both.value == max(t.value for t in alone)
    assert both.reward == max(alone, key=lambda t: t.value).reward
    assert both.regret({"model": alone[0].model, "rho": alone[0].rho, "reward": "sparse"}) == pytest.approx(
        both.value - alone[0].value, abs=1e-9
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_world_runs_pilots_like_any_runner(sizes: Ladder, name: str) -> None:
    model = sizes.models[0]
    spec = PilotSpec(model.name, model.params, sizes.recipe("dense"), 0.7, 10**17, 3, ("native", "judge"))
    record = world(name)(spec)
    assert record == world(name)(spec)
    assert record.provenance["world"] == name
    assert record.evidence == "simulated"
    for curve in record.curves.values():
        assert all(0 <= v <= 1 for v in curve.value)


def test_final_points_scatter_about_the_truth(sizes: Ladder) -> None:
    for name in ("own-17", "alien-ridge-2"):
        subject = world(name)
        recipe = sizes.recipe("sparse")
        truth = subject.truth(sizes, recipe, 10**18)
        model = sizes[truth.model]
        chosen = recipe.with_update_ratio(truth.update_ratio)
        records = [
            subject(PilotSpec(model.name, model.params, chosen, truth.rho, 10**18, seed))
            for seed in range(60)
        ]
        last = np.array([r.curves["native"].value[-1] for r in records if r.health.status == "ok"])
        assert last.mean() == pytest.approx(truth.value, abs=4 * last.std() / np.sqrt(len(last)) + 2e-3)


def test_families_are_alien_to_each_other_and_to_the_simulator(sizes: Ladder) -> None:
    """Their optima differ, and regimes of every kind occur."""
    recipe = {r: sizes.recipe(r) for r in ("sparse", "prm")}
    regimes = {w.truth(sizes, recipe[r], 10**18).regime for w in alien_worlds(24) for r in recipe}
    assert regimes == {"update-heavy", "search-heavy", "reward-heavy"}
    values = []
    for family in FAMILIES:
        table = Settings.sweep(
            sizes.models[1:2], recipe["sparse"], ratios=2.0 ** np.arange(-4, 5), budget=1e18
        )
        curve = world(f"alien-{family}-0").physics.expected(table, "native")
        values.append((curve - curve.min()) / np.ptp(curve))
    distances = [np.abs(a - b).max() for i, a in enumerate(values) for b in values[:i]]
    assert min(distances) > 0.1


def test_numbering_is_stable_and_lists_do_not_repeat() -> None:
    names = [w.name for w in (*own_worlds(5, start=3), *alien_worlds(9))]
    assert names[:5] == [f"own-{i}" for i in range(3, 8)]
    assert len(set(names)) == 14
    assert {n.split("-")[1] for n in names[5:]} == set(FAMILIES)
    draws = [subject.physics.parameters.values for subject in own_worlds(3)]  # type: ignore[attr-defined]
    assert len(np.unique(np.concatenate(draws), axis=0)) == 3


@pytest.mark.parametrize("name", ["own", "own--1", "alien-3", "alien-blob-3", "own-1\n", "own-١", ""])
def test_unknown_worlds_are_named(name: str) -> None:
    with pytest.raises(InvalidInput, match="world: found"):
        world(name)


def test_nonsense_decisions_and_budgets(sizes: Ladder) -> None:
    subject: World = world("own-1")
    with pytest.raises(CannotDo, match="budget"):
        subject.truth(sizes, sizes.recipe("sparse"), 1000)
    truth = subject.truth(sizes, sizes.recipe("sparse"), 10**18)
    with pytest.raises(InvalidInput, match="decision"):
        truth.regret({"model": truth.model})
    with pytest.raises(InvalidInput, match="reward"):
        truth.value_at(truth.model, 0.5, "prm")
    with pytest.raises(InvalidInput, match="model"):
        truth.value_at("gpt-2", 0.5)
    with pytest.raises(InvalidInput, match="rho"):
        truth.value_at(truth.model, 0.999)
