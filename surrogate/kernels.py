"""Covariances: what the simulator gets wrong, what runs share, and what evaluations add.

    residual(x, x') = B(reward, reward') T(target, target') * ( level^2 (1 + M52(size) + same) / 3
                        + gain(x) gain(x') (trend^2 (M52(r) + same M52(b)) / 2 + shape^2 (M52(p) + M52(s)) / 2) )
                      q^2 = |recipe - recipe'|^2       b^2 = q^2 + budget distance / l^2
                      r^2 = b^2 + size distance / l^2  p^2 = q^2 + rho distance / l^2   s^2 = r^2 + rho distance / l^2
    ensemble(x, x') = scale^2 D(x)' D(x')                               rank <= W - 1
    noise, one run  = g g' T (run^2 + curve^2 exp(-|log C - log C'| / 2)) + diag(white^2 + se_latent^2)

g is the square root of the share of the run that is done: with it the curve term is exactly a random walk in
FLOPs, min(C, C') / C_end, and seeds cannot differ at the base model.

`level` is what the simulator gets wrong about base models. Its errors about learning are in proportion to what is
learned: where a budget buys next to nothing there is nothing to be wrong about, and an error in shape that stayed
the same size would drown the optimum there. gain is the ensemble's own root mean square gain, with a floor.
`same` is 1 for points of one model: pre-training leaves every model its own quirks, which no other size foretells;
without it two sizes would seem to say all about a third. Half of the error in shape is common to all sizes and
budgets: that small pilots tell which update fractions suit the problem is what pilots are for.

B and T are compound-symmetric: 1 on the diagonal, one correlation off it. With five rewards and a handful
of runs a free coregionalisation matrix is not identifiable; one number each is. M52 is the Matern-5/2 function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surrogate.hyperparameters import Hyperparameters
from surrogate.points import Data, FloatArray, IntArray, Points

SIZE, RHO, BUDGET = range(3)
_SAME_MODEL = 1e-6  # in log parameters: the same model, up to rounding
CURVE_LENGTH = 2.0
RUN_TARGET_CORRELATION = 0.7  # a lucky seed is partly lucky on every target


@dataclass(frozen=True)
class Term:
    """One summand of the residual: share * amplitude^2 * M52(over axes), between points of one model if ``same``.

    Terms that scale with ``gain`` also feel the distance between recipes; a base model has no recipe.
    """

    amplitude: str
    share: float
    axes: tuple[int, ...]
    same: bool = False
    gain: bool = True


TERMS = (
    Term("level", 1 / 3, (), gain=False),
    Term("level", 1 / 3, (SIZE,), gain=False),
    Term("level", 1 / 3, (), same=True, gain=False),
    Term("trend", 1 / 2, (SIZE, BUDGET)),
    Term("trend", 1 / 2, (BUDGET,), same=True),
    Term("shape", 1 / 2, (RHO,)),
    Term("shape", 1 / 2, (SIZE, RHO, BUDGET)),
)


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


@dataclass(frozen=True)
class Distances:
    """What the terms need to know about two sets of points whatever the hyperparameters: everything (n, m).

    Among the points of one set (`among`) only the pairs on and below the diagonal are kept, as one long row: at 2,000
    points a Matern function of all pairs is most of what a fit costs, and half of it is the other half mirrored.
    """

    squares: tuple[FloatArray, FloatArray, FloatArray]
    recipe: FloatArray | float
    same: FloatArray
    gain: FloatArray
    pairs: tuple[IntArray, IntArray] | None = None

    @classmethod
    def between(cls, a: Points, b: Points) -> Distances:
        """Distances of all pairs."""
        recipe: FloatArray | float = 0.0
        for one, other in zip(a.recipe.T, b.recipe.T, strict=True):
            if one.size and other.size and (np.ptp(one) or np.ptp(other) or one[0] != other[0]):
                recipe = recipe + np.subtract.outer(one, other) ** 2
        size, rho, budget = (np.subtract.outer(one, other) ** 2 for one, other in zip(a.x.T, b.x.T, strict=True))
        same = (size < _SAME_MODEL**2).astype(np.float64)
        return cls((size, rho, budget), recipe, same, np.outer(a.gain, b.gain))

    @classmethod
    def among(cls, a: Points) -> Distances:
        """Distances of the pairs i >= j of one set, shape (n (n + 1) / 2,)."""
        i, j = np.tril_indices(len(a))
        recipe: FloatArray | float = 0.0
        for one in a.recipe.T:
            if one.size and np.ptp(one):
                recipe = recipe + (one[i] - one[j]) ** 2
        size, rho, budget = ((one[i] - one[j]) ** 2 for one in a.x.T)
        same = (size < _SAME_MODEL**2).astype(np.float64)
        return cls((size, rho, budget), recipe, same, a.gain[i] * a.gain[j], (i, j))

    def matrix(self, values: FloatArray, shape: tuple[int, int]) -> FloatArray:
        """Values of all pairs as a matrix."""
        if self.pairs is None:
            return values
        out = np.empty(shape)
        out[self.pairs] = values
        out[self.pairs[::-1]] = values
        return out

    def square(self, term: Term, lengths: FloatArray) -> FloatArray:
        """Squared scaled distance of a term."""
        out = self.recipe if term.gain else 0.0
        for axis in term.axes:
            out = out + self.squares[axis] / lengths[axis] ** 2
        return np.asarray(out)

    def weighted(self, term: Term, hyper: Hyperparameters, shape: FloatArray) -> FloatArray:
        """A term's correlation ``shape`` with its amplitude, share, gains and restriction to one model."""
        out = shape * (term.share * getattr(hyper, term.amplitude) ** 2)
        if term.gain:
            out = out * self.gain
        return np.asarray(out * self.same if term.same else out)


