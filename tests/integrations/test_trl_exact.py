"""Whole TRL trainings under torch's FLOP counter: equal to the integer, phase by phase."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# The names are in benchmarks/trl_callback.py; `test_no_case_is_forgotten` keeps the two lists the same.
NAMES = (
    "lora", "lora-kl", "lora-reuse", "lora-reuse-kl", "lora-scorer", "lora-checkpointing", "lora-reentrant",
    "lora-every-3-steps", "lora-accumulation", "lora-split", "lora-eval", "lora-gspo", "lora-masked-truncated",
    "full", "full-kl", "full-checkpointing", "full-reuse-kl-scorer", "nano-m-lora-kl-scorer",
)  # fmt: skip
#: Two optimiser steps of these run always: every pass there is (generation, both scorings, reward, update, reuse).
QUICK = ("lora-reuse-kl", "full-reuse-kl-scorer")


def check(runs: ModuleType, name: str, folder: Path, **config: Any) -> None:
    case = next(case for case in runs.CASES if case.name == name)
    case = replace(case, config={**case.config, **config})
    trainer, callback, truth = runs.run_case(case, folder)
    assert callback.spent.to_dict() == {k: v for k, v in truth.to_dict().items() if k != "eval"}
    assert callback.tally.get("executed", "full", "eval") == truth.eval
    assert (truth.eval > 0) == case.evaluate
    assert (truth.reward > 0) == case.scorer
    # Padding and masked pairs are the only difference between the columns, so needed is never more.
    for attention in ("causal", "full"):
        needed, executed = (callback.tally.allocation(c, attention) for c in ("needed", "executed"))
        assert 0.5 * executed.search < needed.search <= executed.search
        assert 0.5 * executed.learning < needed.learning <= executed.learning
        assert needed.reward <= executed.reward
    assert trainer.state.total_flos == float(truth.to_dict()["total"])


def test_no_case_is_forgotten(runs: ModuleType) -> None:
    assert tuple(case.name for case in runs.CASES) == NAMES


@pytest.mark.parametrize("name", QUICK)
def test_two_steps(runs: ModuleType, tmp_path: Path, name: str) -> None:
    check(runs, name, tmp_path, max_steps=2, max_completion_length=28)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_whole_training(runs: ModuleType, tmp_path: Path, name: str) -> None:
    check(runs, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["", "2.5e9"])
def test_two_processes_add_up_and_stop_together(runs: ModuleType, tmp_path: Path, budget: str) -> None:
    script = Path(__file__).with_name("two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*command, str(script), str(tmp_path), budget], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"rank{i}.json").read_text()) for i in (0, 1)]
    assert ranks[0]["callback"] == ranks[1]["callback"] == sum(rank["counter"] for rank in ranks)
    assert ranks[0]["steps"] == ranks[1]["steps"]
    if budget:
        assert ranks[0]["callback"] <= float(budget)
        assert 2 < ranks[0]["steps"] < 12
    assert ranks[1]["record"] is None
    recipe = ranks[0]["record"]["spec"]["recipe"]
    assert (recipe["prompts_per_step"], recipe["group_size"], recipe["update_ratio"]) == (4, 4, 2.0)
