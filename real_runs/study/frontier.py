"""Where the optimum of an IsoFLOP slice lies in recorded runs, without any surrogate.

An *arm* is one update fraction of one slice. The optimum is the vertex of the parabola in logit ρ through the best arm
and its neighbours (the paper's quadratic fit, kept local because the whole response is not one), or the best arm itself
at an end of the grid. How sure that is, is said by the bootstrap of `real_runs.study.results.response`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class SliceKey:
    """What the runs of one IsoFLOP slice share; ``rank`` is 0 for full fine-tuning."""

    reward: str
    model: str
    budget: int
    rank: int


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


def rescaled(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Min-max normalised per reward system, as the paper compares native rewards; a constant becomes 0."""
    result = {}
    for reward, found in values.items():
        low, high = min(found), max(found)
        result[reward] = [(v - low) / (high - low) if high > low else 0.0 for v in found]
    return result
