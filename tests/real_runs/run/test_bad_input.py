"""What can be wrong is refused before a FLOP is spent, or recorded as the run's health; nothing is lost."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grpo_toys import ToyReward, ToyTask, factory, tiny_model, toy_options, toy_recipe
from peft import PeftModel

from race.allocation import step_allocation
from race.errors import CannotDo, InvalidInput
from race.flops import Architecture, LoraSpec
from race.records import PilotRecord, PilotSpec
from real_runs.config import RunOptions
from real_runs.contracts import Completion, Problem, Scores
from real_runs.run import run_pilot

ARCH = Architecture.from_config(tiny_model().config)


def spec(steps: float = 3, targets: tuple[str, ...] = ("native", "pass@1"), **recipe: Any) -> PilotSpec:
    built = toy_recipe(**recipe)
    return PilotSpec("tiny", ARCH.params(), built, 0.5, int(steps * step_allocation(ARCH, built).total), seed=3,
                     targets=targets)


def go(folder: Path, pilot: PilotSpec | None = None, *, task: ToyTask | None = None, reward: Any = None,
       policy: Any = None, **options: Any) -> PilotRecord:
    task = task or ToyTask()
    return run_pilot(pilot or spec(), task=task, reward=reward or ToyReward(task), policy=policy or factory(),
                     out_dir=folder, options=toy_options(**{"eval_problems": 8, **options}))


def test_budget_below_one_step(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="below one step"):
        go(tmp_path, spec(0.9))
    assert not (tmp_path / "ledger.jsonl").exists()


def test_group_of_one_is_no_recipe() -> None:
    with pytest.raises(InvalidInput, match="group_size"):
        toy_recipe(group_size=1)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_rewards_equal_is_a_flag_and_trains_nothing(tmp_path: Path, value: float) -> None:
    task = ToyTask()
    record = go(tmp_path, spec(4), task=task, reward=ToyReward(task, constant=value))
    assert record.health.status == "ok"
    assert "all-rewards-equal" in record.health.flags
    assert record.provenance["silent_groups"] == 1.0
    from safetensors.torch import load_file

    adapter = load_file(str(tmp_path / "adapter" / "adapter_model.safetensors"))
    assert all((t == 0).all() for name, t in adapter.items() if "lora_B" in name)


def test_nan_midway_is_recorded_as_diverged_with_the_weights_before_it(tmp_path: Path) -> None:
    models: list[Any] = []

    def build() -> Any:
        models.append(tiny_model())
        return models[0]

    def strike(progress: Any) -> None:
        if progress.step == 2:
            with torch.no_grad():
                models[0].model.layers[0].mlp.up_proj.base_layer.weight[0, 0] = float("nan")

    task = ToyTask()
    record = run_pilot(spec(8, group_size=8), task=task, reward=ToyReward(task), policy=build, out_dir=tmp_path,
                       options=toy_options(eval_problems=8), progress=strike)
    assert record.health.status == "diverged"
    assert "NaN" in record.health.reason
    assert record.steps == 3
    assert record.curves["pass@1"].step[0] == 0
    assert 0 < record.flops.total < record.spec.budget
    from safetensors.torch import load_file

    adapter = load_file(str(tmp_path / "adapter" / "adapter_model.safetensors"))
    assert all(bool(t.isfinite().all()) for t in adapter.values())
    assert any(bool((t != 0).any()) for name, t in adapter.items() if "lora_B" in name)


def test_broken_base_diverges_at_once(tmp_path: Path) -> None:
    def broken() -> Any:
        model = tiny_model()
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
        return model

    record = go(tmp_path, policy=broken)
    assert record.health.status == "diverged"
    assert record.steps == 1
    assert json.loads((tmp_path / "record.json").read_bytes())["health"]["status"] == "diverged"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"recipe": toy_recipe(update_ratio=2.0)}, r"spec\.recipe\.update_ratio: found 2\.0"),
        ({"seed": 4}, r"spec\.seed: found 4"),
        ({"budget": 10**9}, r"spec\.budget: found 1000000000"),
    ],
)
def test_resuming_with_a_changed_recipe(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    go(tmp_path)
    ledger = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(InvalidInput, match=named):
        go(tmp_path, dataclasses.replace(spec(), **change))
    with pytest.raises(InvalidInput, match=r"options\.learning_rate: found 0\.001"):
        go(tmp_path, learning_rate=1e-3)
    assert (tmp_path / "ledger.jsonl").read_bytes() == ledger


def test_resuming_on_another_base(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.step == 2:
            raise StopError

    task = ToyTask()
    with pytest.raises(StopError):
        run_pilot(spec(), task=task, reward=ToyReward(task), policy=factory(), out_dir=tmp_path,
                  options=toy_options(eval_problems=8), progress=stop)
    with pytest.raises(InvalidInput, match="base: found"):
        go(tmp_path, policy=factory(seed=1))
    assert go(tmp_path).health.status == "ok"


def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotDo, match="cannot write"):
        go(tmp_path / "file" / "run")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(CannotDo, match=r"thesis\.tex but no run\.json"):
        go(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_an_unreadable_manifest_is_not_overwritten(tmp_path: Path) -> None:
    go(tmp_path)
    (tmp_path / "record.json").unlink()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CannotDo, match=r"cannot read .*run\.json"):
        go(tmp_path)
    assert (tmp_path / "run.json").read_text() == "{"


class OddTask(ToyTask):
    """A task with one thing wrong."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self._wrong = wrong
        if wrong == "pad":
            self.pad_id = 999

    def train_problems(self, *, seed: int, step: int, count: int) -> Sequence[Problem]:
        problems = list(super().train_problems(seed=seed, step=step, count=count))
        if self._wrong == "empty":
            problems[1] = dataclasses.replace(problems[1], prompt_ids=())
        if self._wrong == "long":
            problems[1] = dataclasses.replace(problems[1], prompt_ids=(2,) * 125)
        return problems[1:] if self._wrong == "short" else problems

    def heldout_problems(self, *, count: int) -> Sequence[Problem]:
        return [] if self._wrong == "heldout" else super().heldout_problems(count=count)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ("empty", InvalidInput, "empty prompt"),
        ("long", InvalidInput, "context"),
        ("short", CannotDo, "gave 3 problems"),
        ("heldout", CannotDo, "no held-out problems"),
        ("pad", InvalidInput, r"task\.pad_id: found 999"),
    ],
)
def test_a_task_with_something_wrong(tmp_path: Path, wrong: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        go(tmp_path, task=OddTask(wrong))


class OddReward(ToyReward):
    """A reward that breaks its contract."""

    def __init__(self, task: ToyTask, wrong: str) -> None:
        super().__init__(task, price=10)
        self._wrong = wrong

    def score(self, completions: Sequence[Completion]) -> Scores:
        scores = super().score(completions)
        if self._wrong == "nan":
            return dataclasses.replace(scores, values=np.full(len(completions), np.nan))
        if self._wrong == "shape":
            return dataclasses.replace(scores, values=scores.values[1:])
        return dataclasses.replace(scores, flops=scores.flops + 1)


@pytest.mark.parametrize(
    ("wrong", "message"), [("nan", "not finite"), ("shape", r"shape \(15,\)"), ("price", "above its own bound")]
)
def test_a_reward_that_breaks_its_contract(tmp_path: Path, wrong: str, message: str) -> None:
    task = ToyTask()
    with pytest.raises(CannotDo, match=message):
        go(tmp_path, spec(targets=("pass@1",)), task=task, reward=OddReward(task, wrong))


def test_targets_that_nothing_can_evaluate(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no judge"):
        go(tmp_path, spec(targets=("judge",)))
    with pytest.raises(InvalidInput, match=r"targets: found 'pass@1:gsm8k'"):
        go(tmp_path, spec(targets=("pass@1:gsm8k",)))


def test_benchmarks_and_judge_have_curves_of_their_own(tmp_path: Path) -> None:
    task, other = ToyTask(), ToyTask(ragged=False)
    record = run_pilot(
        spec(targets=("native", "pass@1", "pass@1:other", "judge")), task=task, reward=ToyReward(task),
        judge=ToyReward(task, constant=0.25), benchmarks={"other": other}, policy=factory(), out_dir=tmp_path,
        options=toy_options(eval_problems=8),
    )
    assert set(record.curves) == {"native", "pass@1", "pass@1:other", "judge"}
    assert set(record.curves["judge"].value) == {0.25}


def test_a_judge_that_runs_a_model_is_metered_beside_the_budget(tmp_path: Path) -> None:
    task = ToyTask()

    class Dear:
        name = "dear"

        def score(self, completions: Sequence[Completion]) -> Scores:
            return Scores(np.full(len(completions), 0.5), flops=10**12)

    record = run_pilot(
        spec(targets=("pass@1", "judge")), task=task, reward=ToyReward(task), judge=Dear(), policy=factory(),
        out_dir=tmp_path, options=toy_options(eval_problems=4, eval_points=1),
    )
    assert record.eval_flops > 10**12
    assert record.flops.total <= record.spec.budget


def test_a_lora_target_the_model_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="qkv_proj"):
        go(tmp_path, PilotSpec("tiny", 1, toy_recipe(lora=LoraSpec(4, targets=("qkv_proj",))), 0.5, 10**9))


def test_truncated_sampling_is_refused_where_ratios_are_used(tmp_path: Path) -> None:
    for recipe in ({"update_ratio": 2.0}, {"kl": True}):
        with pytest.raises(InvalidInput, match="truncated sampling"):
            go(tmp_path, spec(**recipe), top_p=0.9)
    record = go(tmp_path, top_p=0.9)
    assert "truncated-sampling" in record.health.flags


def test_kl_without_an_adapter(tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match="no reference policy"):
        go(tmp_path, spec(lora=None, kl=True))


def test_no_gpu_is_said(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CannotDo, match="no GPU"):
        go(tmp_path, device="cuda")


def test_the_adapter_loads_with_peft_and_the_card_carries_the_split(tmp_path: Path) -> None:
    record = go(tmp_path)
    model = PeftModel.from_pretrained(tiny_model(), str(tmp_path / "adapter"))
    assert any(p.abs().sum() > 0 for name, p in model.named_parameters() if "lora_B" in name)
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert f"rho = {record.flops.rho:.3f}" in card
    assert "learning (updates)" in card


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"learning_rate": 0}, "learning_rate"),
        ({"loss": "ppo"}, "loss: found 'ppo'; allowed are grpo, dapo, dr-grpo"),
        ({"eval_points": 0}, "eval_points"),
        ({"betas": [0.9]}, "betas"),
        ({"scale_advantages": 1}, "scale_advantages"),
        ({"temperature": float("nan")}, "temperature"),
        ({"colour": "red"}, "unknown option 'colour'"),
    ],
)
def test_options_are_checked_at_the_door(values: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        RunOptions.from_dict(values)


def test_options_round_trip() -> None:
    options = toy_options(betas=(0.8, 0.9), importance_cap=2.0)
    assert RunOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
