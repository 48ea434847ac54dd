"""What a loop that ends by itself decides, and what it has spent: are larger pilots of the models in the race worth it?

    OMP_NUM_THREADS=1 python benchmarks/planner_stopping.py [--worlds 24] [--share 0 0.5 1]

Own and alien worlds of `race.simulator.worlds`, the questions of `planner_vs_peers.py`. Every planner runs with the
default rule: it ends when the regime is certain, or the pilot budget is spent. ``share`` is the part of the pilot
budget that larger pilots may take before a regime counts as certain (`planner.proving`); 0 is without them.

    spent      share of the pilot budget at the end          regret     value lost, as a share of the slice's range
    model      the model decided on is the best one          as_good    ... or one that loses at most 1 % of the range
    regime     the regime stated is the optimum's            value      the 90 % interval of the value holds it
    p_model    probability stated for the model decided on
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from planner_vs_peers import Problem, problems

import planner.proving as proving
from planner import Planner


def ended(problem: Problem) -> dict[str, float]:
    """One loop in one world."""
    planner = Planner(problem.rungs, budget=problem.budget, reward=problem.reward, seed=problem.seed)
    decision = planner.run(problem.world)
    truth = problem.truth
    _, loss = problem.dense
    value = truth.value_at(decision.model, decision.rho.mean)
    names = [m.name for m in planner.space.models]
    best_of_model = float(loss[names.index(decision.model)].min()) if len(loss) == len(names) else np.nan
    return {
        "spent": planner.progress.spent / planner.space.pilot_budget,
        "pilots": planner.progress.finished,
        "regret": (truth.value - value) / max(truth.range, 1e-12),
        "model": decision.model == truth.model,
        "as_good": best_of_model <= 0.01,
        "p_model": decision.view.models[decision.model],
        "regime": decision.regime == truth.regime,
        "p_regime": decision.certainty,
        "value": decision.view.value.lo <= value <= decision.view.value.hi,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=24, help="of each kind")
    parser.add_argument("--families", default="own,alien", help="comma-separated")
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    options = parser.parse_args()
    for family in options.families.split(","):
        for share in options.share:
            proving.SHARE = share
            rows = [ended(problem) for problem in problems(family, options.worlds)]
            means = {key: round(float(np.nanmean([r[key] for r in rows])), 3) for key in rows[0]}
            print(json.dumps({"family": family, "share": share, "worlds": len(rows), **means}), flush=True)


if __name__ == "__main__":
    main()
