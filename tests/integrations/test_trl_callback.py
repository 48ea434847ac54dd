"""What a user of `ComputeCallback` meets: logs, budget, resume, record, and messages."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from race.errors import CannotDo, InvalidInput
from race.flops import Architecture, LoraSpec, generate_flops
from race.records import PilotRecord
from race.store import Store

SMALL = {"max_completion_length": 12, "max_steps": 4}


@pytest.fixture
def callback_class() -> Any:
    pytest.importorskip("trl", reason="trl is not installed: pip install 'race-rl[test]'")
    from race.integrations.trl import ComputeCallback

    return ComputeCallback


def build(runs: ModuleType, folder: Path, callback: Any, *extra: Any, scorer: bool = False, **config: Any) -> Any:
    case = runs.Case("test", scorer=scorer)
    return runs.build_trainer(case, folder, [callback, *extra], **{**SMALL, **config})


class Reporter:
    """What a W&B or TensorBoard callback does: it sends on the log as it is when its turn comes."""

    def __new__(cls) -> Any:
        from transformers import TrainerCallback

        class Sent(TrainerCallback):  # type: ignore[misc]
            def __init__(self) -> None:
                self.logs: list[dict[str, Any]] = []

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
                self.logs.append(dict(logs))

        return Sent()


def test_logs_reach_reporters_and_the_record_is_written(
    runs: ModuleType, callback_class: Any, tmp_path: Path
) -> None:
    callback, reporter = callback_class(store=tmp_path / "store", reward="sparse"), Reporter()
    trainer = build(runs, tmp_path / "out", callback, logging_steps=2)
    # As Trainer itself does: reporters come before the callbacks a user passes.
    trainer.callback_handler.callbacks.insert(0, reporter)
    trainer.train()

    logged = [log["compute/total_flops"] for log in reporter.logs]
    assert len(logged) == 3  # steps 2 and 4, and the summary
    assert 0 < logged[0] < logged[1] == logged[2]
    last = trainer.state.log_history[-2]
    assert last["compute/total_flops"] == logged[1]
    assert last["compute/search"] + last["compute/learning"] + last["compute/reward"] == logged[1]
    assert last["compute/rho"] + last["compute/sigma"] + last["compute/phi"] == pytest.approx(1)
    assert last["compute/executed_flops"] > logged[1]
    assert trainer.state.total_flos == logged[1]
    assert reporter.logs[-1]["total_flos"] == logged[1]

    (record,) = Store(tmp_path / "store").records().require()
    assert record == PilotRecord.from_dict(json.loads((tmp_path / "out" / "race_record.json").read_text()))
    assert record.flops.total == logged[1]
    assert record.spec.model == "nano-s"
    assert record.spec.recipe.lora == LoraSpec(8, "all-linear")
    assert (record.spec.recipe.prompts_per_step, record.spec.recipe.group_size) == (4, 4)
    assert not record.spec.recipe.prefix_caching
    curve = record.curves["native"]
    assert (curve.step, record.steps) == ((0, 1, 2, 3), 4)
    assert curve.flops[0] == 0
    rewards = [e["reward"] for e in trainer.state.log_history if "reward" in e]
    assert [sum(curve.value[i : i + 2]) / 2 for i in (0, 2)] == pytest.approx(rewards)
    # The trainer is left as it was found.
    assert "generate" not in vars(trainer.model.get_base_model())
    assert "_generate_and_score_completions" not in vars(trainer)


class Bounds:
    """Keeps, for every step, what was spent and what the next step was said to take at most."""

    def __new__(cls, callback: Any) -> Any:
        from transformers import TrainerCallback

        class Seen(TrainerCallback):  # type: ignore[misc]
            def __init__(self) -> None:
                self.steps: list[tuple[int, int]] = []

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                self.steps.append((int(callback.spent.total), callback._forecast.next_step()))

        return Seen()


@pytest.mark.parametrize(
    ("count", "attention", "scorer", "config"),
    [
        ("needed", "causal", True, {"beta": 0.1}),
        ("executed", "full", False, {"num_iterations": 2, "gradient_checkpointing": True, "learning_rate": 1e-2}),
    ],
)
def test_a_budget_is_used_and_never_exceeded(
    runs: ModuleType, callback_class: Any, tmp_path: Path, count: str, attention: str, scorer: bool, config: Any
) -> None:
    budget = 3_000_000_000
    callback = callback_class(budget, count=count, attention=attention)
    seen = Bounds(callback)
    trainer = build(runs, tmp_path, callback, seen, scorer=scorer, max_steps=50, **config)
    trainer.train()
    (spent, bound), before = seen.steps[-1], seen.steps[:-1]
    assert spent == callback.spent.total <= budget < spent + bound
    assert 2 < trainer.state.global_step < 50
    # No step took more than it was said to, and the bound is near enough to be of use.
    taken = [b[0] - a[0] for a, b in zip(seen.steps, seen.steps[1:], strict=False)]
    assert all(0.5 * said < took <= said for took, (_, said) in zip(taken, before, strict=True))
    assert trainer.state.log_history[-1]["compute/budget_used"] == pytest.approx(spent / budget)


def test_resume_gives_the_same_counts(runs: ModuleType, callback_class: Any, tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    whole = callback_class()
    build(runs, tmp_path / "run", whole, **saving).train()
    checkpoint = tmp_path / "run" / "checkpoint-2"
    saved = json.loads((checkpoint / "trainer_state.json").read_text())
    assert 0 < saved["total_flos"] < whole.spent.total

    again = callback_class()
    trainer = build(runs, tmp_path / "run", again, **saving)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    # Same prompts, and every completion runs into the limit, so both trained on the same lengths.
    assert again.tally.to_dict() == whole.tally.to_dict()
    assert again.record.curves["native"].flops == whole.record.curves["native"].flops
    assert again.record.steps == whole.record.steps == 4
    assert again.record.id == whole.record.id

    third = callback_class(reward_models=[runs.scorer_model()])
    with pytest.raises(InvalidInput, match=r"reward_models: found 1, the checkpoint was metered with 0"):
        build(runs, tmp_path / "run", third, **saving).train(resume_from_checkpoint=str(checkpoint))


def test_a_second_training_starts_from_zero(runs: ModuleType, callback_class: Any, tmp_path: Path) -> None:
    callback = callback_class()
    trainer = build(runs, tmp_path, callback, max_steps=1)
    trainer.train()
    first = callback.record
    trainer.train()
    assert callback.record.steps == 1
    assert callback.record.id != first.id


def test_models_inside_reward_functions_are_metered_when_named(
    runs: ModuleType, callback_class: Any, tmp_path: Path
) -> None:
    import torch

    scorer, tokenizer = runs.scorer_model().eval(), runs.load_tokenizer()

    def score(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        texts = [p + c for p, c in zip(prompts, completions, strict=True)]
        with torch.no_grad():
            batch = tokenizer(texts, return_tensors="pt", padding=True)
            return scorer(**batch).logits[:, 0].tolist()

    callback = callback_class(reward_models=[scorer])
    trainer = build(runs, tmp_path, callback, max_steps=1)
    trainer.reward_funcs[0] = score
    trainer.train()
    assert callback.record.flops.reward > 0
    assert callback.record.spec.reward == "prm"
    assert any(line.startswith("reward: prm") for line in callback.record.provenance["assumptions"])
    low, high = callback.record.provenance["native_range"]
    assert low <= high


def test_an_outside_engine_is_charged_by_lengths(
    runs: ModuleType, callback_class: Any, tmp_path: Path
) -> None:
    """What vLLM generates is seen by its lengths only; a group's prompt is then charged once."""

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [trainer.processing_class(text=p)["input_ids"] for p in prompts]
        made = [[5 + i % 3] * (2 + i) for i in range(len(prompts))]
        return {"prompt_ids": ids, "completion_ids": made, "logprobs": [[0.0] * len(c) for c in made]}

    callback = callback_class(attention="full")
    case = runs.Case("outside")
    trainer = runs.build_trainer(case, tmp_path, [callback], max_steps=1, max_completion_length=40)
    trainer.rollout_func = rollout
    trainer.train()
    policy = Architecture.from_config(trainer.model.get_base_model().config)
    prompts = sorted(len(trainer.processing_class(text=row["prompt"])["input_ids"]) for row in trainer.train_dataset)
    assert prompts[0] < prompts[-1], "the task has prompts of several lengths"
    tokens = callback.record.spec.recipe
    assert tokens.completion_tokens == sum(2 + i for i in range(16)) / 16
    assert tokens.prefix_caching
    search = callback.tally.get("executed", "full", "search")
    assert search == callback.tally.get("needed", "full", "search") > 0
    lora = LoraSpec(8)
    # Decoding depends on prompts through attention alone, so the shortest and longest prompt enclose the truth.
    ends = [
        generate_flops(policy, [p] * 4, [2 + i for i in range(16)], group_size=4, shared_prefix=True,
                       attention="full", lora=lora).total
        for p in (prompts[0], prompts[-1])
    ]  # fmt: skip
    assert ends[0] <= search <= ends[1]


