"""Small statistics with a source each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def wilson(hits: int, n: int, level: float = 0.95) -> tuple[float, float, float]:
    """Share and its Wilson (1927) score interval; ``(nan, 0, 1)`` of nothing."""
    if n == 0:
        return math.nan, 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = hits / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return p, max(0.0, centre - half), min(1.0, centre + half)


def flat_p(arms: Sequence[FloatArray]) -> float | None:
    """p of the one-way F test that all arms have one mean; ``None`` where too few runs, or no spread, let it answer."""
    from scipy.stats import f as f_distribution

    n, k = sum(a.size for a in arms), len(arms)
    if k < 2 or n <= k:
        return None
    values = np.concatenate(list(arms))
    within = sum(float(((a - a.mean()) ** 2).sum()) for a in arms)
    between = sum(a.size * float((a.mean() - values.mean()) ** 2) for a in arms)
    if within <= 0:
        return None
    return float(f_distribution.sf(between / (k - 1) / (within / (n - k)), k - 1, n - k))


def number(value: Any) -> Any:
    """JSON's view of a value: no infinity, no NaN, no numpy."""
    if isinstance(value, dict):
        return {str(k): number(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [number(v) for v in value]
    if isinstance(value, np.ndarray):
        return number(value.tolist())
    if isinstance(value, (np.floating, np.integer, np.bool_)):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
