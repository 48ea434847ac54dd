"""What the loop itself costs per pilot: ask, launch, tell, refit, decide, look around.

    OMP_NUM_THREADS=1 python benchmarks/loop_overhead.py [--pilots 200] [--workers 8] [--storage sqlite|journal]

Pilots of a simulated world that take no time, in this process, so that whatever passes is the loop's own. Each turn of
the loop handles every pilot that has ended by then, which with several workers is several at once; ``--workers 1`` is
the dearest case, one fit for every pilot.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import optuna

from planner import Planner, StoppingRule
from planner.storage import open_storage
from race.ladders import ladder
from race.store import Store
from real_runs.executors.simulated import SimulatorExecutor
from real_runs.loop import Loop, LoopFolder, LoopOptions, LoopState

BUDGET = 10**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilots", type=int, default=200)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--storage", default="sqlite", choices=("sqlite", "journal"))
    parser.add_argument("--delay", type=float, default=0.0)
    told = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        folder = LoopFolder(Path(scratch))
        folder.prepare()
        path = folder.study if told.storage == "sqlite" else folder.path / "study.journal"
        pilots = BUDGET // 10
        planner = Planner(
            ladder(), budget=BUDGET, reward="prm", pilot_budget=pilots, sizes=[pilots // told.pilots],
            storage=open_storage(path), rule=StoppingRule(min_pilots=10**6),
        )  # fmt: skip
        marks: list[tuple[int, float, float]] = []

        def watch(state: LoopState) -> None:
            marks.append((state.progress.finished, time.process_time(), time.monotonic()))

        loop = Loop(
            planner, SimulatorExecutor("own-0", slots=told.workers, delay=told.delay), folder=folder,
            store=Store(folder.store, create=True), options=LoopOptions(prune=False), watch=watch,
        )  # fmt: skip
        begun, cpu = time.monotonic(), time.process_time()
        ending = loop.run()
        wall, cpu = time.monotonic() - begun, time.process_time() - cpu
        done = planner.progress.finished
        late = [(n, c, w) for n, c, w in marks if n >= 0.9 * done]
        last = max(1, late[-1][0] - late[0][0])
        print(
            json.dumps(
                {
                    "pilots": done,
                    "workers": told.workers,
                    "storage": told.storage,
                    "stopped because": ending.code,
                    "seconds per pilot, wall": round(wall / done, 3),
                    "seconds per pilot, CPU": round(cpu / done, 3),
                    "last tenth: seconds per pilot, wall": round((late[-1][2] - late[0][2]) / last, 3),
                    "last tenth: seconds per pilot, CPU": round((late[-1][1] - late[0][1]) / last, 3),
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
