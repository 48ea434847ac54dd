"""What grading can say: right, wrong, or could-not-grade.

The third word is the point. A completion that hangs a computer-algebra system and a completion that is simply
wrong both earn a reward of 0, but only the second tells anything about the policy, so they are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["right", "wrong", "could-not-grade"]
Layer = Literal["rules", "math-verify", "pool"]


@dataclass(frozen=True)
class Verdict:
    """One gold/completion pair, judged.

    Attributes
    ----------
    outcome
        ``right``, ``wrong`` or ``could-not-grade``.
    reason
        Why, in a few words; empty when the outcome says it all. ``timeout``, ``memory`` and ``crash`` are the
        three ways a grading process was stopped.
    answer
        The answer that was read out of the completion, shortened; empty when none was found.
    by
        Who decided: our own exact rules, math-verify, or the pool (a killed process).
    nearness
        1 when right; for a wrong number, how near it is: 1 - |answer - gold| / max(|gold|, 1), not below 0. Numbers
        only, else 0.
    """

    outcome: Outcome
    reason: str = ""
    answer: str = ""
    by: Layer = "rules"
    nearness: float = 0.0

    @property
    def score(self) -> float:
        """1.0 for right, 0.0 for everything else."""
        return 1.0 if self.outcome == "right" else 0.0

    @property
    def timed_out(self) -> bool:
        """True when the wall-clock limit stopped it."""
        return self.outcome == "could-not-grade" and self.reason == "timeout"

    def to_list(self) -> list[str | float]:
        """Plain JSON form, as a grading process sends it."""
        return [self.outcome, self.reason, self.answer, self.by, self.nearness]

    @classmethod
    def from_list(cls, data: Any) -> Verdict:
        """Inverse of `to_list`; raises ``ValueError`` on anything else."""
        if not (isinstance(data, list) and len(data) == 5 and all(isinstance(x, str) for x in data[:4])):
            raise ValueError(f"not a verdict: {data!r}")
        outcome, reason, answer, by, nearness = data
        if not isinstance(nearness, (int, float)) or not 0 <= nearness <= 1:
            raise ValueError(f"not a verdict: {data!r}")
        if outcome not in ("right", "wrong", "could-not-grade") or by not in ("rules", "math-verify", "pool"):
            raise ValueError(f"not a verdict: {data!r}")
        return cls(outcome, reason, answer, by, float(nearness))


def count_verdicts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Counts by outcome, with ``timeout`` (a part of could-not-grade) and ``no-answer`` (a part of wrong)."""
    counts = {"right": 0, "wrong": 0, "could-not-grade": 0, "timeout": 0, "no-answer": 0}
    for verdict in verdicts:
        counts[verdict.outcome] += 1
        counts["timeout"] += verdict.timed_out
        counts["no-answer"] += verdict.reason == "no answer"
    return counts
