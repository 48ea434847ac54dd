"""ρ* of recorded slices against parabolas whose top is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_runs.study.frontier import SliceKey, optimum, rescaled
from real_runs.study.results.response import Response, difference, peak

RHOS = np.array([0.3, 0.45, 0.6, 0.75, 0.88])
KEY = SliceKey("sparse", "nano-s", 10**11, 8)


def logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


@given(top=st.floats(0.46, 0.74), bend=st.floats(0.01, 1.0), height=st.floats(-1, 1))
@settings(max_examples=100, deadline=None)
def test_the_top_of_a_parabola_is_found_exactly(top: float, bend: float, height: float) -> None:
    means = height - bend * np.array([(logit(r) - logit(top)) ** 2 for r in RHOS])
    assert optimum(RHOS, means[None, :])[0] == pytest.approx(top, abs=1e-6)


def test_an_end_of_the_grid_is_itself_and_the_optimum_stays_between_the_neighbours() -> None:
    rising, falling = np.arange(5.0), -np.arange(5.0)
    assert optimum(RHOS, np.stack([rising, falling])).tolist() == [0.88, 0.3]
    rng = np.random.default_rng(0)
    means = rng.normal(size=(500, 5))
    found, top = optimum(RHOS, means), means.argmax(axis=1)
    assert (found >= RHOS[np.maximum(top - 1, 0)] - 1e-12).all()
    assert (found <= RHOS[np.minimum(top + 1, 4)] + 1e-12).all()


def made(top: float, rng: np.random.Generator, *, seeds: int = 3, noise: float = 0.02) -> Response:
    truth = np.array([0.7 - 0.05 * (logit(r) - logit(top)) ** 2 for r in RHOS])
    return response([m + noise * rng.normal(size=seeds) for m in truth])


def response(arms: Sequence[np.ndarray]) -> Response:
    return Response(KEY, ("pass@1",), RHOS, tuple(arm[:, None] for arm in arms), ())


@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_cover_the_truth_about_as_often_as_they_say(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    covered = differences = 0
    n = 120
    for _ in range(n):
        first, second = made(0.5, rng, seeds=seeds), made(0.68, rng, seeds=seeds)
        found = peak(first, "pass@1", draws=400).interval
        assert found is not None
        covered += found.lo <= 0.5 <= found.hi
        gap = difference(first, second, "pass@1", draws=400)
        assert gap is not None
        differences += gap.lo <= -0.18 <= gap.hi
    # 95 % stated; three standard errors of a count out of 120 are 6 points.
    assert covered / n >= 0.89
    assert differences / n >= 0.89


def test_one_seed_says_nothing_about_spread() -> None:
    one = response([np.array([0.1 * i]) for i in range(5)])
    assert peak(one, "pass@1").rho == 0.88
    assert peak(one, "pass@1").interval is None
    assert difference(one, one, "pass@1") is None


def test_native_rewards_are_rescaled_per_system() -> None:
    assert rescaled({"prm": [0.5, 0.7, 0.6], "dense": [0.2, 0.2]}) == {
        "prm": [0.0, 1.0, pytest.approx(0.5)],
        "dense": [0.0, 0.0],
    }
