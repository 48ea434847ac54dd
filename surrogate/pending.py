"""Conditioning on runs whose results are still to come.

A pilot that is running will narrow the posterior by an amount that does not depend (to first order) on what
it finds. So means stay, covariances shrink:

    f'(x) = f(x) - C(x, P) [C(P, P) + N]^-1 (f(P) + noise - mean f(P))

applied to joint draws of the mixture (Matheron's rule): its first two moments come out as those of the mixture
conditioned linearly, and the draws keep the mixture's shape.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from surrogate.linalg import cholesky
from surrogate.points import FloatArray, Points
from surrogate.posterior import Component, Posterior


def join(a: Points, b: Points) -> Points:
    """Points of ``a``, then of ``b``."""
    return Points(
        **{
            f.name: np.concatenate([getattr(a, f.name), getattr(b, f.name)], axis=1 if f.name == "ensemble" else 0)
            for f in fields(Points)
        }
    )


def block_diagonal(a: FloatArray, b: FloatArray) -> FloatArray:
    """The two covariances side by side, shape (p + q, p + q)."""
    out = np.zeros((len(a) + len(b), len(a) + len(b)))
    out[: len(a), : len(a)], out[len(a) :, len(a) :] = a, b
    return out


@dataclass(frozen=True)
class Pending:
    """A posterior that counts on observations to come; same questions as `Posterior`.

    Attributes
    ----------
    base
        What is known now.
    points
        P, where results will come, p of them.
    noise
        N, their noise covariance, shape (p, p).
    """

    base: Posterior
    points: Points
    noise: FloatArray

    @property
    def components(self) -> tuple[Component, ...]:
        """Those of the base: hyperparameters do not change before results are in."""
        return self.base.components

    @property
    def weights(self) -> FloatArray:
        """Those of the base."""
        return self.base.weights

    @property
    def spread(self) -> float:
        """That of the base."""
        return self.base.spread

    def mean(self, points: Points) -> FloatArray:
        """Posterior mean latent, shape (m,): what it was."""
        return self.base.mean(points)

    def moments(self, points: Points) -> tuple[FloatArray, FloatArray]:
        """Mean (m,) and covariance (m, m) on the latent scale."""
        mean, covariance = self.base.moments(join(points, self.points))
        m = len(points)
        gain = self._gain(covariance, m)
        return mean[:m], covariance[:m, :m] - gain @ covariance[m:, :m]

    def draws(self, points: Points, count: int, rng: np.random.Generator) -> FloatArray:
        """Joint draws on the latent scale, shape (count, m)."""
        both, m = join(points, self.points), len(points)
        mean, covariance = self.base.moments(both)
        gain = self._gain(covariance, m)
        joint = self.base.draws(both, count, rng)
        seen = joint[:, m:] + rng.standard_normal((count, len(self.points))) @ cholesky(self.noise).T
        return np.asarray(joint[:, :m] - (seen - mean[m:]) @ gain.T)

    def marginal_draws(self, points: Points, levels: FloatArray, order: FloatArray) -> FloatArray:
        """Stratified draws of each point alone, shape (len(levels), m): the base's, narrowed about their mean."""
        now = self.base.marginal_draws(points, levels, order)
        mean, after = self.moments(points)
        before = now.var(axis=0)
        narrow = np.sqrt(np.clip(np.diag(after) / np.maximum(before, 1e-12), 0, 1))
        return np.asarray(mean + (now - now.mean(axis=0)) * narrow)

    def _gain(self, covariance: FloatArray, m: int) -> FloatArray:
        seen = covariance[m:, m:] + self.noise
        return np.asarray(np.linalg.solve(0.5 * (seen + seen.T), covariance[m:, :m]).T, dtype=np.float64)