@dataclass(frozen=True)
class Cross:
    """Distances from data to settings that share most of their coordinates, as grids and slices do.

    A term sees some of the coordinates only, of which a grid of thousands of settings has a few dozen combinations: its
    Matern function is computed once for each of these and read off for every setting.

    Attributes
    ----------
    parts
        For every term the distances to one setting of each combination, and the combination of every setting (m,).
    same, gain
        Shape (n, m).
    """

    parts: tuple[tuple[Distances, IntArray], ...]
    same: FloatArray
    gain: FloatArray

    @classmethod
    def between(cls, a: Points, b: Points) -> Cross:
        """Distances of all pairs."""
        found: dict[tuple[tuple[int, ...], bool], tuple[Distances, IntArray]] = {}
        for term in TERMS:
            if (term.axes, term.gain) not in found:
                seen = np.concatenate([b.x[:, term.axes], b.recipe if term.gain else b.recipe[:, :0]], axis=1)
                first, back = np.zeros(min(len(b), 1), dtype=np.intp), np.zeros(len(b), dtype=np.intp)
                if seen.shape[1]:
                    # Update fractions that were solved for differ in the last bits.
                    _, first, back = np.unique(seen.round(9), axis=0, return_index=True, return_inverse=True)
                found[term.axes, term.gain] = Distances.between(a, b[first]), np.asarray(back, dtype=np.intp).ravel()
        same = np.abs(np.subtract.outer(a.x[:, SIZE], b.x[:, SIZE])) < _SAME_MODEL
        parts = tuple(found[term.axes, term.gain] for term in TERMS)
        return cls(parts, same.astype(np.float64), np.outer(a.gain, b.gain))

    def residual(self, hyper: Hyperparameters) -> FloatArray:
        """`residual` but for the mixing of rewards and targets."""
        sums: dict[tuple[bool, bool], FloatArray] = {}
        for term, (part, back) in zip(TERMS, self.parts, strict=True):
            shape = np.broadcast_to(_matern(part.square(term, hyper.lengths)), part.gain.shape)
            each = np.take(shape * (term.share * getattr(hyper, term.amplitude) ** 2), back, axis=1)
            key = term.gain, term.same
            if key in sums:
                sums[key] += each
            else:
                sums[key] = each
        learned = sums[True, False] + sums[True, True] * self.same
        learned *= self.gain
        learned += sums[False, False]
        learned += sums[False, True] * self.same
        return learned


