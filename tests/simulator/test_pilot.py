from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from race.allocation import size_run
from race.errors import InvalidInput
from race.ladders import Ladder
from race.records import PilotRecord, PilotSpec
from race.simulator import Settings, Worlds, run_world, simulate
from race.simulator.pilot import EVAL_SAMPLES


def spec(
    sizes: Ladder, *, reward: str = "sparse", budget: int = 10**18, seed: int = 0, **changes: object
) -> PilotSpec:
    recipe = sizes.recipe(reward, **changes)
    return PilotSpec("Qwen2.5-3B-Instruct", sizes.models[1].params, recipe, 0.6, budget, seed,
                     ("native", "pass@1", "judge"))  # fmt: skip


def test_a_record_says_what_was_spent_and_how_sure_its_values_are(sizes: Ladder, central: Worlds) -> None:
    asked = spec(sizes)
    record = run_world(central, asked, seed=4, name="test-world")
    plan = size_run(sizes.models[1].architecture, asked.recipe, asked.budget)
    assert record.flops == plan.flops
    assert record.flops.total <= asked.budget
    assert record.evidence == "simulated"
    assert record.provenance["world"] == "test-world"
    assert set(record.curves) == set(asked.targets)
    curve = record.curves["native"]
    assert 8 <= len(curve) <= 20
    assert curve.step[0] == 0
    assert curve.flops[-1] == pytest.approx(record.flops.total)
    assert all(se > 0 for se in curve.se)
    assert PilotRecord.from_dict(record.to_dict()) == record


def test_same_seed_same_record_other_seed_other_record(sizes: Ladder, central: Worlds) -> None:
    asked = spec(sizes)
    assert run_world(central, asked, seed=1) == run_world(central, asked, seed=1)
    other = [run_world(central, asked, seed=2), run_world(central, replace(asked, seed=1), seed=1)]
    assert len({r.curves["native"].value for r in [run_world(central, asked, seed=1), *other]}) == 3
    assert len({r.id for r in [run_world(central, asked, seed=1), *other]}) == 3


def test_noise_has_the_stated_size_and_no_bias(sizes: Ladder, central: Worlds) -> None:
    """At step 0 there is only evaluation noise; at the end seeds come on top."""
    world = central.replace(seed_sd=0.25, collapse=1e-12)
    asked = spec(sizes)
    records = [run_world(world, asked, seed=i) for i in range(200)]
    values = np.array([r.curves["native"].value for r in records])
    se = np.array([r.curves["native"].se for r in records])
    assert values[:, 0].std() == pytest.approx(se[:, 0].mean(), rel=0.2)
    plan = size_run(sizes.models[1].architecture, asked.recipe, asked.budget)
    table = Settings.build([(sizes.models[1], plan.recipe, int(plan.flops.total))])
    expected = float(simulate(world, table, targets=("native",))["native"][0, 0])
    seed_sd = 0.25 * expected * (1 - expected)
    assert values[:, -1].mean() == pytest.approx(expected, abs=4 * values[:, -1].std() / np.sqrt(200))
    assert values[:, -1].std() == pytest.approx(np.hypot(seed_sd, se[:, -1].mean()), rel=0.2)


def test_seed_noise_is_shared_along_a_curve_and_across_targets(sizes: Ladder, central: Worlds) -> None:
    world = central.replace(seed_sd=0.6, collapse=1e-12)
    records = [run_world(world, spec(sizes), seed=i) for i in range(80)]
    native = np.array([r.curves["native"].value for r in records])
    judge = np.array([r.curves["judge"].value for r in records])
    assert np.corrcoef(native[:, -1], native[:, -2])[0, 1] > 0.5
    assert np.corrcoef(native[:, -1], judge[:, -1])[0, 1] > 0.5
    assert abs(np.corrcoef(native[:, 0], native[:, -1])[0, 1]) < 0.4


def test_binary_rewards_are_counts(sizes: Ladder, central: Worlds) -> None:
    curve = run_world(central, spec(sizes), seed=0).curves["native"]
    assert np.allclose(np.array(curve.value) * EVAL_SAMPLES % 1, 0)


def test_a_collapsed_run_looks_like_one(sizes: Ladder, central: Worlds) -> None:
    world = central.replace(collapse=1e6)
    record = run_world(world, spec(sizes, reward="prm"), seed=0)
    assert record.health.status == "collapsed"
    assert "kl-jump" in record.health.flags
    value, kl = np.array(record.curves["native"].value), np.array(record.provenance["kl"])
    assert value[-1] < 0.5 * value.max()
    assert kl[-1] > 4 * kl[value.argmax()] + 1
    assert record.flops.total > 0.9 * record.spec.budget


def test_collapse_frequency_follows_its_probability(sizes: Ladder, central: Worlds) -> None:
    hot = [run_world(central, spec(sizes, learning_rate=16.0, update_ratio=4.0), seed=i) for i in range(40)]
    cold = [run_world(central, spec(sizes), seed=i) for i in range(40)]
    assert sum(r.health.status == "collapsed" for r in hot) > 20
    assert sum(r.health.status == "collapsed" for r in cold) < 8


def test_values_of_0_and_1_keep_a_standard_error(sizes: Ladder, central: Worlds) -> None:
    for shift in (-60.0, 60.0):
        world = central.replace(task_shift=shift, format0=40.0)
        curve = run_world(world, spec(sizes), seed=0).curves["native"]
        assert all(0 < se < 0.01 for se in curve.se)


def test_nonsense_is_refused_in_one_line(sizes: Ladder, central: Worlds, ensemble: Worlds) -> None:
    with pytest.raises(InvalidInput, match="exactly one world"):
        run_world(ensemble, spec(sizes))
    with pytest.raises(InvalidInput, match="budget"):
        run_world(central, spec(sizes, budget=10**9))
    with pytest.raises(InvalidInput, match="model"):
        run_world(central, replace(spec(sizes), model="no-such-model"))
