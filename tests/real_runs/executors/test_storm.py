"""Two hundred pilots on eight slots while pilots and the warden are killed at random: none lost, none doubled."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from pathlib import Path

import psutil
import pytest
from jobs import WARM, job, simulated

from real_runs.executors import Outcome
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits


@pytest.mark.slow
def test_a_storm_of_kills(tmp_path: Path) -> None:
    rng = random.Random(0)
    jobs = [job(tmp_path, f"pilot-{i}", seed=i) for i in range(200)]
    limits = Limits(retries=50, retry_wait=0.01, grace=2)
    outcomes: list[Outcome] = []
    kills, next_kill = 0, time.monotonic() + 1
    with CommandExecutor(simulated(0.05), slots=8, limits=limits, warm=WARM) as executor:
        for each in jobs:
            executor.submit(each)
        while executor.running():
            outcomes += executor.wait(0.1)
            if time.monotonic() >= next_kill:
                next_kill = time.monotonic() + rng.uniform(0.05, 0.6)
                kills += _kill(rng)
    assert kills > 10
    assert sorted(o.job.id for o in outcomes) == sorted(j.id for j in jobs)
    assert {o.record.health.status for o in outcomes} == {"ok"}
    assert {o.record.id for o in outcomes} == {j.id for j in jobs}
    assert sum(o.attempts for o in outcomes) > len(jobs)
    for outcome in outcomes:
        lines = (outcome.job.folder / "progress.jsonl").read_text().splitlines()
        spent, last = 0.0, 0.0
        for line in lines:
            with contextlib.suppress(ValueError):  # torn by a kill
                now = sum(json.loads(line)["flops"].values())
                spent, last = spent + max(0.0, now - last), now
        assert outcome.spent == pytest.approx(max(spent, outcome.record.flops.total))


def _kill(rng: random.Random) -> int:
    """kill -9 of one pilot, or now and then of the warden."""
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        warden = next(
            p for p in psutil.Process().children() if any(w.endswith("warden.py") for w in p.cmdline())
        )
        victim = warden if rng.random() < 0.1 else rng.choice(warden.children())
        victim.send_signal(signal.SIGKILL)
        return 1
    return 0
