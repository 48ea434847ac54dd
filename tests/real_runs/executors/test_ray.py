"""What only Ray can do wrong: workers that are killed, clusters without room, a cluster of someone else."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from pathlib import Path

import psutil
import pytest
from jobs import QUICK_OPTIONS, job, simulated, spec

from race.errors import CannotDo
from real_runs.executors import Executor, Outcome
from real_runs.executors.cluster import RayExecutor
from real_runs.executors.limits import Limits

pytestmark = pytest.mark.usefixtures("ray_cluster")
LIMITS = Limits(retries=1, retry_wait=0.05, grace=5)


def all_of(executor: Executor) -> list[Outcome]:
    found: list[Outcome] = []
    while executor.running():
        found += executor.wait(60)
    return found


def kill_the_worker() -> psutil.Process:
    """kill -9 of the Ray worker that runs a pilot; returns the warden it had."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # zombies, too
            worker = process.parent()
            warden = any(word.endswith("warden.py") for word in process.cmdline())
            if warden and worker is not None and worker.cmdline()[0].startswith("ray::race:"):
                worker.send_signal(signal.SIGKILL)
                return process
    pytest.fail("no Ray worker runs a pilot")


def wait_for_progress(executor: Executor, pilot: object, share: float) -> None:
    end = time.monotonic() + 120
    while (executor.progress(pilot) or 0) <= share * spec().budget:  # type: ignore[arg-type]
        assert executor.wait(0.05) == []
        assert time.monotonic() < end


def test_a_killed_worker_costs_an_attempt_and_no_more(tmp_path: Path) -> None:
    pilot = job(tmp_path)
    # The first attempt lasts until it is killed, however slow this machine is; the second one is short.
    first, second = shlex.join(simulated(600)), shlex.join(simulated(0.2))
    both = f"if mkdir '{{folder}}/first'; then exec {first}; else exec {second}; fi"
    with RayExecutor(command=["sh", "-c", both], slots=1, cpus=0.5, limits=LIMITS) as executor:
        executor.submit(pilot)
        wait_for_progress(executor, pilot, 0)
        warden = kill_the_worker()
        (outcome,) = all_of(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert outcome.attempts == 2
    # Where nobody reaps orphans, an ended one stays a zombie.
    assert not warden.is_running() or warden.status() == psutil.STATUS_ZOMBIE, "the killed worker's pilot went on"


def test_a_worker_that_is_killed_each_time_is_a_failed_pilot(tmp_path: Path) -> None:
    pilot = job(tmp_path)
    with RayExecutor(command=simulated(20), slots=1, cpus=0.5, limits=Limits(retries=0, grace=5)) as executor:
        executor.submit(pilot)
        wait_for_progress(executor, pilot, 0)
        kill_the_worker()
        (outcome,) = all_of(executor)
    assert outcome.record.health.status == "failed"
    assert "WorkerCrashedError" in outcome.record.health.reason or "died" in outcome.record.health.reason
    assert 0 < outcome.spent < spec().budget


@pytest.mark.slow
def test_a_real_run_goes_on_from_its_checkpoint_on_another_worker(tmp_path: Path) -> None:
    pilot = job(tmp_path)
    config = {"options": {**QUICK_OPTIONS, "threads": 1}}
    with RayExecutor(slots=1, cpus=1, config=config, limits=LIMITS) as executor:
        executor.submit(pilot)
        wait_for_progress(executor, pilot, 0.3)
        kill_the_worker()
        (outcome,) = all_of(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert outcome.attempts == 2
    assert outcome.record.provenance["attempts"] == 2, "the second attempt resumed the first one's folder"
    assert outcome.record.flops.total <= pilot.spec.budget


def test_a_cluster_without_room_says_so() -> None:
    with pytest.raises(CannotDo, match="no node of the Ray cluster has 1 CPU, 1 GPU"), RayExecutor(gpus=1):
        pass
    with pytest.raises(CannotDo, match=r"no node of the Ray cluster has 0\.1 CPU, 2 accelerators"):  # noqa: SIM117
        with RayExecutor(cpus=0.1, resources={"accelerators": 2}):
            pass
    with RayExecutor(cpus=0.5) as executor:
        assert executor.slots == 4
