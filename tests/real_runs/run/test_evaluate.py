from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from grpo_toys import EOS, PAD, ToyReward, ToyTask, factory, toy_options, toy_recipe
from hypothesis import given
from hypothesis import strategies as st

from race.records import Curve
from real_runs.evaluate import _estimate, evaluate, pass_at_k
from real_runs.grpo.health import HealthCounts, flags, verdict
from real_runs.grpo.pricing import Prices
from real_runs.intervals import wilson
from real_runs.policy import build_policy
from real_runs.rollout import Sampling, build_backend


@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(n: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    answers = [True] * right + [False] * (n - right)
    draws = [any(draw) for draw in combinations(answers, k)]
    assert pass_at_k(np.array([float(right)]), n, k)[0] == pytest.approx(np.mean(draws))


@given(n=st.integers(1, 2000), share=st.floats(0, 1))
def test_wilson_holds_the_share_and_has_width_at_the_ends(n: int, share: float) -> None:
    value = round(share * n) / n
    lo, hi = wilson(value, n)
    assert 0 <= lo <= value + 1e-12
    assert value - 1e-12 <= hi <= 1
    assert hi - lo > 0.5 / n


def test_wilson_covers() -> None:
    rng = np.random.default_rng(0)
    for p in (0.02, 0.3, 0.9):
        hits = [lo <= p <= hi for lo, hi in (wilson(x / 100, 100) for x in rng.binomial(100, p, 2000))]
        assert 0.92 <= np.mean(hits) <= 0.99


def test_standard_error_is_that_of_problem_means() -> None:
    means = np.array([0.0, 0.5, 1.0, 0.5])
    found = _estimate(means, ["a", "a", "b", ""])
    assert found.se == pytest.approx(means.std(ddof=1) / 2)
    assert found.levels == {"a": 0.25, "b": 1.0}
    # All alike still has an error: four problems do not prove certainty.
    assert _estimate(np.ones(4), [""] * 4).se == pytest.approx(0.125)


def test_an_evaluation_end_to_end() -> None:
    task = ToyTask()
    policy = build_policy(factory(), toy_recipe(), toy_options(), seed=0)
    backend = build_backend(policy, toy_options(), max_tokens=12, folder="")
    prices = Prices.of(policy.architecture, toy_recipe())
    sampling = Sampling(max_tokens=6, eos_id=EOS, banned=(PAD,))
    arguments: dict[str, Any] = {"prices": prices, "sampling": sampling, "problems": 40, "samples": 4, "seed": 1}
    found = evaluate(backend, task, reward=ToyReward(task, price=3), judge=ToyReward(task, constant=0.5), **arguments)
    again = evaluate(backend, task, reward=ToyReward(task, price=3), judge=ToyReward(task, constant=0.5), **arguments)
    assert found == again
    assert set(found.estimates) == {"pass@1", "pass@2", "pass@4", "native", "judge"}
    values = {name: e.value for name, e in found.estimates.items()}
    assert values["pass@1"] < values["pass@2"] < values["pass@4"]
    assert values["native"] == pytest.approx(values["pass@1"])
    assert values["judge"] == 0.5
    plain = evaluate(backend, task, **arguments)
    assert plain.flops < found.flops
    assert found.executed >= plain.flops


# -- verdicts ------------------------------------------------------------------------------------------------------


def curve(*values: float, se: float = 0.02) -> dict[str, Curve]:
    n = len(values)
    return {"pass@1": Curve(tuple(range(n)), tuple(float(i) for i in range(n)), values, (se,) * n)}


@pytest.mark.parametrize(
    ("curves", "status"),
    [
        (curve(0.2, 0.6, 0.55), "ok"),
        (curve(0.2, 0.6, 0.05), "collapsed"),
        (curve(0.2, 0.1, 0.02), "collapsed"),
        (curve(0.04, 0.02, 0.0, se=0.03), "ok"),
        (curve(0.2), "ok"),
    ],
)
def test_collapse_is_a_fall_below_half_beyond_noise(curves: dict[str, Curve], status: str) -> None:
    assert verdict(HealthCounts(steps=3, varied=3), curves, ()).status == status


def test_divergence_wins_and_flags_are_kept() -> None:
    health = verdict(HealthCounts(unstable=True), curve(0.2, 0.6), ("mostly-truncated",))
    assert health.status == "diverged"
    assert health.flags == ("mostly-truncated",)


def test_flags() -> None:
    counts = HealthCounts(steps=10, groups=40, silent=38, samples=160, truncated=100, varied=2, mismatch=2.0)
    assert set(flags(counts, used=0.9, truncates=True)) == {
        "mostly-silent-groups", "mostly-truncated", "logprob-mismatch", "truncated-sampling", "budget-underused",
    }
    assert flags(HealthCounts(steps=4, varied=4, groups=8, samples=8), used=0.99, truncates=False) == ()
    assert "all-rewards-equal" in flags(HealthCounts(steps=4, groups=8, silent=8), used=1.0, truncates=False)
    assert math.isclose(HealthCounts.from_dict(counts.to_dict()).mismatch, 2.0)


