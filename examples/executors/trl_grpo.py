"""A pilot with TRL's GRPOTrainer: reads RACE's spec, trains within its budget, writes RACE's record.

    race loop ... --executor examples/executors/trl.toml
    python trl_grpo.py spec.json record.json --progress progress.jsonl --folder pilot/

Model, task and reward are those of the nano ladder, as `race run` builds them; for your own, change `run`, which puts
them together. TRL samples and trains. What TRL leaves to us:

- FLOPs. TRL logs ``total_flos: 0``, so every sample is charged on its true length with RACE's prices, old log-prob
  passes included where TRL makes them.
- The budget. TRL cannot stop inside a step, so training ends before the first one that is likely to overspend.
- The update ratio a. TRL reuses whole batches; the last of the ceil(a) passes is cut to the fraction that is left, and
  a < 1 trains on a part of the only pass.

No checkpoints are read: a pilot that is tried again starts from the beginning, and says so in its progress file.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from race.allocation import size_run
from race.errors import RaceError
from race.flops import Architecture
from race.records import PilotSpec
from real_runs.assemble import Setup, assembled, is_nano, locate
from real_runs.config import RunOptions
from real_runs.contracts import Completion
from real_runs.grpo.pricing import Prices
from real_runs.nano.defaults import default_options
from real_runs.nano.models import model_folder


class Meter:
    """Counts FLOPs by phase, keeps the curves, and writes both where the executor looks."""

    def __init__(self, spec: PilotSpec, prices: Prices, planned_step: float, progress: Path | None) -> None:
        self.spec, self.prices, self.progress = spec, prices, progress
        self.flops = {"search": 0, "learning": 0, "reward": 0}
        self.eval_flops, self.steps, self.before = 0, 0, 0
        self.largest = planned_step
        self.curves: dict[str, dict[str, list[float]]] = {}
        self.tell()  # zero: should this be another attempt, it starts from the beginning

    @property
    def total(self) -> int:
        return sum(self.flops.values())

    def step_done(self) -> None:
        self.steps += 1
        self.largest, self.before = max(self.largest, self.total - self.before), self.total
        self.tell()

    def exhausted(self) -> bool:
        # A step costs what its completions happen to be long: a tenth more than any so far is allowed for.
        return self.total + 1.1 * self.largest > self.spec.budget

    def add_points(self, values: dict[str, tuple[float, float]]) -> None:
        for target, (value, se) in values.items():
            curve = self.curves.setdefault(target, {"step": [], "flops": [], "value": [], "se": []})
            for name, number in zip(curve, (self.steps, self.total, value, se), strict=True):
                curve[name].append(number)
        self.tell(values)

    def tell(self, values: dict[str, tuple[float, float]] | None = None) -> None:
        if self.progress is not None:
            line = {"flops": self.flops, "step": self.steps, "values": values or {}}
            with self.progress.open("a") as file:
                file.write(json.dumps(line) + "\n")


class BudgetedTrainer(GRPOTrainer):
    """GRPOTrainer that trains on ``a`` times the samples it generates, and charges them."""

    meter: Meter
    ratio: float

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        inputs = super()._prepare_inputs(generation_batch)
        if not self.model.training:
            return inputs
        passes = math.ceil(self.ratio)
        samples = len(inputs["completion_ids"])
        rows = samples
        if self._step % passes == passes - 1:  # the last pass over these samples
            rows = round((self.ratio - (passes - 1)) * samples)
            inputs = {
                k: v[:rows] if isinstance(v, torch.Tensor) and v.dim() else v for k, v in inputs.items()
            }
            inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
        prompts = inputs["prompt_mask"].sum(1).tolist()
        completions = inputs["completion_mask"].sum(1).tolist()
        prices = self.meter.prices
        for p, c in zip(prompts, completions, strict=True):
            self.meter.flops["learning"] += prices.update(p, c)
        if self._step % passes == 0:
            for p, c in zip(prompts, completions, strict=True):
                # TRL computes reference log-probs, and old ones when there are several passes, for all samples.
                self.meter.flops["learning"] += prices.reference(p, c)
                self.meter.flops["learning"] += prices.old_logprobs(p, c) if passes > 1 else 0
        return inputs


class Evaluations(TrainerCallback):
    """Evaluates at even shares of the budget and stops when it is spent."""

    def __init__(self, meter: Meter, evaluate: Any, passes: int, points: int) -> None:
        self.meter, self.evaluate, self.passes, self.points = meter, evaluate, passes, points
        self.milestone = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.passes:
            return
        self.meter.step_done()
        done = self.meter.total * self.points // self.meter.spec.budget
        control.should_training_stop = self.meter.exhausted()
        if done > self.milestone or control.should_training_stop:
            self.milestone = done
            self.meter.add_points(self.evaluate())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--eval-problems", type=int, default=128)
    parser.add_argument("--eval-points", type=int, default=6)
    told = parser.parse_args()
    try:
        record = run(PilotSpec.from_dict(json.loads(told.spec.read_text())), told)
    except RaceError as error:
        sys.exit(f"error: {error}")
    told.record.write_text(json.dumps(record))


def run(spec: PilotSpec, told: argparse.Namespace) -> dict[str, Any]:
    setup = Setup(model=spec.model, reward=spec.reward)
    options = RunOptions.from_dict(default_options(spec.model))
    with assembled(setup, options) as parts:
        return train(spec, parts, options, told)


def train(spec: PilotSpec, parts: Any, options: RunOptions, told: argparse.Namespace) -> dict[str, Any]:
    task, reward, recipe = parts.task, parts.reward, spec.recipe
    architecture = Architecture.from_config(locate(spec.model))
    plan = size_run(architecture, recipe, spec.budget)
    meter = Meter(spec, Prices.of(architecture, recipe), plan.step.total, told.progress)
    passes = math.ceil(recipe.update_ratio)
    limit = options.max_completion_tokens or task.max_completion_tokens
    where = model_folder(spec.model) if is_nano(spec.model) else locate(spec.model)
    tokenizer = AutoTokenizer.from_pretrained(where, padding_side="left")

    # Twice the planned steps: completions may turn out shorter than planned.
    problems = [
        problem
        for step in range(2 * plan.steps + 2)
        for problem in task.train_problems(seed=spec.seed, step=step, count=recipe.prompts_per_step)
    ]
    for problem in problems[:8]:
        if tuple(tokenizer(problem.prompt)["input_ids"]) != problem.prompt_ids:
            sys.exit(
                f"error: {spec.model}: TRL would tokenize {problem.prompt!r} in another way than the task does"
            )

    def completions_of(asked: list[Any], ids: list[list[int]]) -> list[Completion]:
        return [
            Completion(p, tuple(i), task.decode(i), finished=bool(i) and i[-1] == task.eos_id)
            for p, i in zip(asked, ids, strict=True)
        ]

    def score(completion_ids: list[list[int]], number: list[int], **_: Any) -> list[float]:
        asked = [problems[i] for i in number]
        scores = reward.score(completions_of(asked, completion_ids))
        meter.flops["reward"] += scores.flops
        for start in range(0, len(asked), recipe.group_size):
            lengths = [len(ids) for ids in completion_ids[start : start + recipe.group_size]]
            meter.flops["search"] += meter.prices.search(len(asked[start].prompt_ids), lengths)
        return [float(value) for value in scores.values]

    @torch.no_grad()
    def evaluate() -> dict[str, tuple[float, float]]:
        asked = task.heldout_problems(count=told.eval_problems)
        batch = tokenizer([p.prompt for p in asked], return_tensors="pt", padding=True).to(
            trainer.model.device
        )
        batch.pop("token_type_ids", None)
        was_training = trainer.model.training
        trainer.model.eval()
        with torch.random.fork_rng():
            torch.manual_seed(spec.seed + 1)
            out = trainer.model.generate(
                **batch, max_new_tokens=limit, do_sample=True, temperature=1.0, top_k=0, eos_token_id=task.eos_id,
                pad_token_id=task.pad_id,
            )  # fmt: skip
        trainer.model.train(was_training)
        sampled = []
        for row in out[:, batch["input_ids"].shape[1] :].tolist():
            end = row.index(task.eos_id) + 1 if task.eos_id in row else len(row)
            sampled.append(row[:end])
        meter.eval_flops += sum(
            meter.prices.search(len(p.prompt_ids), [len(i)]) for p, i in zip(asked, sampled, strict=True)
        )
        answers = completions_of(list(asked), sampled)
        found = {}
        for target in spec.targets:
            if target == "native":
                scores = reward.score(answers)
                meter.eval_flops += scores.flops
                values = scores.values
            elif target == "judge":
                values = parts.judge.score(answers).values
            else:
                values = task.correct(answers)
            # One success and one failure more, so that the error of 0 or 1 out of n is not 0.
            n = len(values)
            guess = (float(values.mean()) * n + 1) / (n + 2)
            found[target] = (float(values.mean()), math.sqrt(guess * (1 - guess) / n))
        return found

    lora = recipe.lora
    trainer = BudgetedTrainer(
        model=parts.policy(),
        args=GRPOConfig(
            output_dir=str(told.folder / "trl"), seed=spec.seed, report_to=[], save_strategy="no", disable_tqdm=True,
            logging_steps=50, use_cpu=not torch.cuda.is_available(), bf16=torch.cuda.is_available(),
            per_device_train_batch_size=recipe.samples_per_step, num_generations=recipe.group_size,
            steps_per_generation=1, num_iterations=passes, max_steps=passes * (2 * plan.steps + 2),
            shuffle_dataset=False, max_completion_length=limit, temperature=1.0,
            learning_rate=options.learning_rate * recipe.learning_rate, lr_scheduler_type="constant",
            adam_beta1=options.betas[0], adam_beta2=options.betas[1], max_grad_norm=options.grad_clip,
            loss_type="dapo", epsilon=options.clip_low, epsilon_high=options.clip_high,
            beta=options.beta if recipe.kl else 0.0, gradient_checkpointing=recipe.gradient_checkpointing,
        ),
        reward_funcs=score,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": p.prompt, "number": i} for i, p in enumerate(problems)]),
        peft_config=None if lora is None else LoraConfig(
            r=lora.rank, lora_alpha=options.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM",
        ),
    )  # fmt: skip
    trainer.meter, trainer.ratio = meter, recipe.update_ratio
    trainer.add_callback(Evaluations(meter, evaluate, passes, told.eval_points))
    meter.add_points(evaluate())
    trainer.train()
    return {
        "flops": {**meter.flops, "eval": meter.eval_flops},
        "curves": meter.curves,
        "steps": meter.steps,
        "provenance": {"runner": "examples/executors/trl_grpo.py", "trainer": "trl"},
    }


if __name__ == "__main__":
    main()
