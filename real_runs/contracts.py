"""The words the parts of a real run share: problems, completions, scores, and who provides them.

A run is put together from one `Task` (where problems come from), one rollout backend (``rollout/``), one
`Reward` (``rewards/``) and optionally one `Judge`. Each of these is a contract with several implementations,
and every implementation passes the same contract tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Problem:
    """One prompt with its checkable answer.

    Attributes
    ----------
    id
        Stable across runs and machines (a content hash or the data set's own id).
    prompt_ids
        Token ids after the chat template, without padding.
    gold
        Reference answer as text, validated before the run.
    level
        Difficulty label; evaluation reports pass@1 per level.
    meta
        Anything a reward or judge of the same task needs.
    """

    id: str
    prompt_ids: tuple[int, ...]
    prompt: str
    gold: str
    level: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Completion:
    """One sampled answer.

    Attributes
    ----------
    token_ids
        Sampled tokens, including EOS when it was sampled, without padding.
    text
        Decoded without special tokens.
    finished
        True when it ended by EOS, False when the length limit cut it.
    """

    problem: Problem
    token_ids: tuple[int, ...]
    text: str
    finished: bool


@dataclass(frozen=True)
class Scores:
    """What a reward or a judge says about ``n`` completions.

    Attributes
    ----------
    values
        Shape (n,), each in [0, 1].
    flops
        Model FLOPs spent on scoring, metered on true lengths; 0 for rules.
    parts
        Named components, each of shape (n,), logged beside the total (accuracy, format, PRM, ...).
    health
        Counters worth watching, added up over the completions: timeouts, forged marks, steps, step tokens, ...
    """

    values: npt.NDArray[np.float64]
    flops: int = 0
    parts: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    health: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Reward(Protocol):
    """A reward system; ``name`` is one of `race.rewards.REWARD_SYSTEMS` or a mix of them."""

    name: str

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Score completions; never raises for what a policy may say, however odd."""
        ...

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Most FLOPs that scoring one completion of these lengths can cost (0 for rules)."""
        ...


@runtime_checkable
class Judge(Protocol):
    """A process-quality score common to all reward systems; same shape as a reward, never trained on."""

    name: str

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Score completions in [0, 1]."""
        ...


@runtime_checkable
class Task(Protocol):
    """Where problems come from.

    Training problems are drawn by step from a seeded, stateless stream: the same seed and step give the same
    problems, which is what makes a resumed run equal to an undisturbed one.
    """

    name: str
    eos_id: int
    pad_id: int
    max_completion_tokens: int

    def train_problems(self, *, seed: int, step: int, count: int) -> Sequence[Problem]:
        """The ``count`` problems of training step ``step`` (counted from 0)."""
        ...

    def heldout_problems(self, *, count: int) -> Sequence[Problem]:
        """A fixed held-out set, disjoint from training by construction; the first ``count`` of it."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled tokens, special tokens dropped."""
        ...

    def correct(self, completions: Sequence[Completion]) -> npt.NDArray[np.float64]:
        """1.0 where the final answer is right, shape (n,); what pass@1 averages."""
        ...
