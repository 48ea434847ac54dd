"""Are two expressions the same value, or the same function?

Numbers are compared exactly when both are rational, otherwise to 250 digits. A decimal answer equals a value that
has no short decimal only when it shows at least six significant digits and is that value rounded or cut at its last
digit; it never equals another decimal that merely rounds alike. Expressions with variables are compared at fixed
points: positive reals, signed reals and whole numbers.
"""

from __future__ import annotations

from fractions import Fraction
from zlib import crc32

import mpmath

from real_runs.grading.bounded import Speck, Undecided, Value, Vast, approximate
from real_runs.grading.evaluate import evaluate
from real_runs.grading.nodes import Big, Call, Node, Num, Op, free_symbols, walk

COARSE_DIGITS = 60
FINE_DIGITS = 300
MIN_SIGNIFICANT = 6
_COARSE = mpmath.mpf(10) ** -25
_FINE = mpmath.mpf(10) ** -250
# Digits and places of a binary double printed in full: 0.30000000000000004 means 0.3.
_NOISY_DIGITS, _NOISY_PLACES = 15, 10
_FLOAT_NOISE = mpmath.mpf(10) ** -14
_EXPONENT_BITS = 1 << 17
_AGREEING = 3


def same_expression(gold: Node, pred: Node) -> bool | None:
    """``None`` when neither equality nor difference could be established."""
    if gold == pred:
        return True
    symbols = sorted(free_symbols(gold) | free_symbols(pred))
    try:
        return _same_function(gold, pred, symbols) if symbols else same_value(gold, pred)
    except (Undecided, TypeError, ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.NoConvergence):
        return None


def same_value(gold: Node, pred: Node) -> bool:
    """Closed expressions; raises what evaluation raises."""
    with mpmath.workdps(COARSE_DIGITS):
        a, b = evaluate(gold, {}), evaluate(pred, {})
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b or _decimal_agrees(gold, pred, a, b)
        if isinstance(a, (Vast, Speck)) or isinstance(b, (Vast, Speck)):
            return _sizes_agree(a, b)
        if not _close(a, b, _COARSE):
            return _decimal_agrees(gold, pred, a, b)
        if abs(mpmath.mag(abs(approximate(a)))) > _EXPONENT_BITS:
            raise Undecided  # two values this large can agree to any precision and still differ
    with mpmath.workdps(FINE_DIGITS):
        return _close(evaluate(gold, {}), evaluate(pred, {}), _FINE)


def _sizes_agree(a: Value, b: Value) -> bool:
    """A vast value against a plain one differs; against another vast one nobody can tell."""
    if type(a) is type(b):
        assert isinstance(a, (Vast, Speck))
        assert isinstance(b, (Vast, Speck))
        if a.sign != b.sign:
            return False
        raise Undecided
    return False


def _close(a: Value, b: Value, tolerance: mpmath.mpf) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction) and (a == b or tolerance is not _FLOAT_NOISE):
        return a == b
    x, y = approximate(a), approximate(b)
    scale = max(abs(x), abs(y))
    # Values computed to be zero carry only rounding residue, which has no relative size.
    return bool(abs(x - y) <= tolerance * max(scale, tolerance))


def literal(node: Node) -> Num | None:
    """The decimal literal that a node is, through a sign."""
    sign = 1
    while isinstance(node, Op) and node.op == "neg":
        node, sign = node.args[0], -sign
    if isinstance(node, Num) and node.decimals is not None:
        return Num(sign * node.value, node.decimals, node.significant)
    return None


def _noisy(node: Node) -> bool:
    return any(
        isinstance(n, Num) and (n.decimals or 0) >= _NOISY_PLACES and n.significant >= _NOISY_DIGITS for n in walk(node)
    )


def _decimal_agrees(gold: Node, pred: Node, a: Value, b: Value) -> bool:
    """The tolerance for decimals, the only one there is."""
    first, second = literal(gold), literal(pred)
    if (_noisy(gold) or _noisy(pred)) and _close(a, b, _FLOAT_NOISE):
        return True
    if first is not None and second is not None:
        return False
    for short, exact in ((first, b), (second, a)):
        if short is None:
            continue
        if isinstance(exact, mpmath.mpc):
            return False
        return short.significant >= MIN_SIGNIFICANT and _shows(short, exact)
    return False


