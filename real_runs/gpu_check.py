"""What one GPU gives: rollout tokens per second, update MFU, and the ledger against torch's counter.

    python -m real_runs.gpu_check                          # Qwen2.5-1.5B shape, random weights, about 3 minutes
    python -m real_runs.gpu_check --backend vllm           # the same through vLLM
    python -m real_runs.gpu_check --device cpu --model nano-s --prompts 4   # a dry run without a GPU

Random weights cost what trained ones cost, so nothing is downloaded. It prints one JSON object. MFU counts charged
FLOPs (causal attention, true lengths) over the time of the phase and the matmul peak measured here, not a datasheet's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from race.errors import InvalidInput
from race.flops import LoraSpec, cost_functions
from race.flops.models import builtin_config
from race.recipe import Recipe
from real_runs.config import RunOptions
from real_runs.contracts import Completion, Problem, Scores
from real_runs.grpo.lanes import Lanes
from real_runs.grpo.optimizer import make_optimizer
from real_runs.grpo.pricing import Prices
from real_runs.grpo.sizing import Sizer, StepSize
from real_runs.grpo.step import RunState, Trainer
from real_runs.grpo.update import Learner
from real_runs.ledger import Ledger, LedgerView, read_ledger
from real_runs.policy import PolicyFactory, build_policy
from real_runs.rollout import Sampling, build_backend

EOS = 1


class RandomPrompts:
    """Prompts of random tokens; right is an even number of tokens, which is as good as any."""

    name = "random"
    eos_id = EOS
    pad_id = EOS

    def __init__(self, vocab: int, length: int, max_completion_tokens: int) -> None:
        self._vocab, self._length = vocab, length
        self.max_completion_tokens = max_completion_tokens

    def train_problems(self, *, seed: int, step: int, count: int) -> Sequence[Problem]:
        """Random problems, a function of seed and step."""
        rows = np.random.default_rng([seed, step]).integers(2, self._vocab, (count, self._length)).tolist()
        return [Problem(str(i), tuple(row), "", "") for i, row in enumerate(rows)]

    def heldout_problems(self, *, count: int) -> Sequence[Problem]:
        """A fixed set."""
        return self.train_problems(seed=1, step=0, count=count)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Nothing to read."""
        return ""

    def correct(self, completions: Sequence[Completion]) -> npt.NDArray[np.float64]:
        """1.0 where the sum of the token ids is even."""
        return np.array([float(sum(c.token_ids) % 2 == 0) for c in completions])


class EvenReward:
    """The task's verdict."""

    name = "sparse"

    def __init__(self, task: RandomPrompts) -> None:
        self._task = task

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Score by the rule."""
        return Scores(self._task.correct(completions))

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """A rule costs nothing."""
        return 0


def random_model(name: str, *, attention: str, dtype: torch.dtype, device: torch.device) -> PolicyFactory:
    """A factory for the shape called ``name`` with random weights, made on the device."""
    known = builtin_config(name)
    if known is None or known.get("model_type") != "qwen2":
        raise InvalidInput(f"model: found {name!r}; allowed is a built-in Qwen2 shape such as qwen2.5-1.5b or nano-s")

    def build() -> PreTrainedModel:
        config = Qwen2Config(**{k: v for k, v in known.items() if k not in ("architectures", "model_type")})
        torch.manual_seed(0)
        with device:
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, attn_implementation=attention, dtype=dtype
            )
        return model

    return build


def run_steps(
    factory: PolicyFactory, recipe: Recipe, options: RunOptions, *, steps: int, count: bool
) -> tuple[LedgerView, int]:
    """Do ``steps`` steps; returns the ledger, and what torch's counter saw (0 unless ``count``)."""
    policy = build_policy(factory, recipe, options, seed=0)
    prompt, limit = int(recipe.prompt_tokens), int(recipe.completion_tokens)
    task = RandomPrompts(policy.architecture.vocab, prompt, limit)
    reward = EvenReward(task)
    prices = Prices.of(policy.architecture, recipe)
    size = StepSize(recipe.prompts_per_step, recipe.group_size)
    sampling = Sampling(max_tokens=limit, eos_id=EOS)
    full = cost_functions(policy.architecture, lora=policy.lora, attention="full")
    with tempfile.TemporaryDirectory(prefix="race-gpu-check-") as scratch:
        backend = build_backend(policy, options, max_tokens=limit, folder=str(Path(scratch) / "engine"))
        trainer = Trainer(
            seed=0, options=options, task=task, reward=reward, backend=backend,
            learner=Learner(
                policy, make_optimizer(policy, recipe, options), options, sampling, full, recipe.kl, Lanes(1)
            ),
            prices=prices,
            sizer=Sizer(prices, reward.flops_bound, recipe.update_ratio, size, limit, 10**30),
            ledger=Ledger(Path(scratch) / "ledger.jsonl", attempt=1, step=-1),
        )  # fmt: skip
        state = RunState()
        counter = FlopCounterMode(display=False)
        try:
            for step in range(steps):
                problems = task.train_problems(seed=0, step=step, count=size.prompts)
                if count:
                    with counter:
                        trainer.take(state, problems, size)
                else:
                    trainer.take(state, problems, size)
        finally:
            backend.close()
        return read_ledger(Path(scratch) / "ledger.jsonl"), counter.get_total_flops() if count else 0


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matmul: the most this device gives in ``dtype``."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    best = 0.0
    for _ in range(12):
        start = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


