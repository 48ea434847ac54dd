"""One gold, one completion, one verdict: our rules first, math-verify where they do not reach.

Neither function here limits its own time: they run in the grading processes of ``pool``, whose parent kills them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from real_runs.grading.compare import same_answer
from real_runs.grading.extract import Extracted, extract, unbox
from real_runs.grading.lexer import tidy
from real_runs.grading.nearness import nearness
from real_runs.grading.nodes import Node, TooBig, Unreadable, Words, free_symbols, has_dots
from real_runs.grading.parser import parse_answer
from real_runs.grading.symbolic import symbolic_verdict
from real_runs.grading.verdict import Verdict

_SHOWN = 120
_CHOICE = re.compile(r"^\(?([A-J])\)?(?:[).:]|\s*$)")
_WHOLE_FORMULA = re.compile(r"^\s*(?:\$\$?([^$]+)\$\$?|\\\[(.+)\\\]|\\\((.+)\\\))\s*\.?\s*$", re.DOTALL)


@dataclass(frozen=True)
class Reading:
    """An answer as text and, when our grammar covers it, as a tree."""

    text: str
    node: Node | None
    problem: str = ""


def read_gold(gold: str) -> Reading:
    """Read a reference answer, bare or boxed or after ``####``; ``problem`` says why when it cannot be."""
    text = gold_text(gold)
    if not text.strip():
        return Reading("", None, "empty")
    return _read(text, None)


def gold_text(gold: str) -> str:
    """The answer inside a reference, which may be bare, a formula, a boxed one or a whole solution."""
    if "\\boxed" in gold or "\\fbox" in gold or "####" in gold:
        found = extract(gold)
        return found.candidates[0] if found.candidates else ""
    whole = _WHOLE_FORMULA.match(gold)
    if whole:
        return next(g for g in whole.groups() if g is not None)
    if gold.count("$") >= 2 and "\\$" not in gold:
        found = extract(gold)
        if found.candidates:
            return found.candidates[0]
    return gold


def boxed_gold(gold: str) -> str:
    r"""The reference as ``\boxed{answer}``: bare LaTeX loses its meaning in math-verify without a word."""
    return f"\\boxed{{{gold_text(gold).strip()}}}"


def _read(text: str, symbols: frozenset[str] | None) -> Reading:
    try:
        return Reading(text, parse_answer(text, symbols=symbols))
    except Unreadable as problem:
        return Reading(text, None, str(problem))
    except TooBig as problem:
        return Reading(text[:_SHOWN], None, f"too big: {problem}")


def judge(gold: str, completion: str) -> Verdict:
    """Grade a completion against a reference answer."""
    verdict, reference, prediction = _judge(gold, completion)
    if verdict.outcome == "right":
        return replace(verdict, nearness=1.0)
    if verdict.outcome == "wrong" and reference is not None and prediction is not None:
        return replace(verdict, nearness=nearness(reference.node, prediction.node))
    return verdict


def _judge(gold: str, completion: str) -> tuple[Verdict, Reading | None, Reading | None]:
    reference = read_gold(gold)
    if reference.problem == "empty":
        return Verdict("could-not-grade", "the gold is empty"), None, None
    found = extract(completion)
    if not found.candidates:
        return Verdict("wrong", "no answer"), None, None
    prediction = _choose(found, reference)
    return _compare(reference, prediction), reference, prediction


def _compare(reference: Reading, prediction: Reading) -> Verdict:
    shown = prediction.text.strip()[:_SHOWN]
    if prediction.problem.startswith("too big"):
        return Verdict("could-not-grade", prediction.problem, shown)
    if reference.problem.startswith("too big"):
        return Verdict("could-not-grade", f"gold {reference.problem}", shown)
    if _same_spelling(reference.text, prediction.text):
        return Verdict("right", "", shown)
    decided = _by_rules(reference, prediction)
    if decided is not None:
        return Verdict("right" if decided else "wrong", "", shown)
    if any(r.node is not None and has_dots(r.node) for r in (reference, prediction)):
        return Verdict("could-not-grade", "an ellipsis in another form", shown)
    return symbolic_verdict(reference, prediction, shown)


def _by_rules(reference: Reading, prediction: Reading) -> bool | None:
    choice, given = _choice(reference.text), _choice(prediction.text)
    if choice and given and choice[1] and choice[0] == given[0]:
        return True
    if reference.node is None or prediction.node is None:
        return None
    return same_answer(reference.node, prediction.node)


def _choose(found: Extracted, reference: Reading) -> Reading:
    """The first candidate that reads as an answer; words only count against a gold in words."""
    symbols = free_symbols(reference.node) if reference.node is not None else None
    first: Reading | None = None
    for candidate in found.candidates:
        reading = _read(unbox(candidate), symbols)
        first = first or reading
        if found.marked:
            return reading
        words = isinstance(reading.node, Words)
        if reading.node is not None and (not words or isinstance(reference.node, Words)):
            return reading
    assert first is not None
    return first


def _same_spelling(gold: str, prediction: str) -> bool:
    """Equal up to spacing, before any parsing; an answer of no known form can still be the same text."""
    try:
        a, b = (re.sub(r"\s+", "", tidy(x)) for x in (gold, prediction))
    except TooBig:
        return False
    return a == b and bool(a)


def _choice(text: str) -> tuple[str, bool] | None:
    r"""A multiple-choice letter, and whether it stands alone: ``(C)``, ``\text{C}``, ``C) 5 apples``."""
    plain = re.sub(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}", r"\1", text).replace("$", "").strip()
    match = _CHOICE.match(plain)
    return (match.group(1), len(plain) <= 3) if match else None
