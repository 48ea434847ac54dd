"""The contract of a process reward model: a question and its steps in, one probability per step out.

Notation
    n    solutions            k_i  steps of solution i
    L_i  tokens of solution i as the model reads it (question, template, steps, marks), without padding

A model reads each solution once. Its head says, at one position per step, how probable it is that the step is
correct. Formats differ only in how text becomes tokens and which positions those are (``formats``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from race.errors import CannotDo


@dataclass(frozen=True)
class Solution:
    """What is scored.

    Attributes
    ----------
    question
        The problem as the user put it, without chat template.
    steps
        In order; may be empty.
    max_tokens
        Longest the model may read this solution as, ``None`` for its own limit. Steps beyond it score 0.
    """

    question: str
    steps: tuple[str, ...]
    max_tokens: int | None = None


@dataclass(frozen=True)
class StepScores:
    """What the model says about one solution.

    Attributes
    ----------
    probabilities
        One per step, each in [0, 1].
    tokens
        L_i, what is charged; 0 for a solution without steps, which is not read.
    step_tokens
        Tokens of each step as read, marks left out.
    cut
        Steps that did not fit and were scored 0 unread.
    forged
        Marks that the solution itself contained and that were taken out of it.
    """

    probabilities: tuple[float, ...]
    tokens: int
    step_tokens: tuple[int, ...]
    cut: int = 0
    forged: int = 0


@runtime_checkable
class ProcessRewardModel(Protocol):
    """Scores the steps of solutions."""

    name: str
    max_tokens: int
    overhead_tokens: int

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """One `StepScores` per solution, in order; exactly one probability per step."""
        ...

    def flops(self, tokens: int) -> int:
        """FLOPs of reading ``tokens`` tokens once, head included."""
        ...


def check_counts(solutions: Sequence[Solution], scores: Sequence[StepScores]) -> None:
    """Raise `CannotDo` unless there is exactly one probability in [0, 1] per step."""
    if len(scores) != len(solutions):
        raise CannotDo(f"prm: {len(scores)} results for {len(solutions)} solutions; expected one each")
    for number, (solution, found) in enumerate(zip(solutions, scores, strict=True)):
        if len(found.probabilities) != len(solution.steps):
            raise CannotDo(
                f"prm: {len(found.probabilities)} scores for the {len(solution.steps)} steps of solution {number}; "
                "expected one per step: the model's separator and this format do not fit together"
            )
        if any(not 0 <= p <= 1 for p in found.probabilities):
            raise CannotDo(
                f"prm: a score of solution {number} is no probability ({found.probabilities!r:.80}); the checkpoint's "
                "head does not fit this format, or its weights are not finite"
            )
