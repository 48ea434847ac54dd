"""Expression trees to values at a point, through the bounded arithmetic of ``bounded``.

Unknown functions are values too: f(u) is a fixed generic function of u, so f(x+1) equals f(1+x) and differs from
f(x-1), which is all that comparing two answers needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from zlib import crc32

import mpmath

from real_runs.grading.bounded import (
    MAX_BITS,
    Speck,
    Undecided,
    Value,
    Vast,
    add,
    approximate,
    invert,
    multiply,
    negate,
    power,
    sign_of,
)
from real_runs.grading.nodes import Big, Call, Node, Num, Op, Quantity, Sym

MAX_TERMS = 500
_MAX_GAMMA = 10**12  # Stirling's series is instant there; far beyond, mpmath spends memory on the exponent
_HALF = Fraction(1, 2)


def evaluate(node: Node, point: Mapping[str, Fraction]) -> Value:
    """Value of an expression with its variables at ``point``.

    Raises
    ------
    Undecided
        Not an expression, undefined at this point, or out of reach (see ``bounded``).
    """
    match node:
        case Num(value):
            return value
        case Sym(name):
            return _symbol(name, point)
        case Op("+", args):
            total = evaluate(args[0], point)
            for arg in args[1:]:
                total = add(total, evaluate(arg, point))
            return total
        case Op("*", args):
            product = evaluate(args[0], point)
            for arg in args[1:]:
                product = multiply(product, evaluate(arg, point))
            return product
        case Op("/", (top, bottom)):
            return multiply(evaluate(top, point), invert(evaluate(bottom, point)))
        case Op("neg", (arg,)):
            return negate(evaluate(arg, point))
        case Op("^", (base, exponent)):
            if base == Sym("e"):
                return _exp(evaluate(exponent, point))
            return power(evaluate(base, point), evaluate(exponent, point))
        case Op("%", (arg,)):
            return multiply(evaluate(arg, point), Fraction(1, 100))
        case Op("deg", (arg,)):
            return multiply(evaluate(arg, point), mpmath.pi / 180)
        case Op("!", (arg,)):
            return _factorial(evaluate(arg, point))
        case Big(op, var, low, high, body):
            return _big(op, var, low, high, body, point)
        case Call(name, args):
            return _call(name, [evaluate(arg, point) for arg in args])
        case Quantity(value, ""):
            return evaluate(value, point)
    raise Undecided


def _symbol(name: str, point: Mapping[str, Fraction]) -> Value:
    if name in point:
        return point[name]
    if name == "pi":
        return +mpmath.pi
    if name == "e":
        return +mpmath.e
    if name == "i":
        return mpmath.mpc(0, 1)
    raise Undecided


def _exp(x: Value) -> Value:
    if x == 0:
        return Fraction(1)
    if isinstance(x, Vast):
        return Vast(1) if x.sign > 0 else Speck(1)
    return power(+mpmath.e, x)


def _whole(x: Value) -> int:
    if isinstance(x, Fraction) and x.denominator == 1:
        return x.numerator
    raise Undecided


def _factorial(x: Value) -> Value:
    if isinstance(x, Vast) and x.sign > 0:
        return x
    if isinstance(x, Fraction) and x.denominator == 1:
        n = x.numerator
        if n < 0:
            raise Undecided
        # log2(n!) < n log2 n: exact while that fits.
        if n * n.bit_length() <= MAX_BITS:
            return Fraction(math.factorial(n))
    size = abs(approximate(x))
    if not isinstance(x, (Vast, Speck, mpmath.mpc)) and x > 0 and size > 2**60:
        return Vast(1)  # n! > 2^n
    if size > _MAX_GAMMA:
        raise Undecided
    return mpmath.gamma(approximate(x) + 1)


def _double_factorial(x: Value) -> Value:
    n = _whole(x)
    if not -1 <= n <= 20_000:
        raise Undecided
    return Fraction(math.prod(range(n, 0, -2)))


def _big(op: str, var: str, low: Node, high: Node, body: Node, point: Mapping[str, Fraction]) -> Value:
    first, last = _whole(evaluate(low, point)), _whole(evaluate(high, point))
    if last - first > MAX_TERMS:
        raise Undecided
    total: Value = Fraction(0 if op == "sum" else 1)
    combine = add if op == "sum" else multiply
    for index in range(first, last + 1):
        total = combine(total, evaluate(body, {**point, var: Fraction(index)}))
    return total


def _call(name: str, args: list[Value]) -> Value:
    function = _KNOWN.get(name)
    if function is not None:
        return function(*args)
    real = _REAL.get(name)
    if real is not None:
        return real(*[approximate(a) for a in args])
    return _generic(name, args)


def _generic(name: str, args: list[Value]) -> Value:
    """A fixed smooth function per name: equal arguments give equal values, others almost surely do not."""
    seed = crc32(name.encode()) % 997 + 3
    total = mpmath.mpf(seed) / 7
    for place, arg in enumerate(args, 1):
        x = approximate(arg)
        if abs(x) > 1e6:
            raise Undecided
        total += mpmath.sin(x * (seed % 13 + place) / 11 + seed) * (place + 1) + x * place / 3
    return total


def _root(x: Value, degree: Value) -> Value:
    n = _whole(degree)
    if n % 2 and isinstance(x, Fraction) and x < 0:  # the real root, as answers mean it
        return negate(power(-x, Fraction(1, n)))
    return power(x, Fraction(1, n))


def _log(x: Value, base: Value | None = None) -> Value:
    if isinstance(x, (Vast, Speck)) or x == 0:
        raise Undecided
    if base is None:
        return Fraction(0) if x == 1 else mpmath.log(approximate(x))
    b = approximate(base)
    if b in (0, 1):
        raise Undecided
    return mpmath.log(approximate(x)) / mpmath.log(b)


def _abs(x: Value) -> Value:
    return type(x)(1) if isinstance(x, (Vast, Speck)) else abs(x)


def _floor(x: Value, *, up: bool = False) -> Value:
    if isinstance(x, Fraction):
        return Fraction(math.ceil(x) if up else math.floor(x))
    if isinstance(x, (Vast, Speck, mpmath.mpc)) or abs(x) > 1e30:
        raise Undecided
    return Fraction(int(mpmath.ceil(x) if up else mpmath.floor(x)))


def _whole_fold(fold: Callable[..., int]) -> Callable[..., Value]:
    return lambda *args: Fraction(fold(*[_whole(a) for a in args]))


def _extreme(pick: Callable[..., Value]) -> Callable[..., Value]:
    def extreme(*args: Value) -> Value:
        if any(isinstance(a, (Vast, Speck, mpmath.mpc)) for a in args) or not args:
            raise Undecided
        return pick(args, key=approximate)

    return extreme


def _binomial(n: Value, k: Value) -> Value:
    if isinstance(n, Fraction) and isinstance(k, Fraction) and n.denominator == k.denominator == 1:
        top, bottom = n.numerator, k.numerator
        if not 0 <= bottom <= top:
            return Fraction(0)
        if min(bottom, top - bottom) * max(1, top.bit_length()) <= MAX_BITS // 4:
            return Fraction(math.comb(top, bottom))
    top_size, bottom_size = abs(approximate(n)), abs(approximate(k))
    if max(top_size, bottom_size) > _MAX_GAMMA:
        raise Undecided
    return mpmath.binomial(approximate(n), approximate(k))


def _mod(x: Value, m: Value) -> Value:
    """x modulo m as a statement: the residue, kept apart from the plain number by its modulus."""
    modulus = _whole(m)
    if modulus <= 0:
        raise Undecided
    return Fraction(_whole(x) % modulus)


_KNOWN: dict[str, Callable[..., Value]] = {
    "sqrt": lambda x: power(x, _HALF),
    "cbrt": lambda x: _root(x, Fraction(3)),
    "root": _root,
    "exp": _exp,
    "ln": _log,
    "log": _log,
    "lg": lambda x: _log(x, Fraction(10)),
    "abs": _abs,
    "floor": _floor,
    "ceil": lambda x: _floor(x, up=True),
    "gcd": _whole_fold(math.gcd),
    "lcm": _whole_fold(math.lcm),
    "max": _extreme(max),
    "min": _extreme(min),
    "binomial": _binomial,
    "factorial": _factorial,
    "factorial2": _double_factorial,
    "mod": _mod,
    "sign": lambda x: Fraction(sign_of(x)),
}


def _of(name: str, limit: int = 10**40) -> Callable[..., Value]:
    """An mpmath function that refuses arguments too large to reduce."""

    def call(x: mpmath.mpf | mpmath.mpc) -> Value:
        if abs(x) > limit:
            raise Undecided
        return getattr(mpmath, name)(x)

    return call


_REAL: dict[str, Callable[..., Value]] = {
    **{name: _of(name) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _of(name, 10**15) for name in ("sinh", "cosh", "tanh", "coth")},
    **{f"arc{name}": _of(f"a{name}") for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{f"ar{name}": _of(f"a{name}") for name in ("sinh", "cosh", "tanh")},
}
