"""The data of a page as JSON that cannot leave its script element, and nothing else.

``<``, ``>`` and ``&`` never appear in the output, so that neither ``</script>`` nor ``<!--`` can; names are made
printable first. Grids travel as base64 of little-endian float32: three digits need no more.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from race.allocation import Allocation
from race.hardware import find_gpu, gpu_names, hardware_cost
from race.reports.data import ReportData, Run, Scored, Slice, WhatIf
from race.reports.words import budget_text, plain, short_id

MAX_CURVES = 150  # learning curves drawn of one reward system; more are a grey mass
MAX_CURVES_IN_ALL = 240  # of several reward systems together, each of which is looked at alone
MAX_CHECKS = 400
MAX_PILOTS = 1000  # points on the IsoFLOP and simplex figures


def payload(data: ReportData) -> dict[str, Any]:
    """Everything the page's script draws or computes from."""
    return {
        "budget": data.budget,
        "reward": data.reward,
        "target": data.target,
        "targets": list(data.targets),
        "surrogate": plain(data.surrogate),
        "evidence": dict(data.decision["evidence"]),
        "advice": {
            "model": data.decision["recommendation"]["model"],
            "rho": data.decision["recommendation"]["rho"]["mean"],
            "shares": data.decision["recommendation"]["shares"],
        },
        "models": [{"name": name, "params": params} for name, params in data.models],
        "slices": [_slice(s) for s in data.slices],
        "paths": [{"model": m, "reward": r, "from": a, "to": b} for m, r, a, b in data.paths],
        "pilots": [_pilot(run) for run in evenly(data.runs, MAX_PILOTS)],
        "curves": [_curves(run) for run in drawn_curves(data.runs)],
        "checks": [_check(c) for c in evenly(data.checks["checks"], MAX_CHECKS)],
        "whatif": None if data.what_if is None else _what_if(data.what_if),
        "hardware": hardware(),
    }


def embed(value: Any) -> str:
    """JSON for a ``<script type="application/json">`` element."""
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def evenly(items: Sequence[Any], most: int) -> Sequence[Any]:
    """At most ``most`` of ``items``, spread over all of them."""
    if len(items) <= most:
        return items
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))]


def drawn_curves(runs: Sequence[Run]) -> list[Run]:
    """Runs whose learning curves are drawn: of every reward system evenly chosen ones."""
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        if run.curves:
            kinds.setdefault(run.reward, []).append(run)
    most = MAX_CURVES if len(kinds) < 2 else min(MAX_CURVES, MAX_CURVES_IN_ALL // len(kinds))
    return [run for group in kinds.values() for run in evenly(group, most)]


def hardware() -> dict[str, Any]:
    """The built-in GPUs and the ranges that translate FLOPs, as `race.hardware` uses them."""
    gpus = [find_gpu(name) for name in gpu_names()]
    assumed = hardware_cost(Allocation(0, 0, 0)).to_dict()["assumptions"]
    return {
        **{name: assumed[name] for name in ("utilisation", "draw", "pue")},
        "gpus": [
            {
                "name": g.name,
                "peak": g.peak_flops,
                "watts": g.watts,
                "price": None if g.price is None else g.price.to_dict(),
            }
            for g in gpus
        ],
    }


def _slice(s: Slice) -> dict[str, Any]:
    return {
        "target": s.target,
        "budget": s.budget,
        "star": dict(s.rho_star),
        "regimes": dict(s.regimes),
        "lines": [
            {
                "model": line.model,
                "rho": _round(line.rho),
                "mean": _round(line.mean),
                "lo": _round(line.lo),
                "hi": _round(line.hi),
                "probability": line.probability,
                "star": dict(line.rho_star),
                "regimes": dict(line.regimes),
            }
            for line in s.lines
        ],
    }


def _pilot(run: Run) -> dict[str, Any]:
    sigma, rho, phi = run.shares
    return {
        "id": short_id(run.id),
        "model": plain(run.model),
        "reward": run.reward,
        "status": run.status,
        "flops": run.flops,
        "shares": _round((sigma, rho, phi)),
        "ends": {name: [value[-1], se[-1]] for name, (_, value, se) in run.curves.items()},
    }


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    return {**check, "model": plain(check["model"]), "record": short_id(check["record"])}


def _curves(run: Run) -> dict[str, Any]:
    # Targets are mostly evaluated together: their curves share a list of FLOPs.
    grids: list[list[float]] = []
    points = {}
    for name, (flops, value, _) in run.curves.items():
        grid = [float(f"{x:.4g}") for x in evenly(flops, 60)]
        if grid not in grids:
            grids.append(grid)
        points[name] = {"grid": grids.index(grid), "value": _round(evenly(value, 60))}
    return {**_pilot(run), "grids": grids, "points": points}


def _what_if(grid: WhatIf) -> dict[str, Any]:
    return {
        "targets": list(grid.targets),
        "models": [{"name": name, "params": params} for name, params in grid.models],
        "budgets": [{"flops": b, "text": budget_text(b)} for b in grid.budgets],
        "rhos": list(grid.rhos),
        "level": grid.level,
        "variants": [_scored(v) for v in grid.variants],
        "mean": _packed(grid.mean),
        "lo": _packed(grid.lo),
        "hi": _packed(grid.hi),
        "collapse": _packed(grid.collapse),
    }


def _scored(v: Scored) -> dict[str, Any]:
    recipe = v.recipe
    return {
        "reward": v.reward,
        "scorer": v.scorer,
        "params": v.scorer_params,
        "prompts": recipe.prompts_per_step,
        "group": recipe.group_size,
        "lengths": [recipe.prompt_tokens, recipe.completion_tokens],
        "costs": [
            {
                "search": c.search_group,
                "reward": c.reward,
                "update": c.update,
                "old": c.old_logprobs,
                "reference": c.reference,
                "all": c.recompute_old_logprobs,
            }
            for c in v.costs
        ],
    }


def _packed(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")


def _round(values: Iterable[float]) -> list[float]:
    return [round(float(v), 5) for v in values]


def _plain(value: Any) -> Any:
    """JSON types only; NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
