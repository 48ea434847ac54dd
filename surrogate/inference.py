"""Hyperparameters from data: a MAP by Fisher scoring, and a few draws of its Laplace approximation.

    gradient_i = (a' K_i a - tr(K^-1 K_i)) / 2,    a = K^-1 (z - mean)
    Fisher_ij  = tr(K^-1 K_i K^-1 K_j) / 2

Fisher scoring rather than L-BFGS: the information matrix is positive definite by construction, half a dozen
iterations suffice, and its inverse is the Laplace covariance that the draws need anyway.

Above `SUBSET` points the hyperparameters are learned on a subset (they enter through n^3): the ends of all curves, then
points before them; of more runs than it has room for, an even selection. The posterior itself always uses every point.
"""

from __future__ import annotations

import numpy as np

from race.errors import CannotDo
from surrogate.hyperparameters import INDEX, PRIOR_MEAN, PRIOR_SD, log_prior
from surrogate.kernels import Gram
from surrogate.linalg import cholesky, solve_lower
from surrogate.points import Data, FloatArray, IntArray

SUBSET = 140
SUBSET_MOST = 300
_GOLDEN = 0.6180339887498949
_ITERATIONS = 25
_TOLERANCE = 0.02  # nats gained by a step


def learn(gram: Gram) -> tuple[FloatArray, FloatArray]:
    """MAP and Laplace covariance of the hyperparameters, shapes (d,) and (d, d)."""
    theta = PRIOR_MEAN.copy()
    value, gradient, information = _objective(gram, theta)
    damping = 1e-3
    for _ in range(_ITERATIONS):
        step = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
        # At most one prior standard deviation at a time: further out the quadratic model means nothing.
        step /= max(1.0, float(np.max(np.abs(step) / PRIOR_SD)))
        try:
            proposal = _objective(gram, theta + step)
            gain = proposal[0] - value
        except CannotDo:  # a covariance that cannot be factorised is a step too far, not an answer
            gain = -np.inf
        if gain > 0:
            theta = theta + step
            value, gradient, information = proposal
            damping = max(damping / 4, 1e-6)
            if gain < _TOLERANCE:
                break
        else:
            damping = max(damping * 10, 1e-2)
            if damping > 1e4:
                break
    return theta, np.asarray(np.linalg.inv(information), dtype=np.float64)


def _objective(gram: Gram, theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Log posterior of theta, its gradient, and the Fisher information plus prior precision."""
    data = gram.data
    density, gradient, curvature = log_prior(theta)
    total, derivatives = gram.covariance(theta)
    factor = cholesky(total)
    inverse_factor = solve_lower(factor, np.eye(len(data)))
    inverse = inverse_factor.T @ inverse_factor
    centred = data.latent - data.mean
    alpha = inverse @ centred
    value = -0.5 * float(centred @ alpha) - float(np.log(np.diag(factor)).sum()) + density
    information = np.diag(curvature)
    where = np.array([INDEX[name] for name in derivatives])
    stack = np.stack(list(derivatives.values()))
    whitened = inverse @ stack
    gradient[where] += 0.5 * (
        np.einsum("i,kij,j->k", alpha, stack, alpha, optimize=True) - np.trace(whitened, axis1=1, axis2=2)
    )
    flat = whitened.reshape(len(where), -1)
    transposed = whitened.transpose(0, 2, 1).reshape(len(where), -1)
    information[np.ix_(where, where)] += 0.5 * flat @ transposed.T
    return value, gradient, 0.5 * (information + information.T)


def draw(mean: FloatArray, covariance: FloatArray, count: int, *, seed: int) -> FloatArray:
    """``count`` hyperparameter vectors: the mode, then antithetic pairs of Laplace draws. Shape (count, d)."""
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    half = rng.standard_normal((count // 2, len(mean))) @ (vectors * np.sqrt(np.maximum(values, 1e-12))).T
    return np.concatenate([mean[None], mean + half, mean - half])[:count]


def subset(data: Data, limit: int | None = None) -> IntArray:
    """Indices of at most ``limit`` points, by default two per curve from `SUBSET` up to `SUBSET_MOST`.

    Points are ranked within their curve from its end, then halved: last, first, middle, quarters; so a curve that
    loses points keeps its span. Of equal rank an even selection of curves is taken: records come sorted, and the last
    ones alone would be those of one model.
    """
    key = data.run * (data.target.max(initial=0) + 1) + data.target
    curves = np.unique(key)
    limit = min(max(SUBSET, 2 * len(curves)), SUBSET_MOST) if limit is None else limit
    if len(data) <= limit:
        return np.arange(len(data))
    rank, turn = np.empty(len(data)), np.empty(len(data))
    for number, curve in enumerate(curves):
        inside = np.flatnonzero(key == curve)
        rank[inside] = _halving_rank(len(inside))
        turn[inside] = number * _GOLDEN % 1  # any first few of these numbers are spread evenly
    return np.sort(np.lexsort((turn, rank))[:limit])


def _halving_rank(count: int) -> FloatArray:
    """0 for the last of ``count`` points, 1 for the first, then midpoints of ever shorter stretches."""
    rank = np.full(count, np.inf)
    rank[-1] = 0
    rank[0] = min(rank[0], 1)
    stretches, level = [(0, count - 1)], 2
    while stretches:
        following = []
        for low, high in stretches:
            middle = (low + high) // 2
            if low < middle < high:
                rank[middle] = level
                following += [(low, middle), (middle, high)]
        stretches, level = following, level + 1
    return rank
