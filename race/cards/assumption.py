"""What a card rests on: every quantity that FLOPs depend on, with its value, where it comes from, and its range.

A quantity is *settled* when the log, a file beside it, the trainer's own behaviour or the user says what it is.
Otherwise it is assumed: a value that is used, and the ends between which the truth is taken to lie.

Names of quantities, which `race.cards.account` reads:

    completion_tokens, prompt_tokens   mean lengths; None: as logged, row by row
    samples        completions per generation batch that are trained on; None: as logged, row by row
    group_size     G
    period         optimiser steps per generation batch
    passes         times each sample is trained on
    generated      completions of a generation batch per completion of a training batch (dynamic sampling)
    lora           the adapter, None for full fine-tuning
    checkpointing, reference, old_logprobs, prefix_caching    whether it was on
    reward_model   architecture of the scorer, None for rules
    spread         how much lengths vary around their mean, 0 (not at all) to 1 (as much as their bounds allow)
    between        factor on completion lengths, for steps that were not logged
    completion_share  completions' share of the tokens, where only their sum with the prompts was logged
    masked         share of completions left out of the loss for being cut; None: the logged share of cut ones
    padded_prompt  longest prompt over mean prompt, which padding extends the others to
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from race.cards.runlog import Known, RunLog
from race.flops import Architecture, LoraSpec


@dataclass(frozen=True)
class Assumption:
    """One quantity.

    Attributes
    ----------
    name, label
        As above, and in words.
    value
        What the card's best estimate uses.
    source
        Where the value comes from: ``log: prompt_length/mean``, ``training_args.json: num_generations``, ``given``, or
        for unsettled ones why this value.
    ends
        The two values between which the truth is taken to lie; ``None`` when settled.
    """

    name: str
    label: str
    value: Any
    source: str
    ends: tuple[Any, Any] | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to guess."""
        return self.ends is None

    @property
    def shown(self) -> str:
        """The value in words."""
        return words(self.value)

    @property
    def range_shown(self) -> str:
        """The ends in words; empty when settled."""
        return "" if self.ends is None else f"{words(self.ends[0])} to {words(self.ends[1])}"


_EVERY_PROJECTION = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def words(value: Any) -> str:
    """A quantity as people write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, LoraSpec):
        targets = value.targets if isinstance(value.targets, str) else ",".join(value.targets)
        if set(value.targets) == _EVERY_PROJECTION:
            targets = "every projection"
        return f"LoRA r={value.rank} on {targets}"
    if isinstance(value, Architecture):
        return value.name
    if isinstance(value, (int, float)):
        return f"{value:,.6g}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


@dataclass(frozen=True)
class Evidence:
    """What quantities are settled from: the log with its config, and what the user says.

    ``given`` has the words of `race.recipe.Recipe` (plus ``lora_rank`` and ``lora_targets``).
    """

    log: RunLog
    given: Mapping[str, Any]
    policy: Architecture
    scorer: Architecture | None = None
    defaults: Mapping[str, str] | None = None

    def config(self, name: str) -> Known | None:
        """A fact from the run's config."""
        return self.log.config.get(name)

    def default(self, name: str) -> str | None:
        """Why the trainer does it this way when nothing says otherwise."""
        return (self.defaults or {}).get(name)

    def from_log(self, name: str) -> str:
        """``log: <key>`` of a field that is there."""
        return f"log: {self.log.keys.get(name, name)}"

    @property
    def full_log(self) -> bool:
        """Whether the log holds what its trainer always logs, so that a missing key means something."""
        return self.log.has("completion_mean") and self.log.has("reward") and len(self.log.raw) >= 8
