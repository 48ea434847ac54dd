"""Rule-based rewards of the nano task, and its ground-truth process judge.

    sparse      the final answer is right
    structured  0.8 right answer + 0.2 right form
    dense       a right answer is worth 1, a wrong one up to 0.4 by how near it is on the clock of ten digits
    judge       correct lines / k: never trained on, common to all reward systems

None of them runs a model, so all cost 0 FLOPs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from real_runs.contracts import Completion, Scores
from real_runs.nano.reading import correct_lines, read_prompt, read_solution, well_formed
from real_runs.nano.task import is_right

FORMAT_WEIGHT = 0.2
NEAR_WEIGHT = 0.5


class _Rule:
    """A reward that costs nothing."""

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Rules run no model."""
        return 0


class SparseReward(_Rule):
    """1 for the right final answer, else 0."""

    name = "sparse"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,), 0 or 1."""
        right = np.array([float(is_right(c)) for c in completions])
        return Scores(right, parts={"accuracy": right})


class StructuredReward(_Rule):
    """Answer plus form: one well-formed line per step in order, then the answer, then the end."""

    name = "structured"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,), one of 0, 0.2, 0.8 and 1."""
        right = np.array([float(is_right(c)) for c in completions])
        form = np.array(
            [
                float(c.finished and well_formed(read_prompt(c.problem.prompt), read_solution(c.text)))
                for c in completions
            ]
        )
        values = (1 - FORMAT_WEIGHT) * right + FORMAT_WEIGHT * form
        return Scores(values, parts={"accuracy": right, "format": form})


class DenseReward(_Rule):
    """Partial credit by numeric closeness of the answer, which need not mean that the steps were any better."""

    name = "dense"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,): 1 when right, else 0.5 - d / 10 for an answer d = 1..5 away, 0 without an answer."""
        right = np.array([float(is_right(c)) for c in completions])
        near = np.array([_nearness(c) for c in completions])
        return Scores(np.maximum(right, NEAR_WEIGHT * near), parts={"accuracy": right, "nearness": near})


class StepJudge:
    """Share of a problem's steps that were done correctly, given the values written before each.

    Lines beyond the k that a problem has count in the denominator, so padding a solution does not help.
    """

    name = "judge"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,), correct lines / max(k, lines)."""
        values = []
        for completion in completions:
            chain, solution = read_prompt(completion.problem.prompt), read_solution(completion.text)
            correct = sum(correct_lines(chain, solution))
            values.append(correct / max(len(chain.steps), len(solution.lines)))
        return Scores(np.array(values, dtype=np.float64))


def _nearness(completion: Completion) -> float:
    """1 at the right answer, 0 at the one opposite on the clock; 0 without an answer."""
    answer = read_solution(completion.text).answer
    if answer is None or not completion.finished:
        return 0.0
    apart = abs(answer - int(completion.problem.gold))
    return 1 - min(apart, 10 - apart) / 5
