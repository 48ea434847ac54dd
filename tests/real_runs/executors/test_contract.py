"""What every executor promises, tested for every executor: see `real_runs.executors._base`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from jobs import QUICK_OPTIONS, WARM, job, simulated, spec

from race.errors import InvalidInput
from race.records import PilotRecord
from real_runs.executors import Executor, Job, Outcome
from real_runs.executors.cluster import RayExecutor
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.local import LocalExecutor
from real_runs.executors.simulated import SimulatorExecutor

LIMITS = Limits(retries=1, retry_wait=0.05, grace=10)
SECONDS = 0.8


@dataclass(frozen=True)
class Kind:
    make: Callable[[], Executor]
    # Whether `running` says that work goes on in processes that must be gone afterwards.
    processes: bool = True


KINDS = {
    "simulator": Kind(lambda: SimulatorExecutor("own-3", slots=2, delay=SECONDS), processes=False),
    "command": Kind(lambda: CommandExecutor(simulated(SECONDS), slots=2, limits=LIMITS, warm=WARM)),
    "local": Kind(
        lambda: LocalExecutor(
            slots=2, threads=1, limits=LIMITS, config={"options": QUICK_OPTIONS | {"threads": 1}}
        )
    ),
    # Longer, because stops and progress travel through Ray every half second.
    "ray": Kind(lambda: RayExecutor(command=simulated(2.5 * SECONDS), slots=2, cpus=0.5, limits=LIMITS)),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name == "local" else []) for name in KINDS],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    if request.param == "local" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed; pip install 'race-rl[runs]'")
    return KINDS[request.param]


@pytest.fixture(scope="module")
def executor(kind: Kind) -> Iterator[Executor]:
    with kind.make() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left_over(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "executor" in request.fixturenames:
        left = request.getfixturevalue("executor")
        for each in left.running():
            left.stop(each, reason="the test is over")
        while left.running():
            left.wait(5)


def all_of(executor: Executor, within: float = 120) -> list[Outcome]:
    found: list[Outcome] = []
    end = time.monotonic() + within
    while executor.running() and time.monotonic() < end:
        found += executor.wait(end - time.monotonic())
    found += executor.wait(0)
    assert not executor.running()
    return found


def until(condition: Callable[[], object], within: float = 60) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_each_job_has_one_outcome_with_a_record_of_its_own(executor: Executor, tmp_path: Path) -> None:
    jobs = [job(tmp_path, f"pilot-{i}", seed=i) for i in range(3)]  # one more than there are slots
    for each in jobs:
        executor.submit(each)
    assert executor.running() == jobs
    outcomes = all_of(executor)
    assert sorted(o.job.id for o in outcomes) == [j.id for j in jobs]
    for outcome in outcomes:
        record = outcome.record
        assert record.health.status == "ok", record.health
        assert record.id == outcome.job.id
        assert record.spec == outcome.job.spec
        assert 0.5 * record.spec.budget < outcome.spent <= record.spec.budget
        assert set(record.curves) == {"native", "pass@1"}
        assert outcome.attempts == 1
        assert outcome.seconds > 0
        assert record.provenance["executor"]["name"] == executor.name
        kept = PilotRecord.from_dict(json.loads((outcome.job.folder / "record.json").read_bytes()))
        assert kept == record


def test_a_finished_job_comes_back_unchanged_without_being_run(executor: Executor, tmp_path: Path) -> None:
    pilot = job(tmp_path)
    executor.submit(pilot)
    first = all_of(executor)
    executor.submit(pilot)
    (again,) = executor.wait(0)
    assert (again.record, again.attempts) == (first[0].record, 0)


def test_a_folder_of_another_spec_and_an_id_that_runs_are_refused(executor: Executor, tmp_path: Path) -> None:
    pilot = job(tmp_path)
    executor.submit(pilot)
    with pytest.raises(InvalidInput, match="is running already"):
        executor.submit(pilot)
    with pytest.raises(InvalidInput, match=r"another spec: spec.seed is 0, asked for was 1"):
        executor.submit(Job("other", spec(seed=1), pilot.folder))
    assert [o.job.id for o in all_of(executor)] == [pilot.id]


def test_progress_and_curve_grow_while_it_runs(executor: Executor, tmp_path: Path) -> None:
    pilot = job(tmp_path)
    assert executor.progress(pilot) is None
    assert executor.curve(pilot) is None
    executor.submit(pilot)
    spent, points, outcomes = [0.0], [0], []
    while not outcomes:
        outcomes = executor.wait(0.05)
        spent.append(executor.progress(pilot) or spent[-1])
        curve = executor.curve(pilot)
        points.append(len(curve) if curve else points[-1])
    assert spent == sorted(spent)
    assert points == sorted(points)
    assert any(0 < now <= pilot.spec.budget for now in spent)
    assert any(0 < now <= len(outcomes[0].record.curves["native"]) for now in points)


def test_a_stopped_job_says_so_keeps_what_it_had_and_resumes(executor: Executor, tmp_path: Path) -> None:
    pilot = job(tmp_path)
    executor.submit(pilot)
    until(lambda: executor.progress(pilot))
    executor.stop(pilot, reason="it can no longer change the decision")
    (stopped,) = all_of(executor)
    record = stopped.record
    assert record.health.status in ("failed", "timeout")
    assert "it can no longer change the decision" in record.health.reason
    assert "stopped" in record.health.flags
    assert 0 < stopped.spent < 1.5 * pilot.spec.budget
    assert (record.health.status == "timeout") == any(len(c) > 1 for c in record.curves.values())
    executor.submit(pilot)
    (done,) = all_of(executor)
    assert done.record.health.status == "ok", done.record.health
    assert done.record.id == pilot.id


def test_waiting_jobs_can_be_stopped_too(executor: Executor, tmp_path: Path) -> None:
    jobs = [job(tmp_path, f"pilot-{i}") for i in range(3)]
    for each in jobs:
        executor.submit(each)
    executor.stop(jobs[2], reason="changed my mind")
    executor.stop(job(tmp_path, "unknown"), reason="nothing happens")
    outcomes = {o.job.id: o for o in all_of(executor)}
    assert outcomes["pilot-2"].attempts == 0
    assert outcomes["pilot-2"].spent == 0
    assert [outcomes[f"pilot-{i}"].record.health.status for i in range(2)] == ["ok", "ok"]


def test_wait_returns_when_there_is_nothing_to_wait_for(executor: Executor, tmp_path: Path) -> None:
    start = time.monotonic()
    assert executor.wait(None) == []
    executor.submit(job(tmp_path))
    assert executor.wait(0) == []
    assert executor.wait(0.05) == []
    assert time.monotonic() - start < SECONDS
    assert len(all_of(executor)) == 1


def test_ctrl_c_while_waiting_loses_nothing(executor: Executor, tmp_path: Path) -> None:
    executor.submit(job(tmp_path))
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.wait(5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [o.record.health.status for o in all_of(executor)] == ["ok"]


@pytest.mark.slow
def test_closing_stops_everything_it_started(kind: Kind, tmp_path: Path) -> None:
    """Slow because of the executors that have to import torch for this."""
    before = set(psutil.Process().children(recursive=True))
    with kind.make() as executor:
        pilot = job(tmp_path)
        executor.submit(pilot)
        until(lambda: executor.progress(pilot))
        assert not kind.processes or set(psutil.Process().children(recursive=True)) - before
    assert not executor.running()
    if kind.processes and executor.name != "ray":  # Ray keeps idle workers of its own
        assert not set(psutil.Process().children(recursive=True)) - before
    assert not _working_in(tmp_path)


def _working_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()) or any(
                file.path.startswith(str(folder)) for file in process.open_files()
            ):
                found.append(process)
    return [p for p in found if p.pid != os.getpid()]
