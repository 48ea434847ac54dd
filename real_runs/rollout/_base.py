"""The contract of a rollout backend: prompts in, sampled groups with their log-probs out.

Every backend
- samples from the policy as it is *now*: `refresh` is called after each update and raises if it cannot prove it;
- returns, for every sampled token, its log-prob under the distribution it was drawn from: logits divided by the
  temperature, banned tokens removed. EOS is kept when it was sampled; nothing follows it;
- is a function of its arguments: the same weights, prompts and seed give the same completions on one machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes
    ----------
    temperature, top_p, top_k, min_p
        The usual; ``top_k = 0`` is off. Temperature 0 is greedy, with log-probs at temperature 1.
    max_tokens
        Length limit of a completion.
    eos_id
        Ends a completion.
    banned
        Tokens that are never sampled (PAD, unless it is EOS): training removes them from its softmax too.
    """

    max_tokens: int
    eos_id: int
    banned: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True)
class Sample:
    """One completion. ``logprobs`` has one float32 per token of ``token_ids``."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    finished: bool


@dataclass(frozen=True)
class Rollouts:
    """Groups of samples in the order of the prompts.

    Attributes
    ----------
    executed
        FLOPs that the matmuls of this call really multiplied, padding and masked pairs included (what torch's
        counter sees with eager attention); ``None`` where the backend cannot know.
    """

    groups: list[list[Sample]]
    executed: int | None


@runtime_checkable
class RolloutBackend(Protocol):
    """Who samples completions."""

    name: str

    def refresh(self, step: int) -> None:
        """Take over the policy's current weights; called before the first rollouts of step ``step``."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        share_prefill: bool = True,
        first: int = 0,
    ) -> Rollouts:
        """Sample completions.

        Parameters
        ----------
        group_size
            Completions of each prompt.
        seed, first
            A prompt's random numbers depend on ``seed`` and on its place, which counts from ``first``: prompts may
            be sampled together or in parts.
        share_prefill
            Read a prompt once for its whole group.
        """
        ...

    def close(self) -> None:
        """Free what the backend holds."""
        ...
