"""The posterior of the response surface: a mixture of Gaussian processes, exact under its prior.

Each world of the simulator is the centre of one component, smoothed by a share h of the ensemble's own
covariance, so that the mixture keeps the ensemble's mean and covariance for every h:

    f | world w  ~  GP( mean + scale sqrt(1 - h^2) (e_w - mean),  h^2 ensemble + residual )

h = 1 is the Gaussian approximation of an ensemble Kalman filter; h -> 0 is importance sampling of worlds. With
no data the prior is the ensemble itself, skewed and bounded as the simulator makes it; data reweight the
worlds by their likelihood, and move each one. Hyperparameters are marginalised over a few draws (`inference`);
h is one more of them, and every draw is weighted by its exact marginal likelihood.

Deviations from the posterior mean are multiplied by ``spread``, 1 where the posterior foretells settings that it was
not shown as well as it claims to (`surrogate.calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from surrogate.hyperparameters import Hyperparameters
from surrogate.kernels import Cross, Distances, noise_blocks, residual, residual_variance
from surrogate.linalg import cholesky, solve_lower, solve_upper
from surrogate.points import Data, FloatArray, IntArray, Points

KEEP = 1e-6  # worlds below this share of a component's weight are not carried along


# Ensemble covariance and distances of two sets of points: the same under all hyperparameters.
Shared = tuple[FloatArray, Distances | Cross]


def share(a: Points, b: Points) -> Shared:
    """What every component needs to know about two sets of points."""
    deviations = a.deviations
    if a is b:
        return deviations.T @ deviations, Distances.among(a)
    return deviations.T @ b.deviations, Cross.between(a, b)


def log_mean_exp(values: FloatArray) -> float:
    """log(mean(exp(values)))."""
    top = float(values.max())
    return top + float(np.log(np.mean(np.exp(values - top))))


class Component:
    """The posterior under one draw of the hyperparameters.

    Attributes
    ----------
    weights
        Posterior probability of each kept world, shape (w,).
    worlds
        Their indices in the ensemble, shape (w,).
    evidence
        Log marginal likelihood of the data.
    """

    def __init__(
        self,
        data: Data,
        theta: FloatArray,
        bandwidth: float,
        variance: FloatArray,
        inflation: FloatArray,
        shared: Shared | None = None,
    ) -> None:
        self.data, self.theta, self.bandwidth = data, theta, bandwidth
        self.hyper = Hyperparameters(theta)
        # At h = 1 every world has the same centre: one stands for all.
        self.candidates = np.arange(len(data.ensemble) if bandwidth < 1 else 1)
        self.evidence = 0.0
        self.worlds = self.candidates
        self.weights = np.full(len(self.worlds), 1 / len(self.worlds))
        if not len(data):
            return
        covariance = self._signal(data, data, shared)
        self.noise_blocks = noise_blocks(data, self.hyper, variance, inflation)
        for block, added in zip(data.blocks, self.noise_blocks, strict=True):
            covariance[block, block] += added
        self.factor = cholesky(covariance)
        whitened = solve_lower(self.factor, self.all_residuals().T)
        fit = -0.5 * np.sum(whitened**2, axis=0)
        constant = -np.log(np.diag(self.factor)).sum() - 0.5 * len(data) * np.log(2 * np.pi)
        self.evidence = log_mean_exp(fit) + float(constant)
        weights = np.exp(fit - fit.max())
        weights /= weights.sum()
        self.worlds = np.flatnonzero(weights > KEEP)
        self.weights = weights[self.worlds] / weights[self.worlds].sum()
        self.alpha = solve_upper(self.factor, whitened[:, self.worlds])

    def all_residuals(self) -> FloatArray:
        """Data minus prior mean in every candidate world, kept or not, shape (W, n)."""
        return self.data.latent - self._centres(self.data, self.candidates)

    def _centres(self, points: Points, worlds: IntArray) -> FloatArray:
        """Prior mean of some worlds' components, shape (w, m)."""
        mean = points.mean
        share = self.hyper.scale * np.sqrt(1 - self.bandwidth**2)
        return np.asarray(mean + share * (points.ensemble[worlds] - mean))

    def fitted(self) -> FloatArray:
        """Posterior mean at the data, shape (n,): data minus the noise they are explained by, z - N alpha."""
        alpha = self.alpha @ self.weights
        out = self.data.latent.copy()
        for block, added in zip(self.data.blocks, self.noise_blocks, strict=True):
            out[block] -= added @ alpha[block]
        return out

    def _signal(self, a: Points, b: Points, shared: Shared | None = None) -> FloatArray:
        ensemble, distances = share(a, b) if shared is None else shared
        covariance = residual(a, b, self.hyper, distances)
        covariance += (self.hyper.scale * self.bandwidth) ** 2 * ensemble
        return covariance

    def means(self, points: Points) -> FloatArray:
        """Posterior mean of each kept world's component, shape (w, m)."""
        centres = self._centres(points, self.worlds)
        if not len(self.data):
            return centres
        return np.asarray(centres + self.alpha.T @ self._signal(self.data, points))

    def moments(self, points: Points, shared: tuple[Shared, Shared] | None = None) -> tuple[FloatArray, FloatArray]:
        """Means (w, m) and the covariance (m, m) that all worlds share.

        ``shared`` is what does not depend on hyperparameters, among the points and from data to points.
        """
        among, across = (None, None) if shared is None else shared
        prior = self._signal(points, points, among)
        centres = self._centres(points, self.worlds)
        if not len(self.data):
            return centres, prior
        cross = self._signal(self.data, points, across)
        half = solve_lower(self.factor, cross)
        prior -= half.T @ half
        return np.asarray(centres + self.alpha.T @ cross), prior

    def marginals(self, points: Points, shared: Shared | None = None) -> tuple[FloatArray, FloatArray]:
        """Means (w, m) and the variance (m,) that all worlds share; ``shared`` from data to points."""
        prior = (self.hyper.scale * self.bandwidth) ** 2 * np.sum(points.deviations**2, axis=0)
        prior = prior + residual_variance(points, self.hyper)
        centres = self._centres(points, self.worlds)
        if not len(self.data):
            return centres, prior
        cross = self._signal(self.data, points, shared)
        half = solve_lower(self.factor, cross)
        means = np.asarray(centres + self.alpha.T @ cross)
        return means, np.maximum(prior - np.sum(half**2, axis=0), 1e-12)


