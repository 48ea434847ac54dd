"""``race run`` under torchrun, on a nano model: as in one process, and resumed after one of the two was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from race.records import PilotRecord
from real_runs.ledger import read_ledger

BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "torchrun").exists(), reason="torchrun is not beside this Python"),
]
LAUNCH = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", "--no-python", "--"]
# A rate so small that rounding, which Adam's division can blow up to a whole step, cannot change a completion.
RUN = [
    str(BIN / "race"), "run", "--model", "nano-s", "--reward", "prm", "--kl", "--update-ratio", "1.5",
    "--budget", "6e10",
    "--seed", "1", "--monitor", "none", "--set", "learning_rate=1e-6", "--set", "eval_problems=16",
    "--set", "eval_points=2", "--json", "--out",
]  # fmt: skip


def start(folder: Path, *launcher: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen([*launcher, *RUN, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=env)


def finished(process: subprocess.Popen[str]) -> PilotRecord:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    # One JSON object, from one process.
    return PilotRecord.from_dict(json.loads(out))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(str(folder / "adapter" / "adapter_model.safetensors"))


def same(a: PilotRecord, b: PilotRecord, one: Path, two: Path) -> None:
    assert (a.flops, a.eval_flops, a.curves, a.steps) == (b.flops, b.eval_flops, b.curves, b.steps)
    assert 0.97 * a.spec.budget <= a.flops.total <= a.spec.budget
    x, y = weights(one), weights(two)
    assert max(float((x[k] - y[k]).abs().max()) for k in x) < 1e-6
    assert max(float(t.abs().max()) for k, t in x.items() if "lora_B" in k) > 1e-6, "something was learned"
    for row, other in zip(*(read_ledger(f / "ledger.jsonl").steps for f in (one, two)), strict=True):
        for name in ("loss", "grad_norm", "kl", "reward/accuracy", "health/steps"):
            assert row["metrics"][name] == pytest.approx(other["metrics"][name], rel=1e-4, abs=1e-6), name


@pytest.mark.timeout(600)
def test_two_processes_are_one_run_and_survive_a_kill(tmp_path: Path) -> None:
    one = finished(start(tmp_path / "one"))
    two = finished(start(tmp_path / "two", *LAUNCH))
    assert (one.provenance["processes"], two.provenance["processes"]) == (1, 2)
    same(one, two, tmp_path / "one", tmp_path / "two")

    killed = tmp_path / "killed"
    launcher = start(killed, *LAUNCH)
    deadline = time.monotonic() + 120
    while len(read_ledger(killed / "ledger.jsonl").steps) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = [p for p in psutil.Process(launcher.pid).children() if p.environ().get("RANK") == "1"]
    assert workers
    os.kill(workers[0].pid, signal.SIGKILL)
    _, err = launcher.communicate(timeout=120)
    assert launcher.returncode != 0
    assert not (killed / "record.json").exists()
    # The process that was left says so in one line, if it got to say anything before the launcher ended it.
    assert not [line for line in err.splitlines() if line.startswith("Traceback") and "race/cli" in line]

    three = finished(start(killed, *LAUNCH))
    assert three.provenance["attempts"] == 2
    same(one, three, tmp_path / "one", killed)
