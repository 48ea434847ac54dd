import numpy as np
import pytest
from surrogate_pilots import RUNGS, pilots

from race.simulator import Settings, Worlds
from surrogate import Surrogate
from surrogate.hyperparameters import PRIOR_MEAN, Hyperparameters
from surrogate.kernels import noise_blocks, residual
from surrogate.left_out import LeftOut
from surrogate.pending import Pending, join
from surrogate.posterior import Component, Posterior, standard_draws

WORLD = Worlds.prior(1, seed=3)


def noise(data, hyper, variance, inflation):  # type: ignore[no-untyped-def]
    from scipy.linalg import block_diag

    return block_diag(*noise_blocks(data, hyper, variance, inflation))


@pytest.fixture(scope="module")
def fitted() -> Surrogate:
    return Surrogate.fit(pilots(6, WORLD), ladder=RUNGS, recipe=RUNGS.recipe("sparse"))


@pytest.fixture(scope="module")
def query(fitted: Surrogate):  # type: ignore[no-untyped-def]
    grid = Settings.grid(RUNGS, RUNGS.recipe("sparse"), rhos=[0.3, 0.5, 0.8], budgets=[1e19])
    return fitted.points(grid, "native")


def dense(fitted: Surrogate, query, theta):  # type: ignore[no-untyped-def]
    """Textbook GP posterior with the full ensemble covariance."""
    data, hyper = fitted.state.data, Hyperparameters(theta)
    dx, dq = data.deviations, query.deviations
    k = hyper.scale**2 * dx.T @ dx + residual(data, data, hyper)
    k += noise(data, hyper, fitted.state.variance, fitted.state.inflation)
    cross = hyper.scale**2 * dx.T @ dq + residual(data, query, hyper)
    prior = hyper.scale**2 * dq.T @ dq + residual(query, query, hyper)
    solved = np.linalg.solve(k, cross)
    return query.mean + solved.T @ (data.latent - data.mean), prior - cross.T @ solved


def test_full_bandwidth_is_the_textbook_posterior(fitted: Surrogate, query) -> None:  # type: ignore[no-untyped-def]
    theta = PRIOR_MEAN
    component = Component(fitted.state.data, theta, 1.0, fitted.state.variance, fitted.state.inflation)
    mean, covariance = Posterior((component,), np.ones(1)).moments(query)
    expected_mean, expected_covariance = dense(fitted, query, theta)
    assert np.allclose(mean, expected_mean, atol=1e-8)
    assert np.allclose(covariance, expected_covariance, atol=1e-8)


@pytest.mark.parametrize("bandwidth", [0.2, 0.5, 0.8, 1.0])
def test_the_prior_keeps_the_ensembles_moments_at_every_bandwidth(fitted: Surrogate, query, bandwidth: float) -> None:  # type: ignore[no-untyped-def]
    nothing = fitted.state.data[slice(0, 0)]
    component = Component(nothing, PRIOR_MEAN, bandwidth, np.empty(0), np.empty(0))
    mean, covariance = Posterior((component,), np.ones(1)).moments(query)
    hyper, d, count = Hyperparameters(PRIOR_MEAN), query.deviations, len(query.ensemble)
    ensemble = hyper.scale**2 * d.T @ d
    # The spread of W centres has W, the sample covariance W - 1 in the denominator.
    small = (1 - bandwidth**2) / count
    assert np.allclose(mean, query.mean, atol=1e-9)
    assert np.allclose(covariance, ensemble * (1 - small) + residual(query, query, hyper), atol=1e-8)


def test_evidence_is_the_mean_likelihood_over_worlds(fitted: Surrogate) -> None:
    from scipy.stats import multivariate_normal

    data, state = fitted.state.data[slice(0, 12)], fitted.state
    variance = state.variance[:12]
    ones, h = np.ones(len(data.blocks)), 0.6
    component = Component(data, PRIOR_MEAN, h, variance, ones)
    hyper, d = Hyperparameters(PRIOR_MEAN), data.deviations
    k = (hyper.scale * h) ** 2 * d.T @ d + residual(data, data, hyper) + noise(data, hyper, variance, ones)
    centres = data.mean + hyper.scale * np.sqrt(1 - h**2) * (data.ensemble - data.mean)
    each = [multivariate_normal(c, k).logpdf(data.latent) for c in centres]
    assert np.isclose(component.evidence, np.log(np.mean(np.exp(np.array(each) - max(each)))) + max(each))


