"""The simulator against real data, before any training run is used.

Twice: with no record at all, and told only how good the base models are before training (the first evaluation of one
run per slice), which separates what the simulator gets wrong about a ladder that it has never seen from what it gets
wrong about training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from race.allocation import Allocation
from race.ladders import Ladder
from race.records import Curve, PilotRecord
from race.simulator import Settings
from real_runs.study.frontier import SliceKey, optimum
from real_runs.study.results.evidence import only, relative
from real_runs.study.results.response import DRAWS, Response
from real_runs.study.results.statistics import share_of
from real_runs.study.tuning import Rates
from surrogate import Surrogate

PRIOR_DRAWS = 2000
LEVEL = 0.9


NOTHING, BASES = "nothing", "base models"


def base_alone(record: PilotRecord) -> PilotRecord:
    """The record as it stood before its first step."""
    curves = {t: Curve(c.step[:1], c.flops[:1], c.value[:1], c.se[:1]) for t, c in record.curves.items()}
    return replace(record, curves=curves, flops=Allocation(0, 0, 0), steps=0, id=f"{record.id}_base")


def against_prior(
    slices: Mapping[SliceKey, Response],
    rates: Rates | None,
    rungs: Ladder,
    targets: Sequence[str],
    *,
    knowing: str = NOTHING,
) -> dict[str, Any]:
    """Predicted and measured per setting, and ρ* of every slice by both.

    Intervals are for the expected value of a setting; measured means carry the noise of a few seeds on top, which is
    small next to the prior's width. ``lost`` is what following the prior's best arm costs on the measured means.

    Parameters
    ----------
    knowing
        `NOTHING` or `BASES`.
    """
    settings: list[dict[str, Any]] = []
    peaks: list[dict[str, Any]] = []
    if slices:
        shown = [r.runs[0][0] for r in slices.values()] if knowing == BASES else []
        bases = [only(base_alone(r), targets) for r in shown if r.curves[targets[0]].flops[0] == 0]
        prior = Surrogate.fit(
            bases, ladder=rungs, recipe=rungs.recipe(next(iter(slices)).reward), targets=tuple(targets)
        )
    for key, response in slices.items():
        rows = [relative(runs[0], rates).spec for runs in response.runs]
        asked = Settings.build([(rungs[key.model], spec.recipe, spec.budget) for spec in rows])
        for target in targets:
            drawn = prior.sample(asked, target, draws=PRIOR_DRAWS, seed=0)
            lo, hi = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
            means = response.means[:, response.column(target)]
            predicted = drawn.mean(axis=0)
            about = {**vars(key), "target": target}
            for i, rho in enumerate(response.rhos.tolist()):
                settings.append(
                    {
                        **about, "rho": rho, "measured": float(means[i]), "mean": float(predicted[i]),
                        "lo": float(lo[i]), "hi": float(hi[i]), "covered": bool(lo[i] <= means[i] <= hi[i]),
                    }
                )  # fmt: skip
            if len(response.rhos) < 3:
                continue
            at = optimum(response.rhos, drawn)
            low, high = np.quantile(at, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            said = int(predicted.argmax())
            seeds = response.draws(DRAWS)
            overlap = None
            if seeds is not None:
                ends = np.quantile(optimum(response.rhos, seeds[:, :, response.column(target)]), [0.025, 0.975])
                overlap = bool(ends[0] <= high and low <= ends[1])
            found = response.rho_star(target)
            order = np.corrcoef(means, predicted)[0, 1] if np.ptp(means) > 0 and np.ptp(predicted) > 0 else np.nan
            peaks.append(
                {
                    **about, "rho_star": found, "prior_rho_star": float(optimum(response.rhos, predicted[None])[0]),
                    "lo": float(low), "hi": float(high), "inside": bool(low - 1e-9 <= found <= high + 1e-9),
                    "overlap": overlap, "lost": float(means.max() - means[said]), "correlation": float(order),
                }
            )  # fmt: skip
    out = {"level": LEVEL, "knowing": knowing, "settings": settings, "peaks": peaks}
    return {**out, "rows": _rows(settings, peaks, targets)}


def _rows(
    settings: Sequence[Mapping[str, Any]], peaks: Sequence[Mapping[str, Any]], targets: Sequence[str]
) -> list[dict[str, Any]]:
    out = []
    for target in targets:
        mine = [s for s in settings if s["target"] == target]
        tops = [p for p in peaks if p["target"] == target]
        if not mine:
            continue
        errors = np.array([s["measured"] - s["mean"] for s in mine])
        together = [p["correlation"] for p in tops if np.isfinite(p["correlation"])]
        out.append(
            {
                "target": target, "settings": len(mine),
                "coverage": share_of(sum(s["covered"] for s in mine), len(mine)),
                "rmse": float(np.sqrt(np.mean(errors**2))), "bias": float(errors.mean()),
                "spread": float(np.std([s["measured"] for s in mine])),
                "slices": len(tops), "rho_star_inside": share_of(sum(p["inside"] for p in tops), len(tops)),
                "median_lost": float(np.median([p["lost"] for p in tops])) if tops else None,
                "median_correlation": float(np.median(together)) if together else None,
            }
        )  # fmt: skip
    return out
