"""One GRPO trainer under observation: its models metered, its generations noticed, put back as it was afterwards.

Two methods are wrapped while a training runs, because shapes alone do not tell: ``generate`` of the policy (so that
generation is search, cached or not), and ``_generate_and_score_completions``, which every TRL release since 0.16 has
and which returns each sample's own length.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from race.errors import CannotDo, InvalidInput
from race.integrations.hooks import ModelMeter, Scene
from race.integrations.pricing import Mode
from race.integrations.tally import Pass, Tally

_NEEDED = ("_generate_and_score_completions", "reward_funcs", "num_generations", "num_iterations", "_metrics")


@dataclass
class Observed:
    """What one process saw since the last hand-over.

    ``longest`` is the longest prompt, completion and reward-model row, in tokens; ``rewards`` the mean training
    reward of each generation, over all processes.
    """

    tally: Tally = field(default_factory=Tally)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    samples: int = 0
    longest: tuple[int, int, int] = (0, 0, 0)
    rewards: list[float] = field(default_factory=list)


class TrainerWatch:
    """Meters on every model of a GRPO trainer.

    Parameters
    ----------
    trainer
        A `trl.GRPOTrainer`, built.
    extra_rewards
        Models that reward functions run by themselves.
    prefix_caching
        Charge a group's prompt once. ``None``: as vLLM does by default, and Hugging Face generation does not.
    on_generation
        Called with the mean reward after each training generation.

    Raises
    ------
    CannotDo
        Not a GRPO trainer, or one that cannot be metered.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        extra_rewards: Sequence[Any],
        prefix_caching: bool | None,
        on_generation: Callable[[], None],
    ) -> None:
        for name in _NEEDED:
            if not hasattr(trainer, name):
                raise CannotDo(
                    f"trainer: {type(trainer).__name__} has no {name}; compute is metered in trl.GRPOTrainer "
                    "of TRL 0.16 or later"
                )
        _refuse_what_is_not_seen(trainer)
        self.trainer = trainer
        self.on_generation = on_generation
        self.outside = (
            bool(getattr(trainer, "use_vllm", False)) or getattr(trainer, "rollout_func", None) is not None
        )
        self.prefix_caching = self.outside if prefix_caching is None else prefix_caching
        unwrap = trainer.accelerator.unwrap_model
        self.policy_model = unwrap(trainer.model)
        self.scene = Scene(
            is_training=lambda: bool(self.policy_model.training),
            tally=Tally(),
            unseen=bool(getattr(trainer, "use_transformers_continuous_batching", False)),
        )
        self.seen = Observed(self.scene.tally)
        self.policy = ModelMeter(self.policy_model, "policy", self.scene)
        reference = getattr(trainer, "ref_model", None)
        self.reference = None if reference is None else ModelMeter(unwrap(reference), "reference", self.scene)
        models = [unwrap(f) for f in trainer.reward_funcs if hasattr(f, "config") and hasattr(f, "modules")]
        self.rewards = [ModelMeter(model, "reward", self.scene) for model in [*models, *extra_rewards]]
        self._undo: list[Callable[[], None]] = []

    @property
    def world(self) -> int:
        """Processes that train together."""
        return int(self.trainer.accelerator.num_processes)

    @property
    def prompts_per_generation(self) -> int:
        """P: prompts of one generation, over all processes."""
        args = self.trainer.args
        rounds = getattr(args, "steps_per_generation", None) or args.gradient_accumulation_steps
        samples = int(args.per_device_train_batch_size) * int(rounds) * self.world
        return max(1, samples // int(self.trainer.num_generations))

    def attach(self) -> None:
        """Start metering."""
        for meter in self._meters():
            meter.attach()
            self._undo.append(meter.detach)
        self._wrap(self.policy.inner, "generate", self._generate)
        if hasattr(self.policy.inner, "generate_batch"):
            self._wrap(self.policy.inner, "generate_batch", self._generate)
        self._wrap(self.trainer, "_generate_and_score_completions", self._generate_and_score)

    def detach(self) -> None:
        """Stop metering and leave the trainer as it was."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def hand_over(self) -> list[Observed]:
        """What every process saw since the last call; a collective call where there are several."""
        seen = self.seen
        self.seen = Observed()
        self.scene.tally = self.seen.tally
        if self.world == 1:
            return [seen]
        from accelerate.utils import gather_object

        everyone: list[Observed] = gather_object([seen])
        return everyone

    def _meters(self) -> list[ModelMeter]:
        reference = [] if self.reference is None else [self.reference]
        return [self.policy, *reference, *self.rewards]

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        before = vars(owner).get(name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        def undo() -> None:
            # The class's own method shows again; somebody else's wrapper, if there was one, is put back.
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, wrapped)
        self._undo.append(undo)

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.scene.generating = True
        try:
            return original(*args, **kwargs)
        finally:
            self.scene.generating = False

    def _generate_and_score(
        self, original: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        scene = self.scene
        training = scene.is_training()
        scene.evaluating, scene.generated, scene.longest_reward_row = not training, False, 0
        try:
            batch = original(inputs, *args, **kwargs)
        finally:
            scene.evaluating = None
        samples = list(
            zip(_sums(batch["prompt_mask"]), _completion_lengths(batch, pad=self._pad_id()), strict=True)
        )
        self._charge_rollout(inputs, samples, training)
        if training:
            self._note(samples)
            self.on_generation()
        return batch

    def _charge_rollout(self, inputs: Any, samples: list[tuple[int, int]], training: bool) -> None:
        active = self.policy.active_lora()
        prompts = [row.get("prompt") for row in inputs]
        first = [i == 0 or prompts[i] != prompts[i - 1] for i in range(len(samples))]
        prefills = [p for (p, _), new in zip(samples, first, strict=True) if new or not self.prefix_caching]
        mode = Mode(active[1] if active is not None else None)
        price = self.policy.prices.rollout(mode, samples, prefills)
        what: Pass = "search" if training else "eval"
        self.seen.tally.book("needed", what, price)
        if not self.scene.generated:  # an engine outside these modules: it executes no padding
            self.seen.tally.book("executed", what, price)

    def _pad_id(self) -> int:
        processor = self.trainer.processing_class
        return int(getattr(processor, "tokenizer", processor).pad_token_id)

    def _note(self, samples: list[tuple[int, int]]) -> None:
        seen = self.seen
        seen.prompt_tokens += sum(p for p, _ in samples)
        seen.completion_tokens += sum(c for _, c in samples)
        seen.samples += len(samples)
        longest = (max(p for p, _ in samples), max(c for _, c in samples), self.scene.longest_reward_row)
        seen.longest = (
            max(seen.longest[0], longest[0]),
            max(seen.longest[1], longest[1]),
            max(seen.longest[2], longest[2]),
        )
        seen.rewards.append(float(self.trainer._metrics["train"]["reward"][-1]))


def _refuse_what_is_not_seen(trainer: Any) -> None:
    """Heads that are multiplied inside a kernel of somebody else's, where no hook looks."""
    args = trainer.args
    fused = getattr(trainer, "use_liger_kernel", False) or getattr(trainer, "use_liger_loss", False)
    if fused and hasattr(trainer, "compute_liger_loss"):
        raise CannotDo(
            "use_liger_kernel: True in this TRL release computes the LM head inside Liger's loss, where it cannot be "
            "metered; set it False, or use TRL 1.15 or later"
        )
    if args.n_gpu > 1:
        raise InvalidInput(
            f"n_gpu: found {args.n_gpu} GPUs in one process (DataParallel); allowed is one process per GPU: start "
            "with accelerate launch or torchrun"
        )


def _sums(mask: Any) -> list[int]:
    return [int(n) for n in mask.sum(1).tolist()]


def _completion_lengths(batch: dict[str, Any], *, pad: int) -> list[int]:
    """Tokens sampled per row.

    A completion that ran into the limit may be masked as a whole (``mask_truncated_completions``); it does not end
    with padding or EOS, so it is as long as its row less the padding.
    """
    lengths = _sums(batch["completion_mask"])
    for index, length in enumerate(lengths):
        if length == 0:
            row = batch["completion_ids"][index].tolist()
            while len(row) > 1 and row[-1] == pad:
                row.pop()
            lengths[index] = len(row)
    return lengths


def calling_trainer(callback: Any) -> Any:
    """The trainer that is calling this event.

    `transformers.Trainer` hands its callbacks the model and the arguments but not itself, and reward models and the
    reference are only there. It is on the call stack, though, as the ``self`` that holds this very callback.
    """
    frame = sys._getframe(1)
    while frame is not None:
        candidate = frame.f_locals.get("self")
        handler = vars(candidate).get("callback_handler") if hasattr(candidate, "__dict__") else None
        if handler is not None and any(one is callback for one in handler.callbacks):
            return candidate
        frame = frame.f_back  # type: ignore[assignment]
    return None
