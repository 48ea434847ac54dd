"""Reference answers, wrapped and proved gradable before a run.

A gold that the grader cannot read pays nothing for ever, or, in other graders, pays everybody: both ruin a run
without a word. So golds are boxed (bare LaTeX loses its meaning: "2\\pi" reads as 2), graded against themselves, and
dropped, with the reason counted, when that does not come out right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from race.errors import InvalidInput
from real_runs.grading.judge import boxed_gold, gold_text, read_gold
from real_runs.grading.nodes import Words
from real_runs.grading.pool import Grader

_MAX_WORDS = 4
_MAX_CHARS = 500


@dataclass(frozen=True)
class GoldReport:
    """What became of a data set's reference answers.

    Attributes
    ----------
    kept
        ``(index, boxed gold)`` of every usable one, in order.
    dropped
        ``(index, reason)`` of every other one.
    """

    kept: tuple[tuple[int, str], ...]
    dropped: tuple[tuple[int, str], ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many were dropped, by reason."""
        return dict(Counter(reason for _, reason in self.dropped))

    def summary(self) -> str:
        """One line for a log."""
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.counts.items()))
        return f"{len(self.kept)} answers kept, {len(self.dropped)} dropped" + (f" ({reasons})" if reasons else "")


def validate_golds(golds: Sequence[str], grader: Grader) -> GoldReport:
    """Box every gold and keep those that grade right against themselves.

    Reasons for dropping: ``empty``, ``free text`` (more than a few words), ``too long``, ``unreadable``, ``timeout``,
    ``not right against itself``.
    """
    kept: list[tuple[int, str]] = []
    dropped: list[tuple[int, str]] = []
    candidates: list[tuple[int, str]] = []
    for index, gold in enumerate(golds):
        if not isinstance(gold, str):
            raise InvalidInput(f"golds[{index}]: found {type(gold).__name__}; allowed is text")
        problem = _problem(gold)
        if problem:
            dropped.append((index, problem))
        else:
            candidates.append((index, boxed_gold(gold)))
    verdicts = grader.grade([(boxed, boxed) for _, boxed in candidates])
    readable = _read_by_math_verify([boxed for _, boxed in candidates], grader)
    for (index, boxed), verdict, can_read in zip(candidates, verdicts, readable, strict=True):
        if verdict.outcome == "right" and can_read:
            kept.append((index, boxed))
        elif verdict.timed_out:
            dropped.append((index, "timeout"))
        else:
            dropped.append((index, "unreadable" if not can_read else "not right against itself"))
    return GoldReport(tuple(kept), tuple(sorted(dropped)))


def _problem(gold: str) -> str:
    text = gold_text(gold).strip()
    if not text:
        return "empty"
    if len(text) > _MAX_CHARS:
        return "too long"
    node = read_gold(gold).node
    if isinstance(node, Words) and len(node.text.split()) > _MAX_WORDS:
        return "free text"
    return ""


def _read_by_math_verify(boxed: Sequence[str], grader: Grader) -> list[bool]:
    """Golds outside our grammar count as readable when math-verify tells them apart from another answer.

    A text equal to itself proves nothing, so the gold is graded against 0 and 1: a readable one gets a verdict of
    right or wrong from at least one of them.
    """
    unread = [k for k, gold in enumerate(boxed) if read_gold(gold).node is None]
    out = [True] * len(boxed)
    pairs = [(boxed[k], f"\\boxed{{{value}}}") for k in unread for value in (0, 1)]
    verdicts = grader.grade(pairs)
    for place, k in enumerate(unread):
        out[k] = any(v.outcome != "could-not-grade" for v in verdicts[2 * place : 2 * place + 2])
    return out
