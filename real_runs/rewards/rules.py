"""Rule-based rewards for text tasks: they run no model and cost no model FLOPs.

    sparse      1 for the right final answer, else 0
    structured  0.8 right answer + 0.2 right form
    dense       1 for the right answer; a wrong number earns up to 0.5 by how near it is

The form that ``structured`` asks for: the completion ends by itself, has exactly one box, with something in it, after
some reasoning, and says no more than a short sentence after the box.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from real_runs.contracts import Completion, Scores
from real_runs.data.task import grade_completions
from real_runs.grading import Grader, Verdict, count_verdicts
from real_runs.grading.extract import last_boxed

FORMAT_WEIGHT = 0.2
NEAR_WEIGHT = 0.5
_MIN_REASONING_CHARS = 20
_MAX_TAIL_CHARS = 200


class _Rule:
    """A reward by rule, on top of the grader's verdicts."""

    name: str

    def __init__(self, grader: Grader) -> None:
        self.grader = grader

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Rules run no model."""
        return 0

    def _graded(self, completions: Sequence[Completion]) -> tuple[npt.NDArray[np.float64], list[Verdict]]:
        """Accuracy, shape (n,), and the verdicts behind it."""
        right = grade_completions(self.grader, completions)
        # The grader remembers verdicts: this is a look-up.
        return right, self.grader.grade([(c.problem.gold, c.text) for c in completions])


class SparseReward(_Rule):
    """1 for the right final answer, else 0."""

    name = "sparse"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,), 0 or 1."""
        right, verdicts = self._graded(completions)
        return Scores(right, parts={"accuracy": right}, health=verdict_health(verdicts))


class StructuredReward(_Rule):
    """Right answer plus right form."""

    name = "structured"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,), one of 0, 0.2, 0.8 and 1."""
        right, verdicts = self._graded(completions)
        form = np.array([float(well_formed(c)) for c in completions], dtype=np.float64)
        values = (1 - FORMAT_WEIGHT) * right + FORMAT_WEIGHT * form
        return Scores(values, parts={"accuracy": right, "format": form}, health=verdict_health(verdicts))


class DenseReward(_Rule):
    """Partial credit by numeric closeness, which need not mean that the reasoning was any better."""

    name = "dense"

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,): 1 when right, else 0.5 * max(0, 1 - |answer - gold| / max(|gold|, 1)) for numbers, else 0."""
        right, verdicts = self._graded(completions)
        near = np.array(
            [_near(c, v) for c, v in zip(completions, verdicts, strict=True)],
            dtype=np.float64,
        )
        values = np.maximum(right, NEAR_WEIGHT * near)
        return Scores(values, parts={"accuracy": right, "nearness": near}, health=verdict_health(verdicts))


def _near(completion: Completion, verdict: Verdict) -> float:
    """Nearness of a wrong number; a completion that was cut off did not answer."""
    return verdict.nearness if completion.finished and verdict.outcome == "wrong" else 0.0


def well_formed(completion: Completion) -> bool:
    """Whether a completion has the form that ``structured`` asks for."""
    text = completion.text
    if not completion.finished or text.count("\\boxed") != 1:
        return False
    answer = last_boxed(text)
    if answer is None or not answer.strip():
        return False
    before, _, after = text.partition("\\boxed")
    tail = after[after.rfind("}") + 1 :] if "}" in after else after
    return len(before.strip()) >= _MIN_REASONING_CHARS and len(tail.strip()) <= _MAX_TAIL_CHARS


def verdict_health(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Counters of the grader: answers that could not be graded, timeouts among them, and missing answers."""
    counts = count_verdicts(verdicts)
    return {
        "could_not_grade": float(counts["could-not-grade"]),
        "grading_timeouts": float(counts["timeout"]),
        "no_answer": float(counts["no-answer"]),
    }
