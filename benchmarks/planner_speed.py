"""How long a planner thinks: one `ask` after every pilot of a plan, and one `decide`, in CPU seconds of one thread.

    OMP_NUM_THREADS=1 python benchmarks/planner_speed.py [--out speed.json]

The first ask of a process simulates the whole table of candidates once, and an ask that follows a record fits the
surrogate first; both are included and named apart from an ask that finds everything remembered.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import optuna

from planner import NoProposal, Planner
from race.simulator.worlds import world


def cpu(work: object) -> tuple[float, object]:
    """Seconds of CPU that ``work()`` takes, and what it returns."""
    start = time.process_time()
    found = work()  # type: ignore[operator]
    return time.process_time() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    planner, subject = Planner("qwen2.5", budget="1e19", reward="prm", seed=3), world("own-3")
    asks, decisions, again = [], [], []
    while True:
        try:
            seconds, spec = cpu(planner.ask)
        except NoProposal:
            break
        asks.append(seconds)
        planner.tell(spec, subject(spec))  # type: ignore[arg-type]
        decisions.append(cpu(lambda: planner.decide(pilots=0))[0])
        again.append(cpu(lambda: planner.next_pilots(1))[0])
    found = {
        "pilots": len(asks),
        "ask_median_s": round(float(np.median(asks[1:])), 3),
        "ask_slowest_s": round(max(asks), 3),
        "fit_and_decide_median_s": round(float(np.median(decisions)), 3),
        "proposal_once_fitted_median_s": round(float(np.median(again)), 3),
        "proposal_once_fitted_slowest_s": round(max(again), 3),
    }
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
