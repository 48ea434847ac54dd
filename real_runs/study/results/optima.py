"""Frontiers and where they peak: per slice, between reward systems, tuned against fixed rate, with shares and steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from race.allocation import unit_costs
from race.ladders import Ladder
from race.records import PilotRecord
from real_runs.study.frontier import Interval, SliceKey, rescaled
from real_runs.study.results.response import (
    DRAWS,
    LEVEL,
    FloatArray,
    Response,
    difference,
    difference_draws,
    peak,
    regimes,
)

Responses = Mapping[SliceKey, Response]


def curves(slices: Responses, target: str) -> list[dict[str, Any]]:
    """IsoFLOP curves: mean, standard deviation and runs of every arm.

    Native values also come min-max normalised within their reward system over all models and budgets here: the only
    form in which they may be compared across reward systems.
    """
    means = {k: r.means[:, r.column(target)].tolist() for k, r in slices.items()}
    pooled: dict[str, list[float]] = {}
    for key, found in means.items():
        pooled.setdefault(key.reward, []).extend(found)
    scaled = {reward: iter(values) for reward, values in rescaled(pooled).items()} if target == "native" else {}
    rows = []
    for key, response in slices.items():
        arms = response.arms(target)
        row: dict[str, Any] = {
            **vars(key),
            "target": target,
            "rho": response.rhos.tolist(),
            "mean": means[key],
            "sd": [float(a.std(ddof=1)) if a.size > 1 else None for a in arms],
            "n": [int(a.size) for a in arms],
            "values": [a.tolist() for a in arms],
            "update_ratio": [float(np.mean([r.spec.recipe.update_ratio for r in runs])) for runs in response.runs],
            "learning_rate": [float(np.mean([r.spec.recipe.learning_rate for r in runs])) for runs in response.runs],
        }
        if scaled:
            row["normalised"] = [next(scaled[key.reward]) for _ in means[key]]
        rows.append(row)
    return rows


def peaks(slices: Responses, targets: Sequence[str], rungs: Ladder, *, draws: int = DRAWS) -> list[dict[str, Any]]:
    """ρ* of every slice and target, with the regime that it lies in."""
    rows = []
    for key, response in slices.items():
        for target in targets:
            found = peak(response, target, draws=draws)
            label = regimes(rungs, key, response.runs[0][0], found.rho)[0]
            rows.append({**found.to_dict(), "regime": label})
    return rows


def _interval(found: Interval | None) -> dict[str, Any]:
    return {"value": None, "lo": None, "hi": None} if found is None else dict(vars(found))


def between_rewards(
    slices: Responses, targets: Sequence[str], rungs: Ladder, *, base: str = "sparse", draws: int = DRAWS
) -> list[dict[str, Any]]:
    """ρ* of every other reward system minus ρ* of ``base``, per model, budget and rank; and over models together.

    The row of model ``all`` is the mean of the models' differences, whose runs are independent. ``priced`` is what the
    difference would be if both had their optimum at one update ratio: feedback has a price, and moves ρ at any a.
    """
    rows = []
    together: dict[tuple[str, int, int, str], list[tuple[float, FloatArray]]] = {}
    for key, response in slices.items():
        other = slices.get(SliceKey(base, key.model, key.budget, key.rank))
        if key.reward == base or other is None:
            continue
        for target in targets:
            value = response.rho_star(target) - other.rho_star(target)
            gaps = difference_draws(response, other, target, draws=draws)
            found = None if gaps is None else Interval.of(value, gaps, LEVEL)
            priced = _priced(rungs, key, other, response, other.rho_star(target))
            rows.append({**vars(key), "base": base, "target": target, **_interval(found), "priced": priced})
            if gaps is not None:
                together.setdefault((key.reward, key.budget, key.rank, target), []).append((value, gaps))
    for (reward, budget, rank, target), parts in together.items():
        if len(parts) > 1:
            # Each part was drawn with the same generator: shuffled, so that models stay independent.
            rng = np.random.default_rng(0)
            mixed = np.mean([rng.permutation(gaps) for _, gaps in parts], axis=0)
            found = Interval.of(float(np.mean([v for v, _ in parts])), mixed, LEVEL)
            about = {"reward": reward, "model": "all", "budget": budget, "rank": rank}
            rows.append({**about, "base": base, "target": target, "models": len(parts), **_interval(found)})
    return rows


def _priced(rungs: Ladder, key: SliceKey, base: Response, other: Response, rho: float) -> float:
    """ρ under the other reward system at the update ratio that ``rho`` is under the base, minus ``rho``."""
    arch = rungs[key.model].architecture
    costs = [unit_costs(arch, r.runs[0][0].spec.recipe.with_update_ratio(1.0)) for r in (base, other)]
    return float(costs[1].rho(costs[0].update_ratio(rho))) - rho


def tuned_and_fixed(
    tuned: Responses, fixed: Responses, targets: Sequence[str], *, draws: int = DRAWS
) -> list[dict[str, Any]]:
    """ρ* at tuned rates minus ρ* at the fixed one, and what tuning buys at the best arm of each.

    Where the tuned rate is the fixed one, both hold the same runs: ``shared`` of them. Slices that share some are
    compared as if they shared none, which makes the interval too wide; those that share all are the same slice.
    """
    rows = []
    for key, response in fixed.items():
        other = tuned.get(key)
        if other is None:
            continue
        ids = [{run.id for runs in r.runs for run in runs} for r in (response, other)]
        shared = len(ids[0] & ids[1])
        for target in targets:
            found = difference(other, response, target, draws=draws)
            if shared == sum(len(v) for v in response.values) == sum(len(v) for v in other.values):
                found = Interval(0.0, 0.0, 0.0)
            gain = float(other.means[:, other.column(target)].max() - response.means[:, response.column(target)].max())
            rows.append({**vars(key), "target": target, **_interval(found), "best_gain": gain, "shared": shared})
    return rows


def at_optimum(slices: Responses, targets: Sequence[str]) -> list[dict[str, Any]]:
    """Shares, steps, samples and update ratio of the best arm of every slice, as the runs measured them."""
    rows = []
    for key, response in slices.items():
        for target in targets:
            runs = response.runs[response.best(target)]
            rows.append({**vars(key), "target": target, **spending(runs)})
    return rows


def spending(runs: Iterable[PilotRecord]) -> dict[str, Any]:
    """Means over runs of one setting."""
    found = list(runs)

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    recipe = found[0].spec.recipe
    return {
        "rho": found[0].spec.rho,
        "update_ratio": mean(r.spec.recipe.update_ratio for r in found),
        "learning_rate": mean(r.spec.recipe.learning_rate for r in found),
        "search_share": mean(r.flops.sigma for r in found),
        "learning_share": mean(r.flops.rho for r in found),
        "reward_share": mean(r.flops.phi for r in found),
        "steps": mean(r.steps for r in found),
        "samples": mean(r.steps * recipe.samples_per_step for r in found),
    }


def larger_fewer(slices: Responses, rungs: Ladder, target: str) -> list[dict[str, Any]]:
    """Does a larger policy take fewer steps at equal FLOPs: at its own optimum, and at every equal ρ?"""
    order = [m.name for m in rungs.models]
    groups: dict[tuple[str, int, int], dict[str, Response]] = {}
    for key, response in slices.items():
        groups.setdefault((key.reward, key.budget, key.rank), {})[key.model] = response
    rows = []
    for (reward, budget, rank), by_model in sorted(groups.items()):
        names = [m for m in order if m in by_model]
        if len(names) < 2:
            continue
        best = [spending(by_model[m].runs[by_model[m].best(target)])["steps"] for m in names]
        shared = set.intersection(*(set(by_model[m].rhos.tolist()) for m in names))
        equal = {
            rho: [spending(by_model[m].runs[by_model[m].rhos.tolist().index(rho)])["steps"] for m in names]
            for rho in sorted(shared)
        }
        rows.append(
            {
                "reward": reward, "budget": budget, "rank": rank, "target": target, "models": names,
                "steps_at_optimum": best, "fewer_at_optimum": _falling(best),
                "steps_at_equal_rho": equal, "fewer_at_every_equal_rho": all(_falling(s) for s in equal.values()),
            }
        )  # fmt: skip
    return rows


def _falling(steps: Sequence[float]) -> bool:
    return all(b < a for a, b in pairwise(steps))
