"""Covariances: what the simulator gets wrong, what runs share, and what evaluations add.

    residual(x, x') = B(reward, reward') T(target, target') * ( level^2 (1 + M52(size)) / 2
                        + gain(x) gain(x') (trend^2 M52(r) + shape^2 M52(s)) )
                      r^2 = (size, budget) distance / l^2 + |recipe - recipe'|^2,  s^2 = r^2 + rho distance / l^2
    ensemble(x, x') = scale^2 D(x)' D(x')                               rank <= W - 1
    noise, one run  = g g' T (run^2 + curve^2 exp(-|log C - log C'| / 2)) + diag(white^2 + se_latent^2)

g is the square root of the share of the run that is done: with it the curve term is exactly a random walk in
FLOPs, min(C, C') / C_end, and seeds cannot differ at the base model.

`level` is what the simulator gets wrong about base models. Its errors about learning are in proportion to what is
learned: where a budget buys next to nothing there is nothing to be wrong about, and an error in shape that stayed
the same size would drown the optimum there. gain is the ensemble's own root mean square gain, with a floor.

B and T are compound-symmetric: 1 on the diagonal, one correlation off it. With five rewards and a handful
of runs a free coregionalisation matrix is not identifiable; one number each is. M52 is the Matern-5/2 function.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from surrogate.hyperparameters import Hyperparameters
from surrogate.points import Data, FloatArray, Points

_SIZE, _RHO, _BUDGET = range(3)
CURVE_LENGTH = 2.0
RUN_TARGET_CORRELATION = 0.7  # a lucky seed is partly lucky on every target


def _matern(square: FloatArray) -> tuple[FloatArray, FloatArray]:
    """M52 at squared scaled distances, and -2 dM52/d(square): (1 + r + r^2/3) e^-r, (5/3)(1 + r) e^-r."""
    r = np.sqrt(5 * square)
    decay = np.exp(-r)
    return (1 + r + r * r / 3) * decay, (5 / 3) * (1 + r) * decay


def _mixing(a: Points, b: Points, hyper: Hyperparameters) -> FloatArray:
    same_reward = a.reward[:, None] == b.reward[None, :]
    same_target = a.target[:, None] == b.target[None, :]
    return np.where(same_reward, 1.0, hyper.reward_correlation) * np.where(
        same_target, 1.0, hyper.target_correlation
    )


def residual(a: Points, b: Points, hyper: Hyperparameters) -> FloatArray:
    """Covariance of the simulator's error between two sets of points, shape (n, m)."""
    left, right = (a.x / hyper.lengths).T, (b.x / hyper.lengths).T
    by_axis = [(left[axis][:, None] - right[axis][None, :]) ** 2 for axis in (_SIZE, _RHO, _BUDGET)]
    level, _ = _matern(by_axis[_SIZE])
    total = 0.5 * hyper.level**2 * (1 + level)
    square = by_axis[_SIZE] + by_axis[_BUDGET]
    for one, other in zip(a.recipe.T, b.recipe.T, strict=True):
        if one.size and other.size and (np.ptp(one) or np.ptp(other) or one[0] != other[0]):
            square += (one[:, None] - other[None, :]) ** 2
    trend, _ = _matern(square)
    shape, _ = _matern(square + by_axis[_RHO])
    total += np.outer(a.gain, b.gain) * (hyper.trend**2 * trend + hyper.shape**2 * shape)
    return np.asarray(_mixing(a, b, hyper) * total)


def residual_variance(points: Points, hyper: Hyperparameters) -> FloatArray:
    """Diagonal of `residual`, shape (n,)."""
    return np.asarray(hyper.level**2 + points.gain**2 * (hyper.trend**2 + hyper.shape**2))


def noise(data: Data, hyper: Hyperparameters, variance: FloatArray, inflation: FloatArray) -> FloatArray:
    """Noise covariance, block diagonal by run, shape (n, n).

    Parameters
    ----------
    variance
        Latent evaluation variance, shape (n,).
    inflation
        Factor >= 1 on a whole run's noise, shape (runs,), in the order of ``data.blocks``.
    """
    out = np.zeros((len(data), len(data)))
    for block, factor in zip(data.blocks, inflation, strict=True):
        out[block, block] = factor * noise_block(data, block, hyper, variance)
    return out


