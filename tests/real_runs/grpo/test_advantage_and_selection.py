from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from real_runs.grpo.advantage import group_advantages, silent_groups
from real_runs.grpo.selection import passes, widest

rewards_of = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 9)), elements=st.floats(0, 1))


@given(value=st.floats(0, 1), size=st.integers(2, 16), scale=st.booleans())
def test_equal_rewards_teach_exactly_nothing(value: float, size: int, scale: bool) -> None:
    assert (group_advantages(np.full((3, size), value), scale=scale) == 0.0).all()


def test_float_noise_does_not_become_signal() -> None:
    # The mean of seven times 0.1 is not 0.1; dividing that by a tiny deviation would be an advantage of -1.
    rewards = np.full((1, 7), 0.1)
    assert (rewards - rewards.mean()).any()
    assert (group_advantages(rewards, scale=True) == 0.0).all()


@given(rewards=rewards_of)
def test_advantages_are_centred_and_unit_scaled(rewards: np.ndarray) -> None:
    plain = group_advantages(rewards, scale=False)
    scaled = group_advantages(rewards, scale=True)
    assert np.allclose(plain.sum(1), 0, atol=1e-9)
    spread = rewards.std(axis=1, ddof=1)
    loud = spread > 0.05
    assert np.allclose(scaled[loud].std(axis=1, ddof=1), spread[loud] / (spread[loud] + 1e-4))
    assert (scaled[silent_groups(rewards)] == 0).all()


@given(rewards=rewards_of, ratio=st.floats(0.07, 5), subset=st.sampled_from(["random", "max-variance"]))
def test_passes_hold_whole_samples_spread_over_groups(rewards: np.ndarray, ratio: float, subset: str) -> None:
    generated = rewards.size
    trained = max(1, round(ratio * generated))
    chosen = passes(rewards, trained, subset=subset, seed=3)
    assert sum(len(p) for p in chosen) == trained
    assert len(chosen) == -(-trained // generated)
    for p in chosen:
        assert len(set(p.tolist())) == len(p)
        assert (np.diff(p) > 0).all()
    for p in chosen[:-1]:
        assert p.tolist() == list(range(generated))
    per_group = np.bincount(chosen[-1] // rewards.shape[1], minlength=rewards.shape[0])
    assert per_group.max() - per_group.min() <= 1


@given(rewards=rewards_of, ratio=st.floats(0.07, 0.9), subset=st.sampled_from(["random", "max-variance"]))
def test_selection_is_a_function_of_its_seed(rewards: np.ndarray, ratio: float, subset: str) -> None:
    trained = max(1, round(ratio * rewards.size))
    first, again = (passes(rewards, trained, subset=subset, seed=11) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))


@given(
    values=st.lists(st.floats(0, 1, width=16), min_size=2, max_size=8),
    data=st.data(),
)
def test_widest_is_the_brute_force_optimum(values: list[float], data: st.DataObject) -> None:
    from itertools import combinations

    count = data.draw(st.integers(2, len(values)))
    array = np.array(values)
    best = max(array[list(c)].var() for c in combinations(range(len(values)), count))
    assert array[widest(array, count)].var() == pytest.approx(best, abs=1e-12)


def test_max_variance_prefers_informative_groups_for_the_remainder() -> None:
    rewards = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    for seed in range(20):
        (chosen,) = passes(rewards, 1, subset="max-variance", seed=seed)
        assert chosen[0] // 4 == 1
    (chosen,) = passes(rewards, 6, subset="max-variance", seed=0)
    middle = [i for i in chosen if i // 4 == 1]
    assert sorted(rewards.reshape(-1)[middle]) == [0.0, 1.0]
