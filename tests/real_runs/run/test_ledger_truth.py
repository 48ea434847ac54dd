"""The ledger against the truth: whole runs under torch's own counter, equal to the integer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grpo_toys import ToyReward, ToyTask, factory, tiny_model, toy_options, toy_recipe
from torch.utils.flop_counter import FlopCounterMode

from race.allocation import step_allocation
from race.flops import Architecture
from race.records import PilotRecord, PilotSpec
from real_runs.ledger import read_ledger
from real_runs.run import run_pilot


def spec_for(steps: float, *, targets: tuple[str, ...] = ("native", "pass@1"), **recipe: Any) -> PilotSpec:
    architecture = Architecture.from_config(tiny_model().config)
    built = toy_recipe(**recipe)
    budget = int(steps * step_allocation(architecture, built).total)
    return PilotSpec("tiny", architecture.params(), built, 0.5, budget, seed=1, targets=targets)


@pytest.mark.parametrize(
    ("recipe", "forward"),
    [
        ({}, "lean"),
        ({}, "transformers"),
        ({"update_ratio": 2.5, "kl": True}, "lean"),
        ({"update_ratio": 2.5, "kl": True}, "transformers"),
        ({"update_ratio": 0.25, "prefix_caching": False}, "lean"),
        ({"recompute_old_logprobs": True}, "lean"),
        ({"gradient_checkpointing": True}, "auto"),
        ({"lora": None}, "auto"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else value,
)
@pytest.mark.parametrize("ragged", [True, False])
def test_three_steps_equal_the_counter(tmp_path: Path, recipe: dict[str, Any], forward: str, ragged: bool) -> None:
    task = ToyTask(ragged=ragged)
    with FlopCounterMode(display=False) as counter:
        record = run_pilot(
            spec_for(3.4, **recipe), task=task, reward=ToyReward(task), policy=factory(attention="eager"),
            out_dir=tmp_path, options=toy_options(forward=forward, eval_problems=8, eval_points=2),
        )
    assert record.steps >= 3
    assert sum(record.provenance["executed_flops"].values()) == counter.get_total_flops()


def test_charged_equals_executed_but_for_padding_and_masked_pairs(tmp_path: Path) -> None:
    """On equal lengths without EOS, the charge at full attention is what ran; causal is what is charged."""
    task = ToyTask(ragged=False)
    task.eos_id = 11
    spec = spec_for(3.0, completion_tokens=6)
    record = run_pilot(spec, task=task, reward=ToyReward(task), policy=factory(), out_dir=tmp_path,
                       options=toy_options(temperature=0.01, eval_points=1, eval_problems=4))
    view = read_ledger(tmp_path / "ledger.jsonl")
    lengths = {row["metrics"]["completion_tokens"] for row in view.steps}
    if lengths == {6.0}:
        planned = step_allocation(Architecture.from_config(tiny_model().config), spec.recipe)
        assert view.steps[0]["search"] == planned.search
        assert view.steps[0]["learning"] == planned.learning
    assert record.flops.total <= sum(view.executed[p] for p in ("search", "update"))


def totals(record: PilotRecord) -> tuple[int, int, int]:
    return int(record.flops.search), int(record.flops.learning), int(record.flops.reward)


def test_columns_add_up(tmp_path: Path) -> None:
    task = ToyTask()
    spec = spec_for(5, update_ratio=1.5)
    record = run_pilot(spec, task=task, reward=ToyReward(task, price=50), policy=factory(), out_dir=tmp_path,
                       options=toy_options(eval_problems=8))
    view = read_ledger(tmp_path / "ledger.jsonl")
    assert view.lost.total == 0
    assert view.torn == 0
    for index, column in enumerate(("search", "learning", "reward")):
        assert sum(row[column] for row in view.steps) == totals(record)[index] > 0
    assert view.steps[-1]["total"] == record.flops.total <= spec.budget
    assert view.useful.eval == record.eval_flops > 0
    assert set(view.seconds) >= {"search", "reward", "update", "old_logprobs", "eval"}
    curve = record.curves["native"]
    assert curve.step[0] == 0
    assert curve.flops[0] == 0
    assert curve.step[-1] == record.steps
    assert curve.flops[-1] == record.flops.total
    assert 4 <= len(curve) <= 7
    assert record.flops.total >= 0.97 * spec.budget
    again = PilotRecord.from_dict(record.to_dict())
    assert again == record