def test_budget_below_one_step(runs: ModuleType, callback_class: Any, tmp_path: Path) -> None:
    trainer = build(runs, tmp_path, callback_class("1e6"))
    with pytest.raises(InvalidInput, match=r"budget: found 1e6 FLOPs with 0 spent, and the next step can take"):
        trainer.train()


def test_added_later_and_on_another_trainer(runs: ModuleType, callback_class: Any, tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    callback = callback_class()
    trainer = build(runs, tmp_path, Reporter(), max_steps=1)
    trainer.add_callback(callback)
    trainer.train()
    assert callback.record.flops.total > 0

    arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True, max_steps=1)
    plain = Trainer(runs.scorer_model(), arguments, train_dataset=[{"input_ids": [1]}], callbacks=[callback_class()])
    with pytest.raises(CannotDo, match=r"trainer: Trainer has no _generate_and_score_completions; compute"):
        plain.train()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "much"}, "budget: found 'much'"),
        ({"attention": "flash"}, "attention: found 'flash'; allowed are causal and full"),
        ({"count": "all"}, "count: found 'all'; allowed are needed and executed"),
        ({"reward": "good"}, "reward"),
        ({"reward_range": (1, 0)}, "reward_range: found"),
        ({"reward_range": 3}, "reward_range: found 3"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens: found 0"),
    ],
)
def test_bad_arguments(callback_class: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        callback_class(**arguments)
