"""What an executor itself costs per pilot: launching, watching, reading the record, writing it down.

    python benchmarks/executor_overhead.py                 # trivial pilots through every executor
    python benchmarks/executor_overhead.py --real 6        # and real nano pilots: forked against started afresh

Trivial pilots do nothing, so their wall time per slot is the overhead. For real ones the CPU seconds of the children
are compared with what the pilot itself says it worked (``record.seconds``): the rest is start-up.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from race.allocation import size_run
from race.flops import Architecture
from race.ladders import ladder
from race.records import PilotSpec
from real_runs.executors import Executor, Job, Outcome
from real_runs.executors.cluster import RayExecutor
from real_runs.executors.command import CommandExecutor
from real_runs.executors.local import LocalExecutor
from real_runs.executors.simulated import SimulatorExecutor

SIMULATED = [sys.executable, "-m", "real_runs.executors.simulated", "--world", "own-3"]
WARM = ("real_runs.executors.simulated",)


def pilot(seed: int, budget: int = 26_000_000_000) -> PilotSpec:
    arch = Architecture.from_config("nano-s")
    plan = size_run(arch, ladder("nano").recipe("sparse"), budget)
    return PilotSpec("nano-s", arch.params(), plan.recipe, plan.step.rho, budget, seed, ("native", "pass@1"))


def all_of(executor: Executor) -> list[Outcome]:
    found: list[Outcome] = []
    while executor.running():
        found += executor.wait(60)
    return found


def measure(name: str, make: Callable[[], Executor], count: int, folder: Path) -> dict[str, float | str]:
    with make() as executor:
        # The first pilot waits for the imports of the process that the others are forked from.
        start = time.perf_counter()
        executor.submit(Job("first", pilot(10_000), folder / name / "first"))
        outcomes = all_of(executor)
        first = time.perf_counter() - start
        start, own = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for i in range(count):
            executor.submit(Job(f"pilot-{i}", pilot(i), folder / name / f"pilot-{i}"))
        outcomes = all_of(executor)
        seconds = time.perf_counter() - start
        now = resource.getrusage(resource.RUSAGE_SELF)
    bad = [o.record.health.reason for o in outcomes if o.record.health.status != "ok"]
    assert len(outcomes) == count
    assert not bad, bad
    return {
        "executor": name,
        "pilots": count,
        "slots": executor.slots,
        "first_s": round(first, 2),
        "per_pilot_ms": round(1000 * seconds * executor.slots / count, 1),
        "own_cpu_ms": round(1000 * (now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime) / count, 1),
    }


def measure_real(warm: bool, count: int, folder: Path) -> dict[str, float | str]:
    options = {"eval_problems": 32, "eval_points": 2, "threads": 1}
    name = "local, forked" if warm else "local, started afresh"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with LocalExecutor(slots=1, threads=1, config={"options": options}, warm=warm) as executor:
        executor.submit(Job("first", pilot(10_000), folder / name / "first"))
        all_of(executor)
        start = time.perf_counter()
        for i in range(count):
            executor.submit(Job(f"pilot-{i}", pilot(i), folder / name / f"pilot-{i}"))
        outcomes = all_of(executor)
        seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = sum(sum(o.record.seconds.values()) for o in outcomes)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "executor": name,
        "pilots": count,
        "wall_s_per_pilot": round(seconds / count, 2),
        "work_s_per_pilot": round(work / count, 2),
        "cpu_s_of_all_children": round(cpu, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pilots", type=int, default=100)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--real", type=int, default=0, help="real nano pilots, too")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # A runner that costs next to nothing: a shell that prints a record made beforehand.
        record = Path(scratch) / "record.json"
        spec = pilot(0)
        with SimulatorExecutor("own-3") as executor:
            executor.submit(Job("model", spec, folder / "model"))
            data = all_of(executor)[0].record.to_dict()
        record.write_text(json.dumps({name: data[name] for name in ("flops", "curves", "steps")}))
        makers: dict[str, Callable[[], Executor]] = {
            "simulator": lambda: SimulatorExecutor("own-3", slots=told.slots),
            "command, forked": lambda: CommandExecutor(SIMULATED, slots=told.slots, warm=WARM),
            "command, started afresh": lambda: CommandExecutor(["cat", str(record)], slots=told.slots),
        }
        if find_spec("ray") is not None:
            makers["ray"] = lambda: RayExecutor(command=["cat", str(record)], slots=told.slots, cpus=0.5)
        for name, make in makers.items():
            print(json.dumps(measure(name, make, told.pilots, folder)), flush=True)
        for warm in (True, False) if told.real else ():
            print(json.dumps(measure_real(warm, told.real, folder)), flush=True)


if __name__ == "__main__":
    main()
