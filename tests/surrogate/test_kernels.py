from dataclasses import replace

import numpy as np
import pytest
from surrogate_pilots import RUNGS, pilots

from race.simulator import Worlds
from surrogate import Surrogate
from surrogate.hyperparameters import NAMES, PRIOR_MEAN, PRIOR_SD, Hyperparameters
from surrogate.inference import _objective, learn, subset
from surrogate.kernels import Cross, Distances, Gram, _matern, noise_blocks, residual, residual_variance
from surrogate.posterior import Component


def noise(data, hyper, variance, inflation):  # type: ignore[no-untyped-def]
    from scipy.linalg import block_diag

    return block_diag(*noise_blocks(data, hyper, variance, inflation))


@pytest.fixture(scope="module")
def fitted() -> Surrogate:
    world = Worlds.prior(1, seed=11)
    targets = ("native", "judge")
    records = pilots(4, world, targets=targets) + pilots(3, world, reward="dense", seed=1, targets=targets)
    return Surrogate.fit(records, ladder=RUNGS, recipe=RUNGS.recipe("sparse"), targets=targets)


def test_matern_agrees_with_scikit_learn() -> None:
    from sklearn.gaussian_process.kernels import Matern

    x = np.linspace(0, 4, 9)[:, None]
    ours = _matern((x - x.T) ** 2)
    assert np.allclose(ours, Matern(length_scale=1.0, nu=2.5)(x), atol=1e-12)


def test_gradient_is_the_derivative(fitted: Surrogate) -> None:
    state = fitted.state
    chosen = subset(state.data, 60)
    part = state.data[chosen]
    gram = Gram(part, state.variance[chosen], np.ones(len(part.blocks)))
    theta = PRIOR_MEAN + 0.3 * PRIOR_SD * np.cos(np.arange(len(NAMES)))
    _, gradient, information = _objective(gram, theta)
    step = 1e-5
    numeric = [
        (_objective(gram, theta + step * e)[0] - _objective(gram, theta - step * e)[0]) / (2 * step)
        for e in np.eye(len(theta))
    ]
    assert np.allclose(gradient, numeric, atol=1e-5, rtol=1e-5)
    assert np.linalg.eigvalsh(information).min() > 0


def test_the_mode_is_a_mode(fitted: Surrogate) -> None:
    state = fitted.state
    chosen = subset(state.data, 80)
    part = state.data[chosen]
    gram = Gram(part, state.variance[chosen], np.ones(len(part.blocks)))
    theta, covariance = learn(gram)
    best = _objective(gram, theta)[0]
    assert best >= _objective(gram, PRIOR_MEAN)[0]
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = theta + np.linalg.cholesky(covariance) @ rng.standard_normal(len(theta))
        assert _objective(gram, other)[0] < best + 0.1


def test_gram_and_posterior_build_the_same_covariance(fitted: Surrogate) -> None:
    state, ones = fitted.state, np.ones(len(fitted.runs))
    theta = PRIOR_MEAN + 0.2
    total, _ = Gram(state.data, state.variance, ones).covariance(theta)
    component = Component(state.data, theta, 1.0, state.variance, ones)
    assert np.allclose(component.factor @ component.factor.T, total, atol=1e-9)


def test_residual_is_a_covariance_with_the_stated_diagonal(fitted: Surrogate) -> None:
    hyper = Hyperparameters(PRIOR_MEAN)
    data = fitted.state.data
    matrix = residual(data, data, hyper)
    assert np.allclose(np.diag(matrix), residual_variance(data, hyper))
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def test_seeds_do_not_differ_at_the_base_model_and_runs_share_no_noise(fitted: Surrogate) -> None:
    data = fitted.state.data
    matrix = noise(data, Hyperparameters(PRIOR_MEAN), np.zeros(len(data)), np.ones(len(data.blocks)))
    apart = data.run[:, None] != data.run[None, :]
    assert not matrix[apart].any()
    base = np.flatnonzero(data.growth == 0)
    assert len(base)
    off = matrix[base] - np.diag(np.diag(matrix))[base]
    assert not off.any()


def test_points_along_a_run_share_noise(fitted: Surrogate) -> None:
    data = fitted.state.data
    matrix = noise(data, Hyperparameters(PRIOR_MEAN), np.zeros(len(data)), np.ones(len(data.blocks)))
    first = data.blocks[0]
    inside = [i for i in range(first.start, first.stop) if data.target[i] == 0]
    last, before = inside[-1], inside[-2]
    correlation = matrix[last, before] / np.sqrt(matrix[last, last] * matrix[before, before])
    assert 0.5 < correlation < 1


def test_subset_keeps_the_end_of_every_curve(fitted: Surrogate) -> None:
    data = fitted.state.data
    chosen = subset(data, 2 * len(data.blocks) + 2)
    for block in data.blocks:
        for target in (0, 1):
            ends = [i for i in range(block.start, block.stop) if data.target[i] == target]
            assert ends[-1] in chosen


def test_a_subset_of_many_curves_is_spread_over_all_of_them(fitted: Surrogate) -> None:
    data = fitted.state.data
    runs = len(data.blocks)
    chosen = subset(data, runs // 2)
    seen = np.unique(data.run[chosen])
    thirds = np.histogram(seen, bins=3, range=(0, runs - 1))[0]
    assert thirds.min() >= 1
    # Ends first: no run gives a second point while another has given none.
    ends = {(int(data.run[i]), int(data.target[i])): i for i in range(len(data))}
    assert set(chosen.tolist()) <= set(ends.values())


def test_by_default_a_subset_grows_with_the_number_of_curves(fitted: Surrogate) -> None:
    data = fitted.state.data
    many = np.concatenate([np.full(4, i) for i in range(100)])
    grown = replace(data[np.zeros(400, dtype=int)], run=many, target=np.zeros(400, dtype=int))
    chosen = subset(grown)
    assert len(chosen) == 200
    assert set(many[chosen]) == set(range(100))
    assert set(np.arange(3, 400, 4)) <= set(chosen.tolist())


def test_distances_to_a_grid_are_those_of_its_settings(fitted: Surrogate) -> None:
    from race.simulator import Settings

    settings = Settings.concat(
        [
            Settings.grid(RUNGS, RUNGS.recipe(reward), rhos=[0.2, 0.5, 0.8], budgets=[10**17, 10**18])
            for reward in ("sparse", "dense", "prm")
        ]
    )
    data, points = fitted.state.data, fitted.points(settings, "judge")
    for shift in (0.0, 0.4):
        hyper = Hyperparameters(PRIOR_MEAN + shift * PRIOR_SD)
        plain = residual(data, points, hyper, Distances.between(data, points))
        assert np.allclose(residual(data, points, hyper), plain, atol=1e-9)
    assert max(len(part.gain.T) for part, _ in Cross.between(data, points).parts) < len(points)
