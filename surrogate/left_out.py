"""Any part of the data predicted from the rest, in closed form.

With hyperparameters held, points B of the data given the others have, in world w,

    error      z_B - E[z_B | rest, w] = (K^-1_BB)^-1 (K^-1 r_w)_B,    r_w = z - centre_w
    covariance                          (K^-1_BB)^-1

and the worlds (and hyperparameter draws) are reweighted by what they say about the rest alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surrogate.linalg import solve_lower
from surrogate.points import FloatArray, IntArray
from surrogate.posterior import Component, log_mean_exp


@dataclass(frozen=True)
class Forecast:
    """What one component says about left-out points from the rest.

    Attributes
    ----------
    means
        In every world of the ensemble, shape (W, b).
    covariance
        That all worlds share, measurement noise included, shape (b, b).
    weights
        Probability of each world given the rest, shape (W,).
    evidence
        Log marginal likelihood of the rest.
    """

    means: FloatArray
    covariance: FloatArray
    weights: FloatArray
    evidence: float

    @property
    def variances(self) -> FloatArray:
        """Diagonal of ``covariance``, shape (b,)."""
        return np.maximum(np.diag(self.covariance), 1e-12)


class LeftOut:
    """Leave-points-out under one component, over all worlds of the ensemble."""

    def __init__(self, component: Component) -> None:
        self.data = component.data
        inverse_factor = solve_lower(component.factor, np.eye(len(self.data)))
        residuals = component.all_residuals().T
        self.inverse = inverse_factor.T @ inverse_factor
        self.alpha = self.inverse @ residuals
        self.fit = -0.5 * np.sum((inverse_factor @ residuals) ** 2, axis=0)
        self.log_det = float(np.log(np.diag(component.factor)).sum())

    def predict(self, points: IntArray) -> Forecast:
        """The data at ``points`` (indices) as all others foretell them."""
        precision = self.inverse[np.ix_(points, points)]
        precision = 0.5 * (precision + precision.T)
        covariance = np.linalg.inv(precision)
        covariance = 0.5 * (covariance + covariance.T)
        errors = covariance @ self.alpha[points]
        here = -0.5 * np.sum(errors * (precision @ errors), axis=0)
        here += 0.5 * float(np.linalg.slogdet(precision)[1])
        rest = self.fit - self.log_det - here
        count = len(self.data) - len(points)
        weights = np.exp(rest - rest.max())
        return Forecast(
            (self.data.latent[points][:, None] - errors).T,
            covariance,
            weights / weights.sum(),
            log_mean_exp(rest) - 0.5 * count * float(np.log(2 * np.pi)),
        )


def shares(forecasts: Sequence[Forecast], components: Sequence[Component], weights: FloatArray) -> FloatArray:
    """Weights of the components given the rest alone, shape (k,)."""
    change = np.array([f.evidence - c.evidence for f, c in zip(forecasts, components, strict=True)])
    out = weights * np.exp(change - change.max())
    return np.asarray(out / out.sum())
