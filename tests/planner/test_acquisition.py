from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.acquisition import (
    MAX_DOUBT,
    WORTH,
    Beliefs,
    Scores,
    expected_gain,
    gain_per_flop,
    score,
    together,
)


def beliefs(mean: list[float], cov: np.ndarray, noise: list[float]) -> Beliefs:
    m = np.array(mean)
    return Beliefs(m, np.ones(len(m)), cov, np.array(noise), np.ones(len(noise)))


def test_two_settings_have_a_closed_form() -> None:
    """KG of one observation that tells two equally good settings apart is s * phi(0) with s the swing's gap."""
    gain = expected_gain(np.array([0.5, 0.5]), np.array([[0.1], [-0.1]]))
    assert gain[0] == pytest.approx(0.2 * 0.39894, rel=0.02)


def test_nothing_is_gained_where_all_move_together() -> None:
    assert expected_gain(np.array([0.2, 0.5, 0.4]), np.full((3, 1), 0.3))[0] == 0.0


@given(seed=st.integers(0, 10_000), settings_=st.integers(2, 12), pilots=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_gain_is_bounded_by_perfect_information(seed: int, settings_: int, pilots: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(settings_ + pilots, settings_ + pilots)) / 5
    cov = root @ root.T
    mean = rng.normal(size=settings_) / 5
    believed = Beliefs(mean, np.ones(settings_), cov, rng.uniform(0.001, 0.5, pilots), rng.uniform(0, 1, pilots))
    _, single = gain_per_flop(believed, np.ones(pilots), 1.0)
    draws = rng.multivariate_normal(mean, cov[:settings_, :settings_], size=20_000)
    perfect = draws.max(axis=1).mean() - mean.max()
    assert np.all(single >= 0)
    assert np.all(single <= perfect + 0.02)


def test_more_noise_tells_less() -> None:
    cov = np.array([[0.04, 0.0, 0.03, 0.03], [0.0, 0.04, 0.0, 0.0], [0.03, 0.0, 0.04, 0.04], [0.03, 0.0, 0.04, 0.04]])
    _, single = gain_per_flop(beliefs([0.5, 0.5], cov, [0.001, 0.1]), np.ones(2), 1.0)
    assert single[0] > 1.5 * single[1]


def test_the_dearer_of_two_equal_pilots_loses() -> None:
    cov = np.eye(4) * 0.04
    cov[0, 2:] = cov[2:, 0] = 0.03
    per_flop, single = gain_per_flop(beliefs([0.5, 0.5], cov, [0.01, 0.01]), np.array([1.0, 3.0]), 3.0)
    assert single[0] == pytest.approx(single[1])
    assert per_flop[0] > 2.9 * per_flop[1]


def test_a_pilot_likely_to_collapse_is_worth_less() -> None:
    cov = np.eye(4) * 0.04
    cov[0, 2:] = cov[2:, 0] = 0.03
    even = beliefs([0.5, 0.5], cov, [0.01, 0.01])
    _, single = gain_per_flop(replace(even, healthy=np.array([1.0, 0.25])), np.ones(2), 1.0)
    assert single[1] == pytest.approx(0.25 * single[0])


def test_doubt_comes_in_only_when_no_pilot_could_overturn_the_decision() -> None:
    cov = np.eye(4) * 1e-4
    cov[0, 2] = cov[2, 0] = 0.9e-4  # the first pilot moves the trailing setting, the second moves nothing
    open_question = score(beliefs([0.5, 0.501], cov, [1e-4, 1e-4]), np.ones(2), 1.0)
    assert open_question.doubt == 1.0
    settled = score(beliefs([0.5, 0.58], cov, [1e-4, 1e-4]), np.ones(2), 1.0)
    assert settled.single.max() < WORTH * 0.08
    assert 1 < settled.doubt <= MAX_DOUBT
    assert settled.per_flop[0] > settled.per_flop[1]


def test_repetition_lets_a_weak_cheap_pilot_count() -> None:
    """One noisy look cannot overturn the lead; four can, and the cheap pilot must not look worthless for it."""
    cov = np.array([[0.01, 0, 0.01], [0, 1e-9, 0], [0.01, 0, 0.01]])
    weak = beliefs([0.5, 0.62], cov, [0.05])
    alone, single = gain_per_flop(weak, np.array([1.0]), 1.0)
    repeated, _ = gain_per_flop(weak, np.array([1.0]), 8.0)
    assert alone[0] == pytest.approx(single[0])
    assert repeated[0] > 2 * alone[0]


def test_gains_of_several_targets_are_summed_as_shares_of_their_ranges() -> None:
    first = Scores(np.array([0.3, 0.2, 0.0]), np.zeros(3), 1.0, 0.1)
    second = Scores(np.array([0.0, 2.0, 2.5]), np.zeros(3), 1.0, 1.0)
    assert together([first]).argmax() == 0
    assert np.allclose(together([first, second]), [3.0, 4.0, 2.5])
    flat = Scores(np.array([1e-9, 0.0, 0.0]), np.zeros(3), 16.0, 0.0)
    assert together([flat, second]).argmax() == 2
