"""Covariances: what the simulator gets wrong, what runs share, and what evaluations add.

    residual(x, x') = B(reward, reward') T(target, target') * ( level^2 (1 + M52(size)) / 2
                        + gain(x) gain(x') (trend^2 M52(r) + shape^2 (M52(p) + M52(s)) / 2) )
                      q^2 = |recipe - recipe'|^2,          r^2 = q^2 + (size, budget) distance / l^2
                      p^2 = q^2 + rho distance / l^2,      s^2 = r^2 + rho distance / l^2
    ensemble(x, x') = scale^2 D(x)' D(x')                               rank <= W - 1
    noise, one run  = g g' T (run^2 + curve^2 exp(-|log C - log C'| / 2)) + diag(white^2 + se_latent^2)

g is the square root of the share of the run that is done: with it the curve term is exactly a random walk in
FLOPs, min(C, C') / C_end, and seeds cannot differ at the base model.

`level` is what the simulator gets wrong about base models. Its errors about learning are in proportion to what is
learned: where a budget buys next to nothing there is nothing to be wrong about, and an error in shape that stayed
the same size would drown the optimum there. gain is the ensemble's own root mean square gain, with a floor. Half of the
error in shape is common to all sizes and budgets: that small pilots tell which update fractions suit the problem is
what pilots are for.

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


def _matern(square: FloatArray) -> FloatArray:
    """M52 at squared scaled distances: (1 + r + r^2/3) e^-r with r^2 = 5 square."""
    r = np.sqrt(5 * square)
    decay = np.exp(-r)
    # In place from here: at 2,000 points a pass over memory is most of the cost.
    out = r / 3
    out += 1
    out *= r
    out += 1
    out *= decay
    return np.asarray(out)


def _matern_slope(square: FloatArray) -> FloatArray:
    """-2 dM52/d(square): (5/3)(1 + r) e^-r."""
    r = np.sqrt(5 * square)
    return np.asarray((5 / 3) * (1 + r) * np.exp(-r))


def _size_matern(a: Points, b: Points, length: float) -> FloatArray:
    """M52 along size, from the few sizes there are, shape (n, m)."""
    left, left_index = np.unique(a.x[:, _SIZE], return_inverse=True)
    right, right_index = np.unique(b.x[:, _SIZE], return_inverse=True)
    few = _matern(((left[:, None] - right[None, :]) / length) ** 2)
    return few[left_index.ravel()][:, right_index.ravel()]


def _mixing(a: Points, b: Points, hyper: Hyperparameters) -> FloatArray | float:
    """B(reward, reward') T(target, target'), shape (n, m), or 1 where all points share one reward and target."""
    out: FloatArray | float = 1.0
    for left, right, correlation in (
        (a.reward, b.reward, hyper.reward_correlation),
        (a.target, b.target, hyper.target_correlation),
    ):
        if len(left) and len(right) and not (np.all(left == left[0]) and np.all(right == left[0])):
            out = out * np.where(left[:, None] == right[None, :], 1.0, correlation)
    return out


def residual(a: Points, b: Points, hyper: Hyperparameters) -> FloatArray:
    """Covariance of the simulator's error between two sets of points, shape (n, m)."""
    left, right = (a.x / hyper.lengths).T, (b.x / hyper.lengths).T
    square = np.zeros((len(a), len(b)))
    for one, other in zip(a.recipe.T, b.recipe.T, strict=True):
        if one.size and other.size and (np.ptp(one) or np.ptp(other) or one[0] != other[0]):
            square += np.subtract.outer(one, other) ** 2
    along_rho = np.subtract.outer(left[_RHO], right[_RHO]) ** 2
    total = 0.5 * hyper.shape**2 * _matern(square + along_rho)
    for axis in (_SIZE, _BUDGET):
        square += np.subtract.outer(left[axis], right[axis]) ** 2
    total += hyper.trend**2 * _matern(square)
    square += along_rho
    total += 0.5 * hyper.shape**2 * _matern(square)
    total *= a.gain[:, None]
    total *= b.gain[None, :]
    total += 0.5 * hyper.level**2 * (1 + _size_matern(a, b, float(hyper.lengths[_SIZE])))
    total *= _mixing(a, b, hyper)
    return total


def residual_variance(points: Points, hyper: Hyperparameters) -> FloatArray:
    """Diagonal of `residual`, shape (n,)."""
    return np.asarray(hyper.level**2 + points.gain**2 * (hyper.trend**2 + hyper.shape**2))


def noise_blocks(data: Data, hyper: Hyperparameters, variance: FloatArray, inflation: FloatArray) -> list[FloatArray]:
    """Noise covariance of each run, in the order of ``data.blocks``; runs share no noise.

    Parameters
    ----------
    variance
        Latent evaluation variance, shape (n,).
    inflation
        Factor >= 1 on a whole run's noise, shape (runs,).
    """
    return [
        factor * noise_block(data, block, hyper, variance) for block, factor in zip(data.blocks, inflation, strict=True)
    ]


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
        mixing = _mixing(self.data, self.data, hyper)
        grown = mixing * np.outer(self.data.gain, self.data.gain)
        weight = 0.5 * hyper.shape**2 * grown
        square = self.recipe + by_axis[_RHO]
        shape, rho_slope = weight * _matern(square), weight * _matern_slope(square)
        square = self.recipe + by_axis[_SIZE] + by_axis[_BUDGET]
        trend, slope = (hyper.trend**2 * grown * f(square) for f in (_matern, _matern_slope))
        square = square + by_axis[_RHO]
        shape += weight * _matern(square)
        both_slope = weight * _matern_slope(square)
        slope, rho_slope = slope + both_slope, rho_slope + both_slope
        level = 0.5 * hyper.level**2 * mixing * (1 + _matern(by_axis[_SIZE]))
        level_slope = 0.5 * hyper.level**2 * mixing * _matern_slope(by_axis[_SIZE])
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
            "length_rho": rho_slope * by_axis[_RHO],
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


