"""A pilot as a Slurm job of its own, through submitit: submits, waits, brings the record back.

    race loop ... --executor examples/executors/submitit.toml
    python submitit_run.py spec.json record.json --folder pilot/ --gpus 1 --hours 4 -- --config qwen.toml

What follows ``--`` goes to `race run`. The job keeps its run in ``pilot/run``, on a file system that its node sees, so
that a job which was preempted or killed goes on from its last checkpoint when the executor submits it again. When the
executor stops this script (SIGTERM), the job is cancelled: Slurm sends it SIGTERM first, and `race run` checkpoints.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path

import submitit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--cluster", default=None, help="slurm, or local to try it without; default: found out"
    )
    parser.add_argument("--partition", default=None)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--poll", type=float, default=5.0)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    told = parser.parse_args(words[:at])

    executor = submitit.AutoExecutor(folder=told.folder / "submitit", cluster=told.cluster)
    executor.update_parameters(
        name=f"race-{told.folder.name}",
        timeout_min=int(60 * told.hours),
        cpus_per_task=told.cpus,
        gpus_per_node=told.gpus,
        tasks_per_node=1,
        nodes=1,
    )
    if told.partition:
        executor.update_parameters(slurm_partition=told.partition)
    run = told.folder / "run"
    command = [
        sys.executable, "-m", "race", "run", "--spec", str(told.spec), "--out", str(run), "--json",
        "--monitor", "none", *words[at + 1 :],
    ]  # fmt: skip
    job = executor.submit(submitit.helpers.CommandFunction(command, verbose=False))
    print(f"job {job.job_id}, logs in {told.folder / 'submitit'}", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: job.cancel(check=False))
    while not job.done():
        time.sleep(told.poll)
    if (run / "record.json").exists():
        shutil.copy(run / "record.json", told.record)
        return 0
    said = (job.stderr() or job.stdout() or "").strip().splitlines()
    print(
        f"job {job.job_id} ended as {job.state}: {said[-1] if said else 'it said nothing'}", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
