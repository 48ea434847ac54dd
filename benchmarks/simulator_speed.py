"""How many simulated runs per second, learning curves included, on one core.

    OMP_NUM_THREADS=1 python benchmarks/simulator_speed.py [--json]

A run is one (world, setting) cell. CPU time is used, not wall time, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from race.ladders import ladder
from race.records import PilotSpec
from race.simulator import Settings, Worlds, simulate, simulate_curves
from race.simulator.worlds import world


def cpu_seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sizes = ladder()
    worlds = Worlds.prior(128, seed=0)
    rhos = np.linspace(0.1, 0.9, 30)
    results = {}
    for reward in ("sparse", "prm"):
        grid = Settings.grid(sizes, sizes.recipe(reward), rhos=rhos, budgets=[1e17, 1e18])
        grid = grid[grid.feasible]
        runs = len(worlds) * len(grid)
        final = cpu_seconds(lambda grid=grid: simulate(worlds, grid, targets=("native",)))
        curves = cpu_seconds(lambda grid=grid: simulate_curves(worlds, grid, points=12, targets=("native",)))
        everything = cpu_seconds(lambda grid=grid: simulate_curves(worlds, grid, points=12))
        results[f"{reward}: final values, runs per second"] = runs / final
        results[f"{reward}: curves of 12 points, runs per second"] = runs / curves
        results[f"{reward}: curves, three targets, runs per second"] = runs / everything
    model = sizes.models[1]
    spec = PilotSpec(model.name, model.params, sizes.recipe("prm"), 0.4, 10**17, 0)
    subject = world("own-0")
    results["one noisy pilot, ms"] = 1e3 * cpu_seconds(lambda: subject(spec), repeats=10)
    results["truth of an own world, ms"] = 1e3 * cpu_seconds(
        lambda: subject.truth(sizes, sizes.recipe("prm"), 10**18)
    )
    results["Worlds.prior(256), first call excluded, ms"] = 1e3 * cpu_seconds(lambda: Worlds.prior(256))
    if args.json:
        print(json.dumps(results, indent=1))
        return
    for name, value in results.items():
        print(f"{name:50} {value:12,.1f}")


if __name__ == "__main__":
    main()
