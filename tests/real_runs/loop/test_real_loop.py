"""A loop over real runs of the nano ladder, killed with everything it had started, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from race.store import Store
from real_runs.ledger import read_ledger

pytestmark = pytest.mark.slow

LINE = [
    sys.executable, "-m", "race", "loop", "--ladder", "nano", "--reward", "sparse", "--budget", "2.4e11",
    "--pilot-size", "8e9", "--executor", "local:2", "--min-pilots", "100", "--no-prune", "--json",
]  # fmt: skip


@pytest.mark.timeout(900)
def test_kill_minus_nine_of_the_loop_loses_no_pilot_and_no_flop(tmp_path: Path) -> None:
    out = tmp_path / "loop"
    line = [*LINE, "--out", str(out)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    end = time.monotonic() + 400
    while not any('"step"' in path.read_text() for path in out.glob("pilots/*/run/ledger.jsonl")):
        assert first.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()

    done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    assert "going on with pilot" in done.stderr
    answer = json.loads(done.stdout)
    assert answer["evidence"]["real"] == answer["pilots_run"] == 3
    flops = answer["pilot_flops"]
    assert flops["spent"] <= flops["budget"]
    records = {record.id: record for record in Store(out / "store").records().records}
    assert len(records) == 3
    spent = 0
    for job, record in records.items():
        assert record.health.status == "ok"
        ledger = read_ledger(out / "pilots" / job / "run" / "ledger.jsonl")
        assert ledger.useful.total == record.flops.total
        assert ledger.useful.total + ledger.lost.total == record.spent <= record.spec.budget
        spent += record.spent
    assert flops["spent"] == pytest.approx(spent)
    assert answer["runs"][0]["job"] in records