def test_leaving_a_run_out_in_closed_form_is_refitting_without_it(fitted: Surrogate) -> None:
    state = fitted.state
    data, block = state.data, state.data.blocks[2]
    rest = np.array([i for i in range(len(data)) if not block.start <= i < block.stop])
    inflation = np.ones(len(data.blocks))
    theta, h = PRIOR_MEAN, 0.5
    whole = Component(data, theta, h, state.variance, inflation)
    found = LeftOut(whole).predict(np.arange(block.start, block.stop))
    part = Component(data[rest], theta, h, state.variance[rest], inflation[1:])
    there = data[block]
    expected, signal = part.moments(there)
    own = np.diag(noise(there, Hyperparameters(theta), state.variance[block], np.ones(1)))
    assert np.isclose(found.evidence, part.evidence)
    assert np.allclose(found.weights[part.worlds], part.weights, atol=1e-6)
    assert np.allclose(found.means[part.worlds], expected, atol=1e-6)
    assert np.allclose(found.variances, np.diag(signal) + own, rtol=1e-6)


def test_fitted_is_the_posterior_mean_at_the_data(fitted: Surrogate) -> None:
    for component in fitted.state.posterior.components:
        data = component.data
        assert np.allclose(component.fitted(), component.weights @ component.means(data), atol=1e-7)


def test_joint_and_marginal_draws_have_the_stated_moments(fitted: Surrogate, query) -> None:  # type: ignore[no-untyped-def]
    posterior = fitted.state.posterior
    mean, covariance = posterior.moments(query)
    joint = posterior.draws(query, 40_000, np.random.default_rng(0))
    assert np.allclose(joint.mean(0), mean, atol=0.02)
    assert np.allclose(np.cov(joint.T), covariance, atol=0.05 * covariance.max())
    alone = posterior.marginal_draws(query, *standard_draws())
    assert np.allclose(alone.mean(0), mean, atol=0.02)
    assert np.allclose(alone.std(0), np.sqrt(np.diag(covariance)), rtol=0.03)


def test_pending_pilots_shrink_uncertainty_and_leave_means(fitted: Surrogate, query) -> None:  # type: ignore[no-untyped-def]
    base = fitted.state.posterior
    pending = Pending(base, query[np.array([4])], np.array([[0.01]]))
    before, after = base.moments(query), pending.moments(query)
    assert np.array_equal(before[0], after[0])
    assert np.all(np.diag(after[1]) <= np.diag(before[1]) + 1e-12)
    assert after[1][4, 4] < 0.011
    joint = pending.draws(query, 40_000, np.random.default_rng(1))
    assert np.allclose(joint.mean(0), after[0], atol=0.02)
    assert np.allclose(np.cov(joint.T), after[1], atol=0.05 * before[1].max())


def test_conditioning_twice_is_conditioning_on_both(fitted: Surrogate) -> None:
    grid = Settings.grid(RUNGS, RUNGS.recipe("sparse"), rhos=[0.3, 0.7], budgets=[1e19])
    one, two = grid[np.array([0])], grid[np.array([3])]
    step = fitted.condition(one).condition(two).predict(grid, "native").sd
    both = fitted.condition(Settings.concat([one, two])).predict(grid, "native").sd
    assert np.allclose(step, both)
    assert np.all(step <= fitted.predict(grid, "native").sd + 1e-9)


def test_join_keeps_order(query) -> None:  # type: ignore[no-untyped-def]
    both = join(query, query[np.array([2])])
    assert len(both) == len(query) + 1
    assert np.array_equal(both.ensemble[:, -1], query.ensemble[:, 2])
    assert np.array_equal(both.x[-1], query.x[2])
