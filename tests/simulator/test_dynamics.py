"""Physics of the simulator: limits, monotonicities, what costs do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from race.errors import InvalidInput
from race.ladders import Ladder, ladder
from race.rewards import REWARD_SYSTEMS
from race.simulator import Settings, Worlds, collapse_probability, simulate, simulate_curves

TARGETS = ("native", "pass@1", "judge", "pass@1:gsm8k", "pass@1:math500")
ALL_REWARDS = tuple(REWARD_SYSTEMS)


def one(model: int = 2, budget: float = 1e18, reward: str = "sparse", **changes: object) -> Settings:
    sizes = ladder()
    return Settings.build([(sizes.models[model], sizes.recipe(reward, **changes), int(budget))])


@pytest.mark.parametrize("reward", ALL_REWARDS)
def test_values_are_probabilities_at_extreme_settings(sizes: Ladder, ensemble: Worlds, reward: str) -> None:
    rows = [
        (
            model,
            sizes.recipe(reward, update_ratio=a, learning_rate=lr, group_size=g, prompts_per_step=p),
            budget,
        )
        for model in (sizes.models[0], sizes.models[2])
        for a in (1 / 16, 1.0, 16.0)
        for lr in (1e-4, 1.0, 1e4)
        for g, p in ((2, 1), (1024, 4096))
        for budget in (1, 10**14, 10**20, 10**30)
    ]
    table = Settings.build(rows)
    worlds = Worlds(np.concatenate([ensemble.values[:24], Worlds.uncalibrated(24, seed=5).values]))
    with np.errstate(all="raise", under="ignore"):
        for values in simulate(worlds, table, targets=TARGETS).values():
            assert values.shape == (48, len(rows))
            assert np.all((values >= 0) & (values <= 1))
        collapse = collapse_probability(worlds, table)
    assert np.all((collapse >= 0) & (collapse <= 1))


def test_a_budget_of_nothing_leaves_the_base_model(sizes: Ladder, ensemble: Worlds) -> None:
    tiny = one(budget=1)
    base = simulate_curves(ensemble, one(), points=[0.0], targets=TARGETS)
    for target, values in simulate(ensemble, tiny, targets=TARGETS).items():
        assert np.allclose(values[:, 0], base.values[target][:, 0, 0], atol=1e-9)


def test_the_last_point_of_a_curve_is_the_final_value(ensemble: Worlds) -> None:
    table = Settings.concat([one(reward=r, budget=b) for r in ALL_REWARDS for b in (1e15, 1e18)])
    final = simulate(ensemble, table)
    curves = simulate_curves(ensemble, table, points=5)
    assert np.array_equal(curves.flops[:, -1], table.budget)
    for target, values in final.items():
        assert np.allclose(curves.values[target][:, :, -1], values, atol=1e-12)


def test_a_curve_passes_where_shorter_runs_end(ensemble: Worlds) -> None:
    """The state at half the budget is that of a run with half the budget: integration error stays below noise."""
    table = one(budget=1e18)
    half = simulate(ensemble, table.with_budget(5e17), targets=("native",))["native"]
    along = simulate_curves(ensemble, table, points=[0.5], targets=("native",)).values["native"][:, :, 0]
    assert np.abs(along - half).max() < 2e-3


@pytest.mark.parametrize("reward", ["sparse", "structured"])
def test_native_reward_never_falls_with_compute_under_exact_rewards(ensemble: Worlds, reward: str) -> None:
    budgets = np.geomspace(1e14, 1e22, 30)
    table = Settings.concat([one(reward=reward, budget=b) for b in budgets])
    values = simulate(ensemble, table, targets=("native",))["native"]
    assert np.all(np.diff(values, axis=1) >= -1e-9)


def test_larger_policies_buy_fewer_steps_and_are_better_untrained(sizes: Ladder, central: Worlds) -> None:
    table = Settings.build([(m, sizes.recipe("sparse"), 10**18) for m in sizes.models])
    assert np.all(np.diff(table.steps) < 0)
    start = simulate_curves(central, table, points=[0.0], targets=("native",)).values["native"][0, :, 0]
    assert np.all(np.diff(start) > 0)


def test_more_samples_per_step_help_a_step_with_diminishing_returns(central: Worlds) -> None:
    """Same number of steps, doubling prompts: each doubling gains, and by less and less near the end."""
    prompts = 2.0 ** np.arange(0, 16)
    base = one(budget=1)
    table = base[np.zeros(prompts.size, dtype=int)]
    table = replace(table, prompts=prompts, budget=table.step_flops * 20)
    gain = simulate(central, table, targets=("native",))["native"][0]
    step = np.diff(gain)
    assert np.all(step > 0)
    assert step[-1] < 0.05 * step.max()


def test_search_heavy_under_learns_and_update_heavy_flattens(central: Worlds) -> None:
    sizes = ladder()
    recipe = sizes.recipe("sparse")
    model = sizes.models[2:]
    ratios = 2.0 ** np.arange(-4, 5)
    table = Settings.sweep(model, recipe, ratios=ratios, budget=1e18)
    value = simulate(central, table, targets=("native",))["native"][0]
    best = int(value.argmax())
    assert 0 < best < len(ratios) - 1
    assert np.all(np.diff(value[: best + 1]) > 0)
    assert np.all(np.diff(value[best:]) < 0)
    # Per sample generated, more passes over the same samples saturate.
    fixed = replace(table, budget=table.step_flops * 500)
    by_pass = simulate(central, fixed, targets=("native",))["native"][0]
    start = simulate_curves(central, table, points=[0.0], targets=("native",)).values["native"][0, 0, 0]
    assert (by_pass[4] - start) > 3 * (by_pass[6] - by_pass[5])


def test_groups_of_one_kind_teach_nothing(central: Worlds) -> None:
    """Problems that are always or never solved give a binary reward no signal, so nothing is learned."""
    for shift in (-40.0, 40.0):
        world = central.replace(task_shift=shift, format0=30.0)
        table = Settings.concat([one(budget=1), one(budget=1e18)])
        before, after = simulate(world, table, targets=("native",))["native"][0]
        assert after == pytest.approx(before, abs=1e-6)


def test_judge_can_peak_before_native_does(sizes: Ladder, ensemble: Worlds) -> None:
    curves = simulate_curves(ensemble, one(reward="prm", budget=1e20), points=30)
    native, judge = (curves.values[t][:, 0].argmax(axis=1) for t in ("native", "judge"))
    assert np.mean(judge < native) > 0.8
    assert np.all(np.diff(curves.drift[:, 0], axis=1) >= 0)


def test_kl_term_holds_drift_back(ensemble: Worlds) -> None:
    curves = [simulate_curves(ensemble, replace(one(), kl=np.array([k])), points=[1.0]) for k in (0.0, 1.0)]
    assert np.all(curves[1].drift < curves[0].drift)


def test_collapse_grows_with_reuse_learning_rate_bias_and_length(ensemble: Worlds) -> None:
    def mean(**changes: object) -> float:
        return float(collapse_probability(ensemble, one(**changes)).mean())  # type: ignore[arg-type]

    base = mean()
    assert base < 0.1
    assert mean(update_ratio=8.0) > base
    assert mean(learning_rate=4.0) > 2 * base
    assert mean(reward="prm") > base
    assert mean(budget=1e20) > base


def test_rank_and_full_fine_tuning_are_ordered(central: Worlds) -> None:
    table = Settings.concat([one(budget=1e18)] * 3)
    table = replace(table, rank=np.array([1.0, 64.0, np.inf]))
    value = simulate(central, table, targets=("native",))["native"][0]
    assert value[0] < value[1] < value[2]
    assert value[2] - value[1] < 0.02 * value[2]


def test_worlds_and_settings_do_not_mix(ensemble: Worlds) -> None:
    """Each (world, setting) cell is the same alone and in a block."""
    table = Settings.concat([one(reward=r, budget=b) for r in ALL_REWARDS for b in (1e16, 1e19)])
    whole = simulate(ensemble, table)
    for target, values in whole.items():
        alone = simulate(ensemble[7], table[3], targets=(target,))[target]
        assert alone.shape == (1, 1)
        assert alone[0, 0] == pytest.approx(values[7, 3], rel=1e-12)


def test_blocks_are_joined_correctly() -> None:
    worlds = Worlds.prior(90, seed=3)
    table = one()[np.zeros(150, dtype=int)].with_budget(np.geomspace(1e15, 1e20, 150))
    whole = simulate(worlds, table, targets=("native",))["native"]
    again = np.concatenate(
        [simulate(worlds[i], table, targets=("native",))["native"] for i in (0, 44, 45, 89)]
    )
    assert np.allclose(whole[[0, 44, 45, 89]], again, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    a=st.floats(1 / 16, 16),
    lr=st.floats(0.05, 8),
    log_budget=st.floats(13, 24),
    reward=st.sampled_from(ALL_REWARDS),
    group=st.integers(2, 256),
    seed=st.integers(0, 10**6),
)
def test_any_setting_in_any_world_is_a_probability(
    a: float, lr: float, log_budget: float, reward: str, group: int, seed: int
) -> None:
    table = one(reward=reward, budget=10**log_budget, update_ratio=a, learning_rate=lr, group_size=group)
    for values in simulate(Worlds.prior(4, seed=seed), table, targets=TARGETS).values():
        assert np.all((values >= 0) & (values <= 1))


def test_bad_questions_are_named(ensemble: Worlds) -> None:
    with pytest.raises(InvalidInput, match="points"):
        simulate_curves(ensemble, one(), points=[1.5])
    with pytest.raises(InvalidInput, match="target"):
        simulate(ensemble, one(), targets=("reward",))
    with pytest.raises(InvalidInput, match="unknown parameter"):
        ensemble.replace(gravity=9.81)
    with pytest.raises(InvalidInput, match="shape"):
        Worlds(np.zeros((3, 2)))
