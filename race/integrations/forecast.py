"""The most that TRL's next optimisation step can cost, so that a budget is never exceeded.

A trainer cannot stop inside a step: by the time a completion is longer than hoped, it has been paid for. So the step
is priced at its longest: every prompt as long as the longest of the dataset, every completion up to
``max_completion_length``. A step that reuses completions generated earlier is priced at the longest of those.

One length is not in the trainer's hands: a reward model reads the text through its own tokenizer. It is taken to be
as long as the policy's sample, or longer by as much as it ever was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from race.errors import InvalidInput
from race.integrations.hooks import ModelMeter
from race.integrations.pricing import Mode
from race.integrations.tally import Attention, Column

_CHUNK = 1000


def longest_prompt(trainer: Any) -> int:
    """Tokens of the longest training prompt, as the trainer's own tokenizer and chat template make it.

    Raises
    ------
    InvalidInput
        The dataset is a stream, which cannot be looked through beforehand.
    """
    dataset = trainer.train_dataset
    if not hasattr(dataset, "__len__"):
        raise InvalidInput(
            "max_prompt_tokens: missing, and the training set is a stream that cannot be searched for its longest "
            "prompt; allowed is the length in tokens that no prompt exceeds"
        )
    longest = 1
    for prompts in _chunks(dataset):
        longest = max(longest, *(len(ids) for ids in _tokenize(trainer, prompts)))
    limit = getattr(trainer.args, "max_prompt_length", None)  # TRL before 0.27 cuts prompts
    return min(longest, limit) if limit else longest


def _chunks(dataset: Any) -> Iterator[list[Any]]:
    for start in range(0, len(dataset), _CHUNK):
        yield list(dataset[start : start + _CHUNK]["prompt"])


def _tokenize(trainer: Any, prompts: list[Any]) -> Sequence[Sequence[int]]:
    processor = trainer.processing_class
    if isinstance(prompts[0], str):
        ids: Sequence[Sequence[int]] = processor(text=prompts)["input_ids"]
        return ids
    extra = getattr(trainer, "chat_template_kwargs", None) or {}
    made = processor.apply_chat_template(
        prompts, tools=getattr(trainer, "tools", None) or None, add_generation_prompt=True, tokenize=True,
        return_dict=True, **extra,
    )  # fmt: skip
    ids = made["input_ids"]
    return ids


class Forecast:
    """Upper bounds of the next step.

    Parameters
    ----------
    trainer
        The GRPO trainer.
    policy, reference, rewards
        Meters of the models; ``reference`` only where it is a model of its own.
    max_prompt_tokens
        No prompt is longer.
    column, attention
        What is being bounded.
    """

    def __init__(
        self,
        trainer: Any,
        policy: ModelMeter,
        reference: ModelMeter | None,
        rewards: Sequence[ModelMeter],
        *,
        max_prompt_tokens: int,
        column: Column,
        attention: Attention,
    ) -> None:
        self.trainer, self.policy, self.reference, self.rewards = trainer, policy, reference, rewards
        self.prompt = max_prompt_tokens
        self.column, self.attention = column, attention
        # Longest sample of the batch that is being reused, and of a reward model's text per policy token.
        self.reused: tuple[int, int] | None = None
        self.stretch = 1.0

    def saw(self, prompt: int, completion: int, reward_row: int) -> None:
        """Learn from one generation: its longest prompt and completion, and a reward model's longest row."""
        self.prompt = max(self.prompt, prompt)
        self.reused = (self._padded(prompt), self._padded(completion))
        self.stretch = max(self.stretch, reward_row / (prompt + completion))

    def next_step(self) -> int:
        """FLOPs that the next optimisation step cannot exceed, over all processes."""
        args = self.trainer.args
        every = self._steps_per_generation() * int(self.trainer.num_iterations)
        first = int(self.trainer._step)
        micro = [first + i for i in range(args.gradient_accumulation_steps)]
        generations = len([step for step in micro if step % every == 0])
        if self.reused is None or self.trainer._buffered_inputs is None:
            generations = max(generations, 1)
        longest = (self._padded(self.prompt), self._padded(args.max_completion_length))
        trained = longest if generations or self.reused is None else self.reused
        rows = int(args.per_device_train_batch_size)
        total = len(micro) * rows * self._update(*trained)
        total += generations * rows * self._steps_per_generation() * self._generation(*longest)
        return total * int(args.world_size)

    def _steps_per_generation(self) -> int:
        args = self.trainer.args
        return int(getattr(args, "steps_per_generation", None) or args.gradient_accumulation_steps)

    def _padded(self, tokens: int) -> int:
        multiple = getattr(self.trainer, "pad_to_multiple_of", None) or 1
        return math.ceil(tokens / multiple) * multiple

    def _mode(self, *, trained: bool) -> Mode:
        lora = next(iter(self.policy.adapters.values()), None)
        if not trained:
            return Mode(lora)
        args = self.trainer.args
        kwargs = args.gradient_checkpointing_kwargs or {}
        on = bool(args.gradient_checkpointing)
        return Mode(lora, True, on, bool(kwargs.get("use_reentrant", False)), on)

    def _positions(self, prompt: int, completion: int) -> int:
        """Head positions of a scored sequence: the completion's, or at worst all."""
        return completion if self.column == "needed" else prompt + completion

    def _update(self, prompt: int, completion: int) -> int:
        mode = self._mode(trained=True)
        positions = self._positions(prompt, completion)
        flops = self.policy.prices.sequence(mode, [(prompt + completion, positions)])[self.attention]
        if self.column == "executed":  # a fused head multiplies its logits twice
            again = self.policy.prices.head(Mode(mode.lora))[self.attention]
            flops += positions * again
        return flops

    def _generation(self, prompt: int, completion: int) -> int:
        """One sample generated, scored by policy and reference where the trainer does so, and rewarded."""
        mode, length = self._mode(trained=False), prompt + completion
        prices = self.policy.prices
        flops = prices.rollout(mode, [(prompt, completion)], [prompt])[self.attention]
        scored = [(length, self._positions(prompt, completion))]
        if self._scores_old_policy():
            flops += prices.sequence(mode, scored)[self.attention]
        if self.trainer.beta != 0.0:
            model = self.policy if self.reference is None else self.reference
            flops += model.prices.sequence(mode if "ref" in self.policy.adapters else Mode(), scored)[
                self.attention
            ]
        row = math.ceil(self.stretch * length)
        for meter in self.rewards:
            flops += meter.prices.sequence(Mode(), [(row, row)])[self.attention]
        return flops

    def _scores_old_policy(self) -> bool:
        every = self._steps_per_generation() * self.trainer.num_iterations
        vllm = bool(getattr(self.trainer, "use_vllm", False))
        return vllm or self.trainer.args.gradient_accumulation_steps % every != 0