def noise_block(data: Data, block: slice, hyper: Hyperparameters, variance: FloatArray) -> FloatArray:
    """Noise covariance among the points of one run."""
    wander, shift = _run_correlations(data, block)
    covariance = hyper.run**2 * shift + hyper.curve**2 * wander
    covariance[np.diag_indices_from(covariance)] += hyper.white**2 + variance[block]
    return covariance


def _run_correlations(data: Data, block: slice) -> tuple[FloatArray, FloatArray]:
    budget, growth, target = data.x[block, 2], data.growth[block], data.target[block]
    share = np.where(target[:, None] == target[None, :], 1.0, RUN_TARGET_CORRELATION)
    shift = share * np.outer(growth, growth)
    return shift * np.exp(-np.abs(budget[:, None] - budget[None, :]) / CURVE_LENGTH), shift


class Gram:
    """Covariance of the data and its derivatives, with everything that does not depend on theta kept."""

    def __init__(self, data: Data, variance: FloatArray, inflation: FloatArray) -> None:
        self.data, self.variance = data, variance
        d = data.deviations
        self.ensemble = d.T @ d
        self.squares = np.stack([(c[:, None] - c[None, :]) ** 2 for c in data.x.T])
        self.recipe = np.zeros_like(self.ensemble)
        for c in data.recipe.T:
            if np.ptp(c):
                self.recipe += (c[:, None] - c[None, :]) ** 2
        self.wander = np.zeros_like(self.ensemble)
        self.shift = np.zeros_like(self.ensemble)
        self.point = np.zeros(len(data))
        for block, factor in zip(data.blocks, inflation, strict=True):
            wander, shift = _run_correlations(data, block)
            self.wander[block, block], self.shift[block, block] = factor * wander, factor * shift
            self.point[block] = factor

    @cached_property
    def several_rewards(self) -> bool:
        """Whether the data inform the correlation between rewards."""
        return bool(np.ptp(self.data.reward)) if len(self.data) else False

    @cached_property
    def several_targets(self) -> bool:
        """Whether the data inform the correlation between targets."""
        return bool(np.ptp(self.data.target)) if len(self.data) else False

    def covariance(self, theta: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Covariance of the observed latents, and its derivative by each informed hyperparameter."""
        hyper = Hyperparameters(theta)
        ensemble = hyper.scale**2 * self.ensemble
        by_axis = self.squares / (hyper.lengths**2)[:, None, None]
        square = self.recipe + by_axis[_SIZE] + by_axis[_BUDGET]
        mixing = _mixing(self.data, self.data, hyper)
        level, level_slope = _matern(by_axis[_SIZE])
        trend, trend_slope = _matern(square)
        shape, shape_slope = _matern(square + by_axis[_RHO])
        grown = mixing * np.outer(self.data.gain, self.data.gain)
        level = 0.5 * hyper.level**2 * mixing * (1 + level)
        trend = hyper.trend**2 * grown * trend
        shape = hyper.shape**2 * grown * shape
        shape_slope *= hyper.shape**2 * grown
        slope = shape_slope + hyper.trend**2 * grown * trend_slope
        level_slope *= 0.5 * hyper.level**2 * mixing
        run, curve = hyper.run**2 * self.shift, hyper.curve**2 * self.wander
        white = hyper.white**2 * self.point
        total = ensemble + level + trend + shape + run + curve
        total[np.diag_indices_from(total)] += white + self.point * self.variance
        derivatives = {
            "scale": 2 * ensemble,
            "level": 2 * level,
            "trend": 2 * trend,
            "shape": 2 * shape,
            "length_size": (slope + level_slope) * by_axis[_SIZE],
            "length_rho": shape_slope * by_axis[_RHO],
            "length_budget": slope * by_axis[_BUDGET],
            "run": 2 * run,
            "curve": 2 * curve,
            "white": np.diag(2 * white),
        }
        for name, informed, index in (
            ("reward_correlation", self.several_rewards, self.data.reward),
            ("target_correlation", self.several_targets, self.data.target),
        ):
            if informed:
                # d sigmoid / d logit = c (1 - c), and these entries carry one factor c already.
                apart = index[:, None] != index[None, :]
                derivatives[name] = (level + trend + shape) * apart * (1 - getattr(hyper, name))
        return total, derivatives


