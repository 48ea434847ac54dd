"""From a fitted surrogate to the joint Gaussian beliefs the acquisition works on.

The surrogate's posterior is a mixture on a latent scale; its exact first two moments over [decision; candidates] are
what Gaussian conditioning needs. Moments rather than sample covariances of draws: with a thousand draws a spurious
correlation of 0.03 would give every pilot a floor of apparent information, and the cheapest one would win.

A value is g(z) of its latent z, g monotone. For jointly Gaussian latents Cov(g(z_d), z_c) = E[g'(z_d)] Cov(z_d, z_c)
(Stein's lemma), so the slope E[g'] carries latent covariances over to values without linearising at a point.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.acquisition import Beliefs
from planner.slices import BudgetSlice
from race.simulator import Settings
from surrogate import Surrogate
from surrogate.link import latent_sd, to_value
from surrogate.pending import join

FloatArray = npt.NDArray[np.float64]

# Gauss-Hermite nodes for E[g(z)] and E[g'(z)] under a normal.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Standard error of a pilot's evaluation before it has run: about 500 graded problems.
EVALUATION_SE = 0.02


def form_beliefs(
    surrogate: Surrogate,
    on: BudgetSlice,
    able: Settings,
    *,
    only: npt.ArrayLike | None = None,
    target: str | None = None,
) -> Beliefs:
    """Beliefs about the decision on the slice ``on`` and about what candidate pilots would measure.

    Parameters
    ----------
    surrogate
        Conditioned on running pilots already (`Surrogate.condition`).
    able
        Candidate pilots at their own budgets.
    only
        Which of ``able`` to keep, as an index; the surrogate remembers the whole table, so that a planner that asks
        again simulates nothing.
    target
        What is decided on and measured; the first one of the space by default.
    """
    target = on.space.target if target is None else target
    pilots, healthy = surrogate.points(able, target), 1 - surrogate.collapse_risk(able)
    if only is not None:
        keep = np.asarray(only, dtype=np.intp)
        pilots, healthy = pilots[keep], healthy[keep]
    latent, cov = surrogate.state.posterior.moments(join(surrogate.points(on.settings, target), pilots))
    cov = 0.5 * (cov + cov.T)
    decisions = len(on.settings)
    spread = np.sqrt(np.maximum(np.diag(cov), 1e-12))
    mean, slope = _through_link(latent[:decisions], spread[:decisions])
    # Settings whose single step the budget does not pay for can never be the decision.
    mean = np.where(on.affordable.ravel(), mean, -1.0)
    slope = np.where(on.affordable.ravel(), slope, 0.0)
    value = to_value(latent[decisions:])
    noise = surrogate.run_variance + latent_sd(value, np.full(len(value), EVALUATION_SE)) ** 2
    return Beliefs(mean, slope, cov, noise, healthy)


def _through_link(latent: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[g(z)] and E[g'(z)] for z ~ N(latent, spread^2), each of shape (n,).

    E[g'] by Stein's lemma too: E[g'(z)] = E[g(z) u] / spread with z = latent + spread u.
    """
    values = to_value(latent[:, None] + spread[:, None] * _NODES)
    return values @ _WEIGHTS, (values * _NODES) @ _WEIGHTS / spread
