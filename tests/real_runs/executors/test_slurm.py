"""Slurm through the command executor: `srun` by a stand-in that behaves like it, submitit with its local cluster."""

from __future__ import annotations

import os
import shlex
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jobs import job, simulated

from real_runs.executors import Executor, Outcome, build_executor

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "executors"

# Takes options until the command; runs it away from our process group, as a node does; forwards SIGTERM; complains as
# srun does.
SRUN = """#!/bin/bash
echo "srun: job 4242 queued and waiting for resources" >&2
: > "$SRUN_ASKED"
while [[ "$1" == -* ]]; do echo "$1" >> "$SRUN_ASKED"; shift; done
export SLURM_JOB_ID=4242 SLURM_STEP_ID=0 SLURM_PROCID=0
setsid "$@" <&0 &
task=$!
trap 'echo "srun: forcing job termination" >&2; kill -TERM $task' TERM
wait $task; code=$?
while kill -0 $task 2>/dev/null; do wait $task; code=$?; done
if (( code )); then echo "srun: error: node1: task 0: Exited with exit code $code" >&2; fi
exit $code
"""


@pytest.fixture
def srun(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "bin" / "srun"
    path.parent.mkdir()
    path.write_text(SRUN)
    path.chmod(0o755)
    here = Path(sys.executable).parent  # where `race` is
    return {
        "PATH": os.pathsep.join([str(path.parent), str(here), os.environ["PATH"]]),
        "SRUN_ASKED": str(tmp_path / "asked"),
        "OMP_NUM_THREADS": "1",
    }


def example(name: str, env: dict[str, str], **changes: Any) -> Executor:
    table = tomllib.loads((EXAMPLES / name).read_text())["executor"]
    return build_executor({**table, "env": env, "retries": 0, **changes})


def one(executor: Executor) -> Outcome:
    (outcome,) = executor.wait(240)
    return outcome


def steps(command: list[str]) -> str:
    """The example's `srun`, with another command behind it."""
    table = tomllib.loads((EXAMPLES / "slurm.toml").read_text())["executor"]
    return table["command"].partition("race run")[0] + shlex.join(command)


def test_a_step_gets_its_resources_and_its_record_comes_back(srun: dict[str, str], tmp_path: Path) -> None:
    with example("slurm.toml", srun, command=steps(simulated(0.1))) as executor:
        executor.submit(job(tmp_path))
        outcome = one(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert "--gpus=1" in Path(srun["SRUN_ASKED"]).read_text().split()
    assert "--job-name=pilot" in Path(srun["SRUN_ASKED"]).read_text().split()
    assert "queued and waiting" in (tmp_path / "pilot" / "stderr.log").read_text()


def test_a_failed_step_says_what_srun_says(srun: dict[str, str], tmp_path: Path) -> None:
    with example("slurm.toml", srun, command=steps(["sh", "-c", "exit 9"])) as executor:
        executor.submit(job(tmp_path))
        outcome = one(executor)
    assert outcome.record.health.reason == "exit code 9: srun: error: node1: task 0: Exited with exit code 9"


def test_a_step_that_is_stopped_gets_the_signal(srun: dict[str, str], tmp_path: Path) -> None:
    command = [
        "sh",
        "-c",
        f"trap 'echo saved > {tmp_path}/saved; exit 1' TERM; echo > {tmp_path}/on; sleep 60 & wait",
    ]
    with example("slurm.toml", srun, command=steps(command), grace=20) as executor:
        pilot = job(tmp_path)
        executor.submit(pilot)
        end = time.monotonic() + 30
        while not (tmp_path / "on").exists() and time.monotonic() < end:
            assert executor.wait(0.05) == []
        executor.stop(pilot, reason="enough")
        outcome = one(executor)
    assert outcome.record.health.reason == "stopped: enough"
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_a_real_run_as_the_example_says(srun: dict[str, str], tmp_path: Path) -> None:
    with example("slurm.toml", srun) as executor:
        executor.submit(job(tmp_path))
        outcome = one(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert (tmp_path / "pilot" / "run" / "ledger.jsonl").exists()


@pytest.mark.slow
def test_submitit_with_its_local_cluster(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed; pip install submitit")
    table = tomllib.loads((EXAMPLES / "submitit.toml").read_text())["executor"]
    command = table["command"].replace(
        "python examples/", f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT))}/examples/"
    )
    command = command.replace("--gpus 1", "--gpus 0 --cluster local --poll 0.2")
    with example("submitit.toml", {"OMP_NUM_THREADS": "1"}, command=command) as executor:
        executor.submit(job(tmp_path))
        outcome = one(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert list((tmp_path / "pilot" / "submitit").glob("*_log.out"))
