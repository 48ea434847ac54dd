"""Where the optimum of an IsoFLOP slice lies in recorded runs, and how sure that is, without any surrogate.

An *arm* is one update fraction of one slice with the final values of its seeds. The optimum is the vertex of the
parabola in logit ρ through the best arm and its neighbours (the paper's quadratic fit, kept local because the whole
response is not one), or the best arm itself at an end of the grid. Its uncertainty is a residual bootstrap: with three
seeds per arm, resampling an arm's own seeds would understate the spread, so residuals are pooled over the arms of a
slice and widened by sqrt(n / (n - 1)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from race.errors import InvalidInput

if TYPE_CHECKING:
    from race.records import PilotRecord

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class SliceKey:
    """What the runs of one IsoFLOP slice share; ``rank`` is 0 for full fine-tuning."""

    reward: str
    model: str
    budget: int
    rank: int


@dataclass(frozen=True)
class Frontier:
    """The response of one target over one slice.

    Attributes
    ----------
    rhos
        The arms' planned update fractions, ascending, shape (arms,).
    values
        Final values of each arm's runs; collapsed runs count with what they ended at.
    """

    key: SliceKey
    target: str
    rhos: FloatArray
    values: tuple[FloatArray, ...]

    @property
    def means(self) -> FloatArray:
        """Mean over seeds, shape (arms,)."""
        return np.array([found.mean() for found in self.values])

    @property
    def best(self) -> float:
        """The optimum ρ*."""
        return float(optimum(self.rhos, self.means[None, :])[0])

    def draws(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Bootstrap draws of the arms' means, shape (n, arms).

        Raises
        ------
        InvalidInput
            No arm has two seeds, so nothing says how far runs differ.
        """
        residuals = [
            (found - found.mean()) * np.sqrt(found.size / (found.size - 1))
            for found in self.values
            if found.size > 1
        ]
        if not residuals:
            raise InvalidInput(f"study: {self.key} has one seed per arm; allowed is at least two in one arm")
        pool = np.concatenate(residuals)
        drawn: FloatArray = np.stack(
            [found.mean() + rng.choice(pool, (n, found.size)).mean(axis=1) for found in self.values], axis=1
        )
        return drawn


def optimum(rhos: FloatArray, means: FloatArray) -> FloatArray:
    """ρ* of each row of ``means``, shape (draws, arms), over ascending ``rhos``, shape (arms,)."""
    x = np.log(rhos / (1 - rhos))
    top = means.argmax(axis=1)
    inner = np.clip(top, 1, max(len(rhos) - 2, 1))
    result: FloatArray = rhos[top].astype(float)
    if len(rhos) < 3:
        return result
    rows = np.arange(len(means))
    x0, x1, x2 = x[inner - 1], x[inner], x[inner + 1]
    y0, y1, y2 = means[rows, inner - 1], means[rows, inner], means[rows, inner + 1]
    left, right = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    curvature = (right - left) / (x2 - x0)
    bent = (top == inner) & (curvature < 0)
    # The slope at the middle of the left chord, followed down the curvature to zero.
    vertex = (x0 + x1) / 2 - np.divide(left, 2 * curvature, out=np.zeros_like(left), where=bent)
    result = np.where(bent, 1 / (1 + np.exp(-np.clip(vertex, x0, x2))), result)
    return result


def frontiers(records: Iterable[PilotRecord], target: str) -> dict[SliceKey, Frontier]:
    """One frontier per slice, from the final values of ``target``; runs that failed have none and are left out."""
    found: dict[SliceKey, dict[float, list[float]]] = {}
    for record in sorted(records, key=lambda r: r.id):
        curve = record.curves.get(target)
        if curve is None or record.health.status not in ("ok", "collapsed"):
            continue
        spec = record.spec
        rank = spec.recipe.lora.rank if spec.recipe.lora else 0
        key = SliceKey(spec.reward, spec.model, spec.budget, rank)
        found.setdefault(key, {}).setdefault(spec.rho, []).append(curve.value[-1])
    return {
        key: Frontier(key, target, np.array(sorted(arms)), tuple(np.array(arms[rho]) for rho in sorted(arms)))
        for key, arms in sorted(found.items())
    }


@dataclass(frozen=True)
class Interval:
    """A number with its equal-tailed bootstrap interval."""

    value: float
    lo: float
    hi: float

    @classmethod
    def of(cls, value: float, draws: FloatArray, level: float) -> Interval:
        """From bootstrap draws."""
        lo, hi = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        return cls(float(value), float(lo), float(hi))


def rho_star(frontier: Frontier, *, draws: int = 4000, level: float = 0.95, seed: int = 0) -> Interval:
    """ρ* of a frontier with its interval."""
    rng = np.random.default_rng(seed)
    return Interval.of(frontier.best, optimum(frontier.rhos, frontier.draws(draws, rng)), level)


def rho_star_difference(
    first: Frontier, second: Frontier, *, draws: int = 4000, level: float = 0.95, seed: int = 0
) -> Interval:
    """ρ* of ``first`` minus ρ* of ``second``, whose runs are independent."""
    rng = np.random.default_rng(seed)
    a, b = (optimum(f.rhos, f.draws(draws, rng)) for f in (first, second))
    return Interval.of(first.best - second.best, a - b, level)


def rescaled(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Min-max normalised per reward system, as the paper compares native rewards; a constant becomes 0."""
    result = {}
    for reward, found in values.items():
        low, high = min(found), max(found)
        result[reward] = [(v - low) / (high - low) if high > low else 0.0 for v in found]
    return result
