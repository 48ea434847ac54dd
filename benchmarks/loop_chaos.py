"""A loop under fire: simulated pilots in worker processes, and `kill -9` at random for workers and loops.

    python benchmarks/loop_chaos.py                                        8 workers, one SQLite study
    python benchmarks/loop_chaos.py --storage postgres --loops 3           three loops on one PostgreSQL study
    python benchmarks/loop_chaos.py --storage journal --loops 2
    python benchmarks/loop_chaos.py --executor ray

The pilots are processes of their own (`real_runs.executors.simulated` behind the `command` executor), which append
what they spend to a progress file and start from nothing when they are started again: the worst kind of runner. A
loop that is killed is started again by the same command. At the end every pilot is looked for in the study, in the
store and in its folder, and every FLOP is added up again from the files that the workers wrote. A worker that was
killed before it wrote anything is charged its whole budget; those are named, and everything else is equal to the
last digit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from planner.memory import own_prefix
from planner.storage import open_storage
from race.records import PilotRecord
from race.store import Store
from real_runs.executors.readings import RESTART

BUDGET = 10**20
STUDY = "chaos"


def command(out: Path, storage: str, pilots: int, config: Path) -> list[str]:
    pilot_budget = BUDGET // 10
    return [
        sys.executable, "-m", "race", "loop", "--budget", str(BUDGET), "--reward", "prm", "--executor", str(config),
        "--pilot-budget", str(pilot_budget), "--pilot-size", str(pilot_budget // pilots), "--min-pilots", "100000",
        "--out", str(out), "--storage", storage, "--study", STUDY, "--no-prune", "--yes", "--json",
    ]  # fmt: skip


def executor_config(path: Path, kind: str, workers: int, seconds: float) -> Path:
    runner = f"{sys.executable} -m real_runs.executors.simulated --world own-0 --seconds {seconds}"
    lines = [
        "[executor]", f'kind = "{kind}"', f'command = "{runner} --progress {{progress}}"', f"slots = {workers}",
        'evidence = "simulated"', "retries = 1000", "retry_wait = 0.1",
    ]  # fmt: skip
    lines += ['warm = ["real_runs.executors.simulated"]'] if kind == "command" else ["cpus = 0.1"]
    path.write_text("\n".join(lines) + "\n")
    return path


class Fire:
    """Kills workers and loops at random, and starts loops again."""

    def __init__(
        self, line: list[str], loops: int, log: Path, every: float, parents: float, seed: int, ray: bool
    ) -> None:
        self.line, self.log, self.ray = line, log, ray
        self.every, self.parents = every, parents
        self.random = random.Random(seed)
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * loops
        self.killed = {"workers": 0, "loops": 0}
        self.answers: list[dict[str, Any]] = []

    def start(self, index: int) -> None:
        out = (self.log / f"answer-{index}.json").open("wb")
        err = (self.log / f"stderr-{index}.log").open("ab")
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.processes[index] = subprocess.Popen(self.line, stdout=out, stderr=err, env=env)

    def go(self, limit: float) -> None:
        for index in range(len(self.processes)):
            self.start(index)
        end = time.monotonic() + limit
        next_worker = time.monotonic() + self.every
        next_parent = time.monotonic() + self.parents
        while any(p is not None for p in self.processes):
            if time.monotonic() > end:
                raise SystemExit(f"not done after {limit:.0f} s; killed so far: {self.killed}")
            time.sleep(0.05)
            for index, process in enumerate(self.processes):
                if process is None or process.poll() is None:
                    continue
                if process.returncode == 0:
                    self.answers.append(json.loads((self.log / f"answer-{index}.json").read_text()))
                    self.processes[index] = None
                elif process.returncode == -signal.SIGKILL:
                    self.start(index)
                else:
                    tail = (self.log / f"stderr-{index}.log").read_text()[-2000:]
                    raise SystemExit(f"loop {index} ended with {process.returncode}:\n{tail}")
            now = time.monotonic()
            if now >= next_worker:
                next_worker = now + self.random.uniform(0.5, 1.5) * self.every
                self.kill_worker()
            if now >= next_parent:
                next_parent = now + self.random.uniform(0.5, 1.5) * self.parents
                living = [p for p in self.processes if p is not None]
                if living:
                    self.random.choice(living).kill()
                    self.killed["loops"] += 1

    def is_worker(self, child: psutil.Process, loop: int) -> bool:
        words = " ".join(child.cmdline())
        if self.ray:
            return words.startswith("ray::race:")
        # Forked ones keep the warden's command line; a worker has no children and a warden above it.
        return not child.children() and child.ppid() != loop

    def kill_worker(self) -> None:
        workers = []
        for process in self.processes:
            if process is None:
                continue
            try:
                children = psutil.Process(process.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                continue
            for child in children:
                try:
                    if self.is_worker(child, process.pid):
                        workers.append(child)
                except psutil.NoSuchProcess:
                    continue
        if workers:
            try:
                self.random.choice(workers).kill()
                self.killed["workers"] += 1
            except psutil.NoSuchProcess:
                return


def spent_in(folder: Path) -> float:
    """FLOPs that every attempt in a pilot's folder has spent, from what the workers wrote."""
    total, last = 0.0, 0.0
    path = folder / "progress.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            now = sum(json.loads(line)["flops"].values())
        except (ValueError, KeyError, AttributeError):
            continue  # torn, or the loop's own line on a restart
        total += max(0.0, now - last)
        last = now
    return total


