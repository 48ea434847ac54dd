"""Intervals of shares, for evaluations of a policy and for studies alike."""

from __future__ import annotations

import math

Z95 = 1.959963984540054


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % Wilson (1927) interval of a binomial share: sane at 0 and 1, where the normal one has no width."""
    z2 = Z95 * Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