def check(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure; see the module's text."""
    options = RunOptions(
        device=arguments.device, dtype=arguments.dtype, backend=arguments.backend, learning_rate=1e-5,
        micro_batch_tokens=arguments.micro_batch_tokens, max_prompt_tokens=arguments.prompt_tokens,
    )  # fmt: skip
    device = torch.device("cuda" if arguments.device == "auto" and torch.cuda.is_available() else
                          "cpu" if arguments.device == "auto" else arguments.device)
    dtype = getattr(torch, arguments.dtype)
    recipe = Recipe(
        "sparse", prompts_per_step=arguments.prompts, group_size=8, prompt_tokens=arguments.prompt_tokens,
        completion_tokens=arguments.completion_tokens, lora=LoraSpec(16),
    )  # fmt: skip
    small = replace(recipe, prompts_per_step=2, group_size=2, prompt_tokens=48, completion_tokens=24,
                    update_ratio=1.5, kl=True)
    report: dict[str, Any] = {"model": arguments.model, "device": _name(device), "dtype": arguments.dtype,
                              "backend": arguments.backend}
    started = time.perf_counter()
    view, counted = run_steps(
        random_model(arguments.model, attention="eager", dtype=dtype, device=device), small,
        options.with_changes(backend="hf"), steps=1, count=True,
    )  # fmt: skip
    executed = sum(view.executed.values())
    report["ledger_equals_counter"] = executed == counted
    report["counter_flops"], report["ledger_flops"] = counted, executed

    peak = matmul_peak(device, dtype)
    view, _ = run_steps(
        random_model(arguments.model, attention="sdpa", dtype=dtype, device=device), recipe, options,
        steps=arguments.steps + 1, count=False,
    )  # fmt: skip
    rows = view.steps[1:]  # the first step warms up
    tokens = sum(row["metrics"]["completion_tokens"] * row["metrics"]["prompts"] * recipe.group_size for row in rows)
    report["matmul_peak_tflops"] = round(peak / 1e12, 2)
    report["rollout_tokens_per_second"] = round(tokens / sum(row["seconds"]["search"] for row in rows), 1)
    for name, column in (("search", "search"), ("update", "learning")):
        seconds = sum(row["seconds"][name] for row in rows)
        report[f"{name}_mfu"] = round(sum(row[column] for row in rows) / seconds / peak, 4)
        report[f"{name}_seconds_per_step"] = round(seconds / len(rows), 3)
    report["logprob_mismatch"] = max(row["metrics"]["logprob_mismatch"] for row in rows)
    if device.type == "cuda":
        report["peak_memory_gib"] = round(torch.cuda.max_memory_allocated(device) / 2**30, 1)
    report["seconds"] = round(time.perf_counter() - started, 1)
    return report


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--backend", default="hf", choices=["hf", "vllm"])
    parser.add_argument("--prompts", type=int, default=16, help="prompts per step, 8 completions each")
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument("--completion-tokens", type=int, default=256)
    parser.add_argument("--micro-batch-tokens", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=3, help="measured steps")
    print(json.dumps(check(parser.parse_args(argv)), indent=1))


if __name__ == "__main__":
    main()