def _shows(short: Num, exact: Value) -> bool:
    """``short`` is ``exact`` rounded, or cut, to the places it shows."""
    places = short.decimals or 0
    unit = Fraction(1, 10**places) if places >= 0 else Fraction(10**-places)
    if isinstance(exact, Fraction):
        error = abs(short.value - exact) / unit
        cut = abs(exact) > abs(short.value) and error < 1 and exact * short.value > 0
        return error <= Fraction(1, 2) or cut
    x, unit_size = approximate(exact), approximate(unit)
    gap = abs(approximate(short.value) - x) / unit_size
    return bool(gap <= 0.5 or (gap < 1 and abs(x) > abs(approximate(short.value))))


def _same_function(gold: Node, pred: Node, symbols: list[str]) -> bool | None:
    whole = _needs_whole_numbers(gold) or _needs_whole_numbers(pred)
    loose = _noisy(gold) or _noisy(pred)
    agreed, whole_agreed = 0, 0
    with mpmath.workdps(COARSE_DIGITS):
        for kind, point in _points(symbols):
            if whole and kind != "whole":
                continue
            a, b = _at(gold, point), _at(pred, point)
            if a is None or b is None:
                continue
            complex_values = isinstance(a, mpmath.mpc) or isinstance(b, mpmath.mpc)
            if kind == "signed" and complex_values and not (_uses_i(gold) or _uses_i(pred)):
                continue  # outside the real domain of one of them, where branches are a convention
            if not _close(a, b, _FLOAT_NOISE if loose else _COARSE):
                return False
            agreed += 1
            whole_agreed += kind == "whole"
    needed = whole_agreed if whole else agreed
    return True if needed >= _AGREEING else None


def ratio_at_points(a: Node, b: Node, symbols: list[str]) -> tuple[bool, mpmath.mpf] | None:
    """``(constant, value)`` of a/b over the fixed points; ``None`` when too few of them can be evaluated."""
    tolerance = _FLOAT_NOISE if _noisy(a) or _noisy(b) else _COARSE
    ratios: list[mpmath.mpf] = []
    whole = _needs_whole_numbers(a) or _needs_whole_numbers(b)
    with mpmath.workdps(COARSE_DIGITS):
        for kind, point in _points(symbols):
            if whole and kind != "whole":
                continue
            x, y = _at(a, point), _at(b, point)
            if x is None or y is None or x == 0 or y == 0:
                if (x == 0) != (y == 0) and x is not None and y is not None:
                    return False, mpmath.mpf(0)
                continue
            ratio = approximate(x) / approximate(y)
            if isinstance(ratio, mpmath.mpc):
                continue
            ratios.append(ratio)
    if len(ratios) < _AGREEING:
        return None
    return all(_close(r, ratios[0], tolerance) for r in ratios[1:]), ratios[0]


def _at(node: Node, point: dict[str, Fraction]) -> Value | None:
    try:
        value = evaluate(node, point)
    except (Undecided, ZeroDivisionError, ValueError, OverflowError, TypeError):
        return None
    return None if isinstance(value, (Vast, Speck)) else value


def _uses_i(node: Node) -> bool:
    return any(getattr(n, "name", "") == "i" for n in walk(node))


def _needs_whole_numbers(node: Node) -> bool:
    """Sums, factorials, indexed terms and binomials only mean something at whole numbers."""
    return any(
        isinstance(n, Big)
        or (isinstance(n, Op) and n.op == "!")
        or (isinstance(n, Call) and n.name in ("binomial", "factorial", "factorial2", "gcd", "lcm", "mod"))
        for n in walk(node)
    )


def _points(symbols: list[str]) -> list[tuple[str, dict[str, Fraction]]]:
    """Fixed points; a variable has the same coordinates in every comparison."""
    out = []
    for kind in ("positive", "signed", "whole"):
        for k in range(5 if kind == "whole" else 4):
            out.append((kind, {s: _coordinate(s, kind, k) for s in symbols}))
    return out


def _coordinate(symbol: str, kind: str, k: int) -> Fraction:
    seed = crc32(f"{symbol}/{kind}/{k}".encode())
    if kind == "whole":
        return Fraction(2 + seed % 23)
    size = Fraction(seed % 2741 + 211, 1009)
    return -size if kind == "signed" and seed >> 16 & 1 else size
