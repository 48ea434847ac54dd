"""How long a fit and a decision take, in CPU seconds of one thread, against scikit-learn's exact GP on as many points.

    OMP_NUM_THREADS=1 python benchmarks/surrogate_speed.py [--out speed.json]

"fit + decide" starts from records in a process that has simulated nothing yet (a fresh ensemble seed per repeat, so
nothing is remembered), and ends with the optimum of the slice at the real budget: simulation, hyperparameters,
posterior, 2,000 joint draws. "again" is the same with the ensemble remembered, as a planner sees it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from race.allocation import unit_costs
from race.ladders import ladder
from race.records import PilotRecord, PilotSpec
from race.simulator import Worlds, run_world
from surrogate import Surrogate
from surrogate.optimum import optimum

BUDGET = 1e20


def records(runs: int) -> list[PilotRecord]:
    """Pilots over models and update fractions in one world; collapsed ones are replaced, to count points exactly."""
    rungs, rng, world = ladder(), np.random.default_rng(0), Worlds.prior(1, seed=1)
    recipe, out, seed = rungs.recipe("sparse"), [], 0
    while len(out) < runs:
        rung = rungs.models[seed % 3]
        costs = unit_costs(rung.architecture, recipe)
        rho = float(rng.uniform(0.2, 0.8))
        changed = recipe.with_update_ratio(float(costs.update_ratio(rho)))
        spec = PilotSpec(rung.name, rung.params, changed, rho, int(2e18 * 2 ** rng.uniform(-2, 2)), seed=seed)
        record = run_world(world, spec, seed=seed)
        if record.health.status == "ok":
            out.append(record)
        seed += 1
    return out


def decide(found: list[PilotRecord], seed: int) -> tuple[float, int]:
    """Seconds from records to a decision, and points used."""
    rungs = ladder()
    recipe = rungs.recipe("sparse")
    start = time.process_time()
    surrogate = Surrogate.fit(found, ladder=rungs, recipe=recipe, seed=seed)
    optimum(surrogate, budget=BUDGET)
    return time.process_time() - start, len(surrogate.state.data)


def scikit_learn(points: int) -> float:
    """Seconds for scikit-learn to fit a Matern-5/2 ARD GP with noise to as many points."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rng = np.random.default_rng(0)
    x = rng.standard_normal((points, 3))
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(points)
    kernel = ConstantKernel() * Matern(length_scale=np.ones(3), nu=2.5) + WhiteKernel()
    start = time.process_time()
    GaussianProcessRegressor(kernel, normalize_y=True).fit(x, y)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-sklearn", action="store_true", help="skip scikit-learn, which takes minutes at 2,000")
    arguments = parser.parse_args()
    decide(records(2), seed=999)  # imports and caches of prices are paid once per process
    rows = []
    for target, runs in ((0, 0), (300, 30), (1000, 100), (2000, 200)):
        found = records(runs)
        first = [decide(found, seed=1000 + i) for i in range(arguments.repeats)]
        again = [decide(found, seed=1000)[0] for _ in range(arguments.repeats)]
        row = {
            "points": first[0][1],
            "runs": runs,
            "fit_and_decide_s": round(float(np.median([s for s, _ in first])), 3),
            "again_s": round(float(np.median(again)), 3),
        }
        if target >= 300 and not arguments.no_sklearn:
            row["sklearn_fit_s"] = round(scikit_learn(row["points"]), 3)
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    text = json.dumps({"budget": BUDGET, "rows": rows}, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
