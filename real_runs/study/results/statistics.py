"""Small statistics with a source each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from real_runs.intervals import wilson

FloatArray = npt.NDArray[np.float64]


def share_of(hits: int, n: int) -> tuple[float, float, float]:
    """A share and its 95 % Wilson interval; ``(nan, 0, 1)`` of nothing."""
    return (hits / n, *wilson(hits / n, n)) if n else (math.nan, 0.0, 1.0)


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
