"""Are the stated intervals and probabilities true? Own and alien worlds apart.

    OMP_NUM_THREADS=1 python benchmarks/surrogate_calibration.py [--worlds 60] [--out calibration.json]

Every world (`race.simulator.worlds`: known truth) gets random pilots, so that no planner is measured along: models at
random, update fractions even in logit over the feasible range, sizes from 1/32 to 1/8 of the pilot budget, until that
is spent. The surrogate is fitted, and what it states about the slice at the real budget is held against the truth.

Per row, with 95 % intervals by bootstrap over worlds:
    value       the 90 % interval of the recommended setting's value contains it
    grid        the same, averaged over all settings of the slice
    rho         the 90 % interval of rho* contains the true one
    band        ... or at least one update fraction with which some model loses at most 1 % of the slice's range
    regime      the most probable regime is the true one;  ece: expected calibration error of its probability
    as_good     ... or one whose best setting loses at most 1 % of the slice's range
    regret      value lost by the recommended setting, as a share of the slice's range
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from race.allocation import REGIMES, unit_costs
from race.ladders import Ladder, ladder
from race.recipe import Recipe
from race.records import PilotRecord, PilotSpec
from race.simulator.worlds import World, alien_worlds, own_worlds
from surrogate import Surrogate
from surrogate.optimum import Slice, optimum

MIN_STEPS = 2
ROUNDING = 1e-6  # of rho: an optimum that sits on a kink of the costs may be the end of an interval
_HITS = ("value", "grid", "rho", "band", "regime", "as_good", "model")


def design(
    world: World, rungs: Ladder, recipe: Recipe, budget: float, share: float, target: str, seed: int
) -> list[PilotRecord]:
    """Random pilots worth ``share`` of the budget."""
    rng = np.random.default_rng([seed, 17])
    left, records, misses = share * budget, [], 0
    while misses < 20:
        rung = rungs.models[int(rng.integers(len(rungs.models)))]
        costs = unit_costs(rung.architecture, recipe)
        low, high = (np.log(x / (1 - x)) for x in costs.rho_range)
        rho = float(1 / (1 + np.exp(-rng.uniform(low + 0.2, high - 0.2))))
        size = share * budget * 2.0 ** -rng.integers(3, 6)
        changed = recipe.with_update_ratio(float(costs.update_ratio(rho)))
        step = costs.step(changed.prompts_per_step, changed.update_ratio * changed.samples_per_step).total
        if size > left or size < MIN_STEPS * 1.05 * step:
            misses += 1
            continue
        spec = PilotSpec(rung.name, rung.params, changed, rho, int(size), seed=len(records), targets=(target,))
        records.append(world(spec))
        left -= size
    return records


def trial(
    world: World, rungs: Ladder, recipe: Recipe, budget: float, share: float, target: str, seed: int
) -> dict[str, float]:
    """One world: what was stated against what is."""
    records = design(world, rungs, recipe, budget, share, target, seed) if share else []
    start = time.process_time()
    fitted = Surrogate.fit(records, ladder=rungs, recipe=recipe, targets=(target,))
    found = optimum(fitted, budget=budget, target=target)
    seconds = time.process_time() - start
    truth = world.truth(rungs, recipe, int(budget), target)
    on = Slice.build(rungs.models, recipe, budget)
    exact = world.physics.expected(on.settings, target)
    stated = fitted.predict(on.settings, target)
    value = truth.value_at(found.model, found.recommended_rho)
    confidence = max(found.regimes.values())
    good = (exact >= truth.value - 0.01 * truth.range) & on.affordable.ravel()
    near = np.append(on.settings.rho[good], truth.rho)
    as_good = {REGIMES[i] for i in on.settings.regime[good]} | {truth.regime}
    return {
        "value": found.value.lo <= value <= found.value.hi,
        "grid": float(np.mean((exact >= stated.lo) & (exact <= stated.hi))),
        "rho": found.rho.lo - ROUNDING <= truth.rho <= found.rho.hi + ROUNDING,
        "band": bool(np.any((found.rho.lo - ROUNDING <= near) & (near <= found.rho.hi + ROUNDING))),
        "regime": found.regime == truth.regime,
        "as_good": found.regime in as_good,
        "model": found.model == truth.model,
        "confidence": confidence,
        "p_true": found.regimes[truth.regime],
        "rho_width": found.rho.hi - found.rho.lo,
        "value_width": found.value.hi - found.value.lo,
        "regret": (truth.value - value) / max(truth.range, 1e-12),
        "records": len(fitted.runs),
        "points": len(fitted.state.data),
        "seconds": seconds,
    }


def calibration_error(confidence: np.ndarray, hit: np.ndarray, bins: int = 5) -> float:
    """Expected calibration error over equal-count bins."""
    order = np.argsort(confidence)
    parts = [p for p in np.array_split(order, bins) if len(p)]
    return float(sum(len(p) * abs(confidence[p].mean() - hit[p].mean()) for p in parts) / len(order))


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Means with bootstrap intervals."""
    table = {key: np.array([float(r[key]) for r in rows]) for key in rows[0]}
    rng = np.random.default_rng(0)
    picks = rng.integers(len(rows), size=(1000, len(rows)))
    out: dict[str, Any] = {"worlds": len(rows)}
    for key, values in table.items():
        if key in _HITS:
            low, high = np.quantile(values[picks].mean(axis=1), [0.025, 0.975])
            out[key] = [round(float(x), 3) for x in (values.mean(), low, high)]
        else:
            out[key] = round(float(values.mean()), 4)
    out["regret_median"] = round(float(np.median(table["regret"])), 4)
    out["ece"] = round(calibration_error(table["confidence"], table["regime"]), 3)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=60, help="of each kind")
    parser.add_argument("--start", type=int, default=0, help="number of the first world")
    parser.add_argument("--budget", type=float, nargs="+", default=[1e19, 1e20])
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.03, 0.1], help="pilot budget over budget")
    parser.add_argument("--reward", nargs="+", default=["sparse", "prm"])
    parser.add_argument("--target", default="native")
    parser.add_argument("--kind", nargs="+", default=["own", "alien"])
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments = parser.parse_args()
    rungs, results = ladder(), []
    for kind in arguments.kind:
        worlds = {"own": own_worlds, "alien": alien_worlds}[kind](arguments.worlds, start=arguments.start)
        for share in arguments.share:
            pooled = []
            for reward in arguments.reward:
                for budget in arguments.budget:
                    recipe = rungs.recipe(reward)
                    rows = [
                        trial(w, rungs, recipe, budget, share, arguments.target, arguments.start + i)
                        for i, w in enumerate(worlds)
                    ]
                    pooled += rows
                    at = {"kind": kind, "share": share, "reward": reward, "budget": budget}
                    results.append({**at, **summary(rows)})
                    print(json.dumps(results[-1]), file=sys.stderr, flush=True)
            results.append({"kind": kind, "share": share, "reward": "all", "budget": "all", **summary(pooled)})
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    text = json.dumps({"target": arguments.target, "rows": results}, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