def residual(
    a: Points, b: Points, hyper: Hyperparameters, distances: Distances | Cross | None = None
) -> FloatArray:
    """Covariance of the simulator's error between two sets of points, shape (n, m).

    ``distances`` saves computing them again under other hyperparameters.
    """
    between = Cross.between(a, b) if distances is None else distances
    if isinstance(between, Cross):
        out = between.residual(hyper)
    else:
        total = np.zeros(between.gain.shape)
        for term in TERMS:
            total += between.weighted(term, hyper, _matern(between.square(term, hyper.lengths)))
        out = between.matrix(total, (len(a), len(b)))
    out *= _mixing(a, b, hyper)
    return out


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
    budget, growth, target = data.x[block, BUDGET], data.growth[block], data.target[block]
    share = np.where(target[:, None] == target[None, :], 1.0, RUN_TARGET_CORRELATION)
    shift = share * np.outer(growth, growth)
    return shift * np.exp(-np.abs(budget[:, None] - budget[None, :]) / CURVE_LENGTH), shift


class Gram:
    """Covariance of the data and its derivatives, with everything that does not depend on theta kept."""

    def __init__(self, data: Data, variance: FloatArray, inflation: FloatArray) -> None:
        self.data, self.variance = data, variance
        d = data.deviations
        self.ensemble = d.T @ d
        self.distances = Distances.between(data, data)
        self.wander, self.shift = np.zeros_like(self.ensemble), np.zeros_like(self.ensemble)
        self.point = np.zeros(len(data))
        for block, factor in zip(data.blocks, inflation, strict=True):
            wander, shift = _run_correlations(data, block)
            self.wander[block, block], self.shift[block, block] = factor * wander, factor * shift
            self.point[block] = factor

    def covariance(self, theta: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Covariance of the observed latents, and its derivative by each informed hyperparameter."""
        hyper, shape = Hyperparameters(theta), self.ensemble.shape
        mixing = _mixing(self.data, self.data, hyper)
        parts = {name: np.zeros(shape) for name in ("level", "trend", "shape")}
        slopes = [np.zeros(shape) for _ in (SIZE, RHO, BUDGET)]
        for term in TERMS:
            square = self.distances.square(term, hyper.lengths)
            parts[term.amplitude] += self.distances.weighted(term, hyper, _matern(square)) * mixing
            if term.axes:
                slope = self.distances.weighted(term, hyper, _matern_slope(square)) * mixing
                for axis in term.axes:
                    slopes[axis] += slope * self.distances.squares[axis] / hyper.lengths[axis] ** 2
        error = parts["level"] + parts["trend"] + parts["shape"]
        ensemble = hyper.scale**2 * self.ensemble
        run, curve = hyper.run**2 * self.shift, hyper.curve**2 * self.wander
        white = hyper.white**2 * self.point
        total = ensemble + error + run + curve
        total[np.diag_indices_from(total)] += white + self.point * self.variance
        derivatives = {
            "scale": 2 * ensemble,
            **{name: 2 * part for name, part in parts.items()},
            "length_size": slopes[SIZE],
            "length_rho": slopes[RHO],
            "length_budget": slopes[BUDGET],
            "run": 2 * run,
            "curve": 2 * curve,
            "white": np.diag(2 * white),
        }
        for name, index in (("reward_correlation", self.data.reward), ("target_correlation", self.data.target)):
            if len(index) and np.ptp(index):
                # d sigmoid / d logit = c (1 - c), and these entries carry one factor c already.
                apart = index[:, None] != index[None, :]
                derivatives[name] = error * apart * (1 - getattr(hyper, name))
        return total, derivatives
