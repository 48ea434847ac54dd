"""Do targets disagree? The same runs, read by two targets.

Differences are bootstrapped with a run's targets kept together. What optimising one target costs another is reported
twice: as the means show it, which is never negative and grows with noise alone, and cross-validated, where arms are
chosen on all seeds but one and judged on that one, so that noise averages out (and single values may be negative).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from real_runs.study.frontier import Interval, SliceKey, optimum
from real_runs.study.results.response import DRAWS, LEVEL, Response

FloatArray = npt.NDArray[np.float64]


def disagreement(
    slices: Mapping[SliceKey, Response],
    pairs: Sequence[tuple[str, str]],
    *,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> list[dict[str, Any]]:
    """ρ*(first) - ρ*(second), and what of the second is lost at the first's best arm, per slice and pair of targets."""
    rows = []
    for key, response in slices.items():
        for first, second in pairs:
            if first not in response.targets or second not in response.targets:
                continue
            rows.append(
                {**vars(key), "first": first, "second": second, **_one(response, first, second, draws, level)}
            )
    return rows


def _one(response: Response, first: str, second: str, draws: int, level: float) -> dict[str, Any]:
    i, j = response.column(first), response.column(second)
    means = response.means
    lost = float(means[:, j].max() - means[response.best(first), j])
    out: dict[str, Any] = {
        "difference": response.rho_star(first) - response.rho_star(second),
        "same_best_arm": response.best(first) == response.best(second),
        # On exact scores the two may be one measurement, as native and pass@1 are under the sparse reward.
        "same_values": all(bool(np.array_equal(v[:, i], v[:, j])) for v in response.values),
        "lost": lost,
        "lost_cross_validated": _cross_validated(response, i, j),
        "lo": None, "hi": None, "p_same_best_arm": None, "lost_lo": None, "lost_hi": None,
    }  # fmt: skip
    drawn = response.draws(draws)
    if drawn is not None:
        a, b = drawn[:, :, i], drawn[:, :, j]
        gap = Interval.of(0.0, optimum(response.rhos, a) - optimum(response.rhos, b), level)
        loss = Interval.of(0.0, b.max(axis=1) - b[np.arange(len(b)), a.argmax(axis=1)], level)
        out |= {
            "lo": gap.lo, "hi": gap.hi, "lost_lo": loss.lo, "lost_hi": loss.hi,
            "p_same_best_arm": float((a.argmax(axis=1) == b.argmax(axis=1)).mean()),
        }  # fmt: skip
    return out


def _cross_validated(response: Response, i: int, j: int) -> float | None:
    """Mean over left-out seeds of second[its best arm] - second[first's best arm]; ``None`` with a single seed."""
    seeds = min(len(v) for v in response.values)
    if seeds < 2:
        return None
    losses = []
    for left in range(seeds):
        rest = np.stack([np.delete(v, left, axis=0).mean(axis=0) for v in response.values])
        judged = np.array([v[left, j] for v in response.values])
        losses.append(judged[rest[:, j].argmax()] - judged[rest[:, i].argmax()])
    return float(np.mean(losses))
