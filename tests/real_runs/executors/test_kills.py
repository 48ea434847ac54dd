"""kill -9 of pilots, of the process that starts them, and of the executor's own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from jobs import QUICK_OPTIONS, WARM, job, python, simulated, spec

from race.records import PilotRecord
from real_runs.executors import Executor, Outcome
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.local import LocalExecutor

LIMITS = Limits(retries=2, retry_wait=0.05, grace=1)


def until(condition: Callable[[], object], within: float = 60) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def all_of(executor: Executor) -> list[Outcome]:
    found: list[Outcome] = []
    while executor.running():
        found += executor.wait(60)
    return found


def wardens() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if any(word.endswith("warden.py") for word in p.cmdline())]


def test_a_killed_pilot_is_started_again(tmp_path: Path) -> None:
    pilot = job(tmp_path)
    with CommandExecutor(simulated(0.5), limits=LIMITS, warm=WARM) as executor:
        executor.submit(pilot)
        for number in (1, 2):
            spent = executor.progress(pilot) or 0
            until(lambda: executor.wait(0) == [] and (executor.progress(pilot) or 0) > spent)  # noqa: B023
            wardens()[-1].children()[0].send_signal(signal.SIGKILL)
            until(lambda: executor.wait(0.01) == [] and _restarts(pilot.folder) == number, 10)  # noqa: B023
        (outcome,) = all_of(executor)
    assert outcome.record.health.status == "ok"
    assert outcome.attempts == 3
    assert outcome.spent > outcome.record.flops.total


def _restarts(folder: Path) -> int:
    log = folder / "stderr.log"
    return log.read_text().count("killed by SIGKILL; trying again") if log.exists() else 0


def test_a_pilot_that_is_killed_each_time_fails_with_what_it_spent(tmp_path: Path) -> None:
    text = """
import json, os, sys
open(sys.argv[1], "a").write(json.dumps({"flops": 0}) + "\\n" + json.dumps({"flops": 1e9}) + "\\n")
os.kill(os.getpid(), 9)
"""
    with CommandExecutor([*python(text), "{progress}"], limits=LIMITS) as executor:
        executor.submit(job(tmp_path))
        (outcome,) = all_of(executor)
    assert outcome.record.health.reason == "killed by SIGKILL (attempt 3 of 3)"
    assert outcome.record.health.status == "failed"
    assert outcome.spent == pytest.approx(3e9)


def test_when_the_warden_is_killed_its_pilots_are_gone_and_started_again(tmp_path: Path) -> None:
    jobs = [job(tmp_path, f"pilot-{i}") for i in range(2)]
    with CommandExecutor(simulated(0.6), slots=2, limits=LIMITS, warm=WARM) as executor:
        for each in jobs:
            executor.submit(each)
        until(lambda: executor.wait(0) == [] and all(executor.progress(each) for each in jobs))
        (warden,) = wardens()
        pilots = warden.children()
        warden.send_signal(signal.SIGKILL)
        outcomes = all_of(executor)
        assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in pilots)
    assert [o.record.health.status for o in outcomes] == ["ok", "ok"]
    assert [o.attempts for o in outcomes] == [2, 2]


LOOP = """
import json, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from jobs import job, python
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
text = {runner!r}
with CommandExecutor([*python(text), "{{folder}}"], limits=Limits(grace=0.5)) as executor:
    executor.submit(job(Path({folder!r})))
    executor.wait(60)
"""
RUNNER = """
import os, sys, time
open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
time.sleep(60)
"""


def test_when_the_executor_is_killed_its_pilots_end_and_the_next_one_takes_over(tmp_path: Path) -> None:
    code = LOOP.format(here=str(Path(__file__).parent), runner=RUNNER, folder=str(tmp_path))
    loop = subprocess.Popen([sys.executable, "-c", code])
    pid_file = tmp_path / "pilot" / "pid"
    until(lambda: pid_file.exists() and pid_file.read_text())
    pilot = psutil.Process(int(pid_file.read_text()))
    loop.send_signal(signal.SIGKILL)
    loop.wait()
    # At once, while the first one may still be ending: the folder's lock keeps the two apart.
    with CommandExecutor(simulated(0.1), warm=WARM, limits=LIMITS) as executor:
        executor.submit(job(tmp_path))
        (outcome,) = all_of(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert outcome.attempts == 1
    # Where nobody reaps orphans, an ended one stays a zombie.
    assert not pilot.is_running() or pilot.status() == psutil.STATUS_ZOMBIE


def test_a_folder_that_stays_locked_is_a_failure_that_says_so(tmp_path: Path) -> None:
    import fcntl

    pilot = job(tmp_path)
    pilot.folder.mkdir()
    with (pilot.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        limits = Limits(lock_wait=0.3)
        with CommandExecutor(python("print()"), limits=limits) as executor:
            executor.submit(pilot)
            (outcome,) = all_of(executor)
    assert "another process has been running in" in outcome.record.health.reason
    assert (outcome.attempts, outcome.spent) == (0, 0)


@pytest.mark.slow
def test_a_real_run_that_is_killed_ends_like_one_that_was_not(tmp_path: Path) -> None:
    """Through ``race run``, forked from a process with torch in it: same weights, same curve, lost work charged."""
    pytest.importorskip("torch", reason="PyTorch is not installed; pip install 'race-rl[runs]'")
    config = {"options": {**QUICK_OPTIONS, "eval_points": 2, "threads": 1}}
    undisturbed, killed = job(tmp_path, "undisturbed"), job(tmp_path, "killed")
    with LocalExecutor(slots=1, limits=Limits(retries=2, retry_wait=0.05), config=config) as executor:
        executor.submit(killed)
        until(lambda: executor.wait(0) == [] and (executor.progress(killed) or 0) > 0.3 * spec().budget, 120)
        for process in psutil.process_iter():
            if process.ppid() == wardens()[0].pid:
                os.kill(process.pid, signal.SIGKILL)
        (outcome,) = all_of(executor)
        executor.submit(undisturbed)
        (expected,) = all_of(executor)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert outcome.attempts == 2
    assert outcome.record.curves == expected.record.curves
    assert outcome.record.flops == expected.record.flops
    assert outcome.spent >= expected.spent == expected.record.flops.total
    adapters = [
        (p.folder / "run" / "adapter" / "adapter_model.safetensors").read_bytes()
        for p in (killed, undisturbed)
    ]
    assert adapters[0] == adapters[1]
    ledger = [json.loads(line) for line in (killed.folder / "run" / "ledger.jsonl").read_text().splitlines()]
    ended = sum(line["flops"] for line in ledger if line["event"] == "end" and line["phase"] != "eval")
    assert outcome.spent >= ended
    record = PilotRecord.from_dict(json.loads((killed.folder / "record.json").read_bytes()))
    assert record.id == "killed"
    assert record.provenance["run_id"] == json.loads((killed.folder / "run" / "run.json").read_text())["id"]
