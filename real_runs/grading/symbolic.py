"""math-verify, for answers beyond our grammar, with its verdicts checked.

It is asked about the two boxed answers, never about the raw completion, so that its extraction cannot pick a
fragment. A "same" is only believed when closed values also agree to relative precision: its own test rounds to six
decimals, under which 1/2004! equals 1/2006!.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from real_runs.grading.verdict import Verdict

if TYPE_CHECKING:
    from real_runs.grading.judge import Reading

_RELATIVE = 1e-12


def symbolic_verdict(gold: Reading, prediction: Reading, shown: str) -> Verdict:
    """Ask math-verify; without time limits of its own, because this runs in a process that can be killed."""
    from math_verify import verify

    mine = _parse(gold.text)
    if not mine:
        return Verdict("could-not-grade", "the gold cannot be read", shown, "math-verify")
    other = _parse(prediction.text)
    if not other:
        return Verdict("could-not-grade", "the answer cannot be read", shown, "math-verify")
    if not verify(mine, other, timeout_seconds=None):
        return Verdict("wrong", "", shown, "math-verify")
    if any(_differ(a, b) for a in mine for b in other):
        return Verdict("wrong", "equal by rounding only", shown, "math-verify")
    return Verdict("right", "", shown, "math-verify")


def readable(text: str) -> bool:
    """Whether math-verify can read ``text`` as mathematics (not merely as a string)."""
    return bool(_parse(text))


def _parse(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    found = parse(f"\\boxed{{{text}}}", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    return [x for x in found if not isinstance(x, str)]


def _differ(a: Any, b: Any) -> bool:
    """Two closed real values that are clearly not the same."""
    from sympy import Expr, Float

    if not (isinstance(a, Expr) and isinstance(b, Expr)) or a.free_symbols or b.free_symbols:
        return False
    if a.has(Float) or b.has(Float):
        return False
    x, y = a.evalf(40), b.evalf(40)
    if not (x.is_number and y.is_number):
        return False
    return bool(abs(x - y) > _RELATIVE * max(abs(x), abs(y)))