def untold(folder: Path, record: PilotRecord) -> int:
    """Attempts at a pilot that were killed before they told anything: those it was tried again after, and the last."""
    path, found = folder / "progress.jsonl", 0
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found += bool(json.loads(line).get(RESTART))
        except (ValueError, AttributeError):
            continue
    return found + ("flops-unknown" in record.health.flags)


def check(out: Path, storage: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    import optuna

    place = open_storage(storage)
    study = optuna.load_study(study_name=STUDY, storage=place.optuna)
    trials = study.get_trials(deepcopy=False)
    prefix = own_prefix(place, STUDY)
    assert prefix is not None
    in_study = [t.user_attrs["race:record_id"] for t in trials if "race:record_id" in t.user_attrs]
    in_store = [r.id for r in Store(out / "store").records().records]
    folders = {p.name: spent_in(p) for p in (out / "pilots").iterdir()}
    records = {r.id: r for r in Store(out / "store").records().records}
    silent = {r.id: count for r in records.values() if (count := untold(out / "pilots" / r.id, r))}
    # What the record of each pilot says beyond what its workers wrote and what its silent attempts are charged.
    beyond = {
        r.id: r.spent - folders.get(r.id, 0.0) - silent.get(r.id, 0) * r.spec.budget for r in records.values()
    }
    answer = answers[-1]
    ledger = sum(folders.values())
    charged = answer["pilot_flops"]["spent"]
    withdrawn = sum(bool(t.user_attrs.get("race:withdrawn")) for t in trials)
    with_record = sum("race:record" in t.user_attrs for t in trials)
    return {
        "pilots": len(trials) - withdrawn,
        "ok": sum(r.health.status == "ok" for r in records.values()),
        "failed": sum(r.health.status != "ok" for r in records.values()),
        "given up": sum(t.state.name == "FAIL" and "race:record" not in t.user_attrs for t in trials) - withdrawn,
        "still running in the study": sum(t.state.name == "RUNNING" for t in trials),
        "records lost": len(set(in_study) - set(in_store)) + (len(trials) - withdrawn - with_record),
        "records doubled": len(in_study) - len(set(in_study)) + len(in_store) - len(set(in_store)),
        "records in the store alone": len(set(in_store) - set(in_study)),
        "pilot budget": answer["pilot_flops"]["budget"],
        "charged": charged,
        "sum of records": sum(r.spent for r in records.values()),
        "ledger of the workers": ledger,
        "budget exceeded": bool(max(charged, ledger) > answer["pilot_flops"]["budget"]),
        "charged in full, having told nothing": silent,
        "charged for them": sum(count * records[job].spec.budget for job, count in silent.items()),
        # Progress is told in parts of a pilot, and floats of 1e17 and more have no single FLOPs.
        "not accounted for": {job: n for job, n in beyond.items() if abs(n) > max(1, 1e-14 * records[job].spent)},
        "stopped because": sorted({a["stopped_because"] for a in answers}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilots", type=int, default=200)
    parser.add_argument("--workers", type=int, default=8, help="of each loop")
    parser.add_argument("--loops", type=int, default=1)
    parser.add_argument("--storage", default="sqlite", choices=("sqlite", "journal", "postgres"))
    parser.add_argument("--executor", default="command", choices=("command", "ray"))
    parser.add_argument("--seconds", type=float, default=1.5, help="that a pilot takes")
    parser.add_argument("--kill-worker-every", type=float, default=2.0)
    parser.add_argument("--kill-loop-every", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder to work in, kept")
    told = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        out = told.keep or Path(scratch) / "loop"
        out.mkdir(parents=True, exist_ok=True)
        config = executor_config(out / "executor.toml", told.executor, told.workers, told.seconds)
        if told.storage == "postgres":
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
            from tests.planner.postgres import throwaway_server

            with throwaway_server() as url:
                run(told, out, url, config)
        else:
            run(told, out, str(out / ("study.db" if told.storage == "sqlite" else "study.journal")), config)


def run(told: argparse.Namespace, out: Path, storage: str, config: Path) -> None:
    started = time.monotonic()
    fire = Fire(
        command(out, storage, told.pilots, config), told.loops, out, told.kill_worker_every, told.kill_loop_every,
        told.seed, told.executor == "ray",
    )  # fmt: skip
    try:
        fire.go(told.limit)
    finally:
        for process in fire.processes:
            if process is not None:
                process.kill()
    result = check(out, storage, fire.answers)
    result |= {"workers killed": fire.killed["workers"], "loops killed": fire.killed["loops"]}
    result["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(result, indent=1))
    bad = [name for name in ("still running in the study", "records lost", "records doubled", "budget exceeded",
                             "records in the store alone", "not accounted for") if result[name]]  # fmt: skip
    if bad:
        raise SystemExit(f"not kept: {', '.join(bad)}")


if __name__ == "__main__":
    main()
