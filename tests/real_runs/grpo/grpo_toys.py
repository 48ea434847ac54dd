"""A tiny random Qwen2 and a task it can learn in seconds: say the token that the prompt ends with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from race.flops import LoraSpec
from race.recipe import Recipe
from real_runs.config import RunOptions
from real_runs.contracts import Completion, Problem, Scores

VOCAB, PAD, EOS = 12, 0, 1


def tiny_model(seed: int = 0, *, vocab: int = VOCAB, layers: int = 2, attention: str = "sdpa") -> PreTrainedModel:
    config = Qwen2Config(
        vocab_size=vocab, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.2,
        attn_implementation=attention,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


class ToyTask:
    """Right is a completion whose first token is 2. Prompts may be ragged."""

    name = "toy"
    eos_id = EOS
    max_completion_tokens = 6

    def __init__(self, *, ragged: bool = True, pad_id: int = PAD) -> None:
        self.pad_id = pad_id
        self._ragged = ragged

    def _problem(self, rng: np.random.Generator, name: str) -> Problem:
        length = int(rng.integers(2, 6)) if self._ragged else 4
        ids = tuple(int(t) for t in rng.integers(2, VOCAB, size=length))
        return Problem(name, ids, " ".join(map(str, ids)), "2", level=str(length))

    def train_problems(self, *, seed: int, step: int, count: int) -> Sequence[Problem]:
        rng = np.random.default_rng([seed, step])
        return [self._problem(rng, f"{seed}-{step}-{i}") for i in range(count)]

    def heldout_problems(self, *, count: int) -> Sequence[Problem]:
        rng = np.random.default_rng(99)
        return [self._problem(rng, f"h{i}") for i in range(count)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(str(t) for t in token_ids if t not in (EOS, self.pad_id))

    def correct(self, completions: Sequence[Completion]) -> np.ndarray:
        return np.array([float(c.token_ids[0] == 2) for c in completions])


class ToyReward:
    """The task's own verdict, with an optional price per token."""

    name = "sparse"

    def __init__(self, task: ToyTask, *, price: int = 0, constant: float | None = None) -> None:
        self._task, self._price, self._constant = task, price, constant

    def score(self, completions: Sequence[Completion]) -> Scores:
        values = self._task.correct(completions)
        if self._constant is not None:
            values = np.full(len(completions), self._constant)
        cost = sum(self.flops_bound(len(c.problem.prompt_ids), len(c.token_ids)) for c in completions)
        return Scores(values, flops=cost, parts={"accuracy": values})

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        return self._price * (prompt_tokens + completion_tokens)


def toy_recipe(**changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "reward": "sparse", "prompts_per_step": 4, "group_size": 4, "prompt_tokens": 4, "completion_tokens": 5,
        "lora": LoraSpec(4),
    }
    return Recipe(**{**values, **changes})


def toy_options(**changes: Any) -> RunOptions:
    values: dict[str, Any] = {"learning_rate": 5e-3, "eval_points": 4, "eval_problems": 32, "device": "cpu"}
    return RunOptions(**{**values, **changes})


def factory(**changes: Any) -> Callable[[], PreTrainedModel]:
    return lambda: tiny_model(**changes)