@dataclass(frozen=True)
class Posterior:
    """Components with their weights, shape (k,), and the factor on all deviations from the mean."""

    components: tuple[Component, ...]
    weights: FloatArray
    spread: float = 1.0

    def _shared(self, points: Points) -> tuple[Shared, Shared]:
        return share(points, points), share(self.components[0].data, points)

    def mean(self, points: Points) -> FloatArray:
        """Posterior mean latent, shape (m,)."""
        out = np.zeros(len(points))
        for component, weight in zip(self.components, self.weights, strict=True):
            out += weight * (component.weights @ component.means(points))
        return out

    def moments(self, points: Points) -> tuple[FloatArray, FloatArray]:
        """Mean (m,) and covariance (m, m) of the whole mixture on the latent scale."""
        means, second = np.zeros(len(points)), np.zeros((len(points), len(points)))
        shared = self._shared(points)
        for component, weight in zip(self.components, self.weights, strict=True):
            centres, covariance = component.moments(points, shared)
            means += weight * (component.weights @ centres)
            second += weight * (covariance + (centres * component.weights[:, None]).T @ centres)
        return means, self.spread**2 * (second - np.outer(means, means))

    def draws(self, points: Points, count: int, rng: np.random.Generator) -> FloatArray:
        """Joint draws on the latent scale, shape (count, m)."""
        out, mean = np.empty((count, len(points))), np.zeros(len(points))
        counts = _systematic(self.weights, count, rng)
        filled, shared = 0, self._shared(points)
        for component, weight, number in zip(self.components, self.weights, counts, strict=True):
            if not number and self.spread == 1:
                continue
            centres, covariance = component.moments(points, shared)
            mean += weight * (component.weights @ centres)
            if not number:
                continue
            factor = cholesky(0.5 * (covariance + covariance.T) + 1e-9 * np.eye(len(points)))
            which = np.repeat(np.arange(len(centres)), _systematic(component.weights, number, rng))
            out[filled : filled + number] = (
                centres[which] + rng.standard_normal((number, len(points))) @ factor.T
            )
            filled += number
        return self._widened(out[rng.permutation(count)], mean)

    def marginal_draws(self, points: Points, levels: FloatArray, order: FloatArray) -> FloatArray:
        """Independent-by-point stratified draws, shape (len(levels), m).

        ``levels`` are standard normal quantiles and ``order`` uniforms of the same length: each pair picks a
        world by inverse distribution function and a deviation from it.
        """
        out, mean = np.empty((len(levels), len(points))), np.zeros(len(points))
        edges = np.cumsum(self.weights)
        pick = np.minimum(np.searchsorted(edges, order, side="right"), len(edges) - 1)
        across = share(self.components[0].data, points)
        for k, component in enumerate(self.components):
            chosen = np.flatnonzero(pick == k)
            if not len(chosen) and self.spread == 1:
                continue
            means, variance = component.marginals(points, across)
            mean += self.weights[k] * (component.weights @ means)
            inside = (order[chosen] - (edges[k] - self.weights[k])) / self.weights[k]
            cumulative = np.cumsum(component.weights)
            world = np.minimum(np.searchsorted(cumulative, inside, side="right"), len(cumulative) - 1)
            out[chosen] = means[world] + levels[chosen, None] * np.sqrt(variance)
        return self._widened(out, mean)

    def _widened(self, draws: FloatArray, mean: FloatArray) -> FloatArray:
        return draws if self.spread == 1 else np.asarray(mean + self.spread * (draws - mean))


def _systematic(weights: FloatArray, count: int, rng: np.random.Generator) -> np.ndarray:
    """How many of ``count`` draws each weight gets, by systematic resampling."""
    edges = np.cumsum(weights / weights.sum()) * count
    edges[-1] = count
    ticks = np.arange(count) + rng.uniform()
    return np.diff(np.searchsorted(ticks, edges, side="left"), prepend=0)


@lru_cache(maxsize=4)
def standard_draws(count: int = 2048) -> tuple[FloatArray, FloatArray]:
    """Stratified standard normal quantiles and uniforms in [0, 1), for `Posterior.marginal_draws`."""
    order = (np.arange(count) + 0.5) / count
    # Van der Corput in base 2: any stretch of `order` sees the whole normal distribution.
    bits, uniform, weight = np.arange(count), np.zeros(count), 0.5
    while bits.any():
        uniform += weight * (bits & 1)
        bits, weight = bits >> 1, weight / 2
    inverse = NormalDist().inv_cdf
    levels = np.array([inverse(u) for u in uniform + 0.5 / count])
    return levels, order
