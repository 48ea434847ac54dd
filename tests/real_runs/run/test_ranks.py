"""A run in several processes is the run in one: same completions, same charges, same weights up to rounding."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from pathlib import Path

import pytest
import torch
from grpo_toys import ToyReward, ToyTask, factory, tiny_model, toy_options, toy_recipe
from safetensors.torch import load_file

from race.allocation import step_allocation
from race.errors import InvalidInput
from race.flops import Architecture
from race.records import PilotRecord, PilotSpec
from real_runs.grpo.ranks import Ranks
from real_runs.ledger import read_ledger
from real_runs.run import run_pilot

FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")


def spec() -> PilotSpec:
    architecture = Architecture.from_config(tiny_model().config)
    # Three prompts on two processes: parts of unequal size.
    recipe = toy_recipe(update_ratio=1.5, prompts_per_step=3, kl=True)
    budget = int(4 * step_allocation(architecture, recipe).total)
    return PilotSpec("tiny", architecture.params(), recipe, 0.5, budget, seed=3, targets=("native", "pass@1", "judge"))


def go(folder: Path) -> PilotRecord:
    task = ToyTask()
    # A rate so small that rounding, which Adam's division can blow up to a whole step, cannot change a completion.
    options = toy_options(learning_rate=1e-6, eval_problems=9, eval_points=2, micro_batch_tokens=60)
    return run_pilot(spec(), task=task, reward=ToyReward(task, price=100), judge=ToyReward(task, price=7),
                     policy=factory(), out_dir=folder, options=options)


def _process(folder: Path, rank: int, count: int, port: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port)}
    record = go(folder)
    (folder / f"seen-{rank}.json").write_text(json.dumps(record.to_dict()))
    torch.distributed.destroy_process_group()


def together(folder: Path, count: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [FORK.Process(target=_process, args=(folder, rank, count, port)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * count


@pytest.mark.parametrize("count", [2, 3])
def test_as_in_one_process(tmp_path: Path, count: int) -> None:
    alone = tmp_path / "alone"
    process = FORK.Process(target=go, args=(alone,))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    together(tmp_path / "together", count)
    a, b = (
        PilotRecord.from_dict(json.loads((tmp_path / name / "record.json").read_bytes()))
        for name in ("alone", "together")
    )
    assert b.provenance["processes"] == count
    assert a.flops == b.flops
    assert a.eval_flops == b.eval_flops
    assert a.curves == b.curves
    assert a.steps == b.steps
    assert a.provenance["training"] == b.provenance["training"]
    rows = [read_ledger(tmp_path / name / "ledger.jsonl").steps for name in ("alone", "together")]
    for one, other in zip(*rows, strict=True):
        for name in ("loss", "grad_norm", "kl", "entropy", "reward", "trained"):
            assert one["metrics"][name] == pytest.approx(other["metrics"][name], rel=1e-4, abs=1e-6)
    weights = [load_file(str(tmp_path / n / "adapter" / "adapter_model.safetensors")) for n in ("alone", "together")]
    assert max(float((weights[0][k] - weights[1][k]).abs().max()) for k in weights[0]) < 1e-5
    # Every process got the record, one wrote it.
    for rank in range(count):
        seen = PilotRecord.from_dict(json.loads((tmp_path / "together" / f"seen-{rank}.json").read_bytes()))
        assert seen == b


def test_parts_are_contiguous_and_complete() -> None:
    for count in (1, 2, 3, 7):
        for n in (0, 1, 5, 16):
            parts = [Ranks(rank, count).part(list(range(n))) for rank in range(count)]
            assert [i for _, part in parts for i in part] == list(range(n))
            assert all(not part or part[0] == start for start, part in parts)


def test_an_engine_is_not_started_in_every_process(tmp_path: Path) -> None:
    from real_runs.attempt import Attempt
    from real_runs.folder import RunFolder
    from real_runs.policy import build_policy

    task = ToyTask()
    options = toy_options(backend="vllm")
    attempt = Attempt(spec(), task, ToyReward(task), ToyReward(task), {}, options, None, RunFolder(tmp_path), factory(),
                      Ranks(0, 2))
    with pytest.raises(InvalidInput, match="in 2 processes"):
        attempt._check(build_policy(factory(), spec().recipe, options, seed=0))
