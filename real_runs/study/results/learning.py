"""Do search-heavy settings under-learn, and do update-heavy ones run out of exploration?

Per arm of a slice, from the recorded learning curves:

    late_gain     gain of pass@1 over the second half of the budget: still rising means under-used learning
    done_half     share of the whole gain that the first half of the budget brought
    silent        share of groups whose rewards were all equal, which teach nothing
    memorised     accuracy on the newest training rollouts minus held-out pass@1 at the end
    collapsed     share of runs that collapsed
    samples       rollouts seen in all; update-heavy settings see few
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from race.records import Curve, PilotRecord
from real_runs.study.frontier import SliceKey
from real_runs.study.results.optima import spending
from real_runs.study.results.response import Response


def arms(slices: Mapping[SliceKey, Response], target: str = "pass@1") -> list[dict[str, Any]]:
    """One row per arm of every slice."""
    rows = []
    for key, response in slices.items():
        for runs in response.runs:
            curves = [r.curves[target] for r in runs]
            rows.append(
                {
                    **vars(key),
                    "target": target,
                    **spending(runs),
                    "final": _mean(c.value[-1] for c in curves),
                    "gain": _mean(c.value[-1] - c.value[0] for c in curves),
                    "late_gain": _mean(c.value[-1] - halfway(c) for c in curves),
                    "silent": _mean(_numbers(r.provenance.get("silent_groups") for r in runs)),
                    "memorised": _mean(_numbers(_memorised(r) for r in runs)),
                    "collapsed": float(np.mean([r.health.status == "collapsed" for r in runs])),
                    "curve": mean_curve(curves),
                }
            )
            gain, late = rows[-1]["gain"], rows[-1]["late_gain"]
            rows[-1]["done_half"] = (gain - late) / gain if gain > 0.02 else None
    return rows


def halfway(curve: Curve) -> float:
    """Value at half of the run's FLOPs, linear between evaluations."""
    return float(np.interp(0.5 * curve.flops[-1], curve.flops, curve.value))


def mean_curve(curves: Sequence[Curve], points: int = 13) -> dict[str, list[float]]:
    """Mean over runs at even shares of the FLOPs spent, linear between evaluations."""
    shares = np.linspace(0, 1, points)
    values = [np.interp(shares * c.flops[-1], c.flops, c.value) for c in curves]
    return {"share": shares.tolist(), "value": np.mean(values, axis=0).tolist()}


def ends_of_range(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lowest, best and highest ρ of each slice side by side: what the two ends lack that the best arm has."""
    out = []
    slices: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        slices.setdefault((row["reward"], row["model"], row["budget"], row["rank"]), []).append(row)
    for found in slices.values():
        best = max(found, key=lambda r: r["final"])
        for name, row in (("lowest", found[0]), ("best", best), ("highest", found[-1])):
            out.append({"arm": name, **{k: v for k, v in row.items() if k != "curve"}})
    return out


def _memorised(record: PilotRecord) -> float | None:
    training = record.provenance.get("training")
    if not isinstance(training, Sequence) or not training or "pass@1" not in record.curves:
        return None
    newest = training[-1]
    accuracy = newest.get("accuracy") if isinstance(newest, Mapping) else None
    return float(accuracy) - record.curves["pass@1"].value[-1] if isinstance(accuracy, (int, float)) else None


def _numbers(values: Iterable[Any]) -> list[float]:
    return [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None
