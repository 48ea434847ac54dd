"""Arithmetic that cannot run away: exact where it fits, a magnitude where it does not.

A value is one of

    Fraction     exact, while it has at most ``MAX_BITS`` bits
    mpf / mpc    everything else that has a size, at the current mpmath precision
    Vast(sign)   larger in size than 2**(2**60): what an exponent tower makes
    Speck(sign)  non-zero, smaller in size than 2**-(2**60)

Vast and Speck keep a tower such as 5^(5^(5^5)) comparable with 1 at no cost. Combinations whose size they do not
determine (Vast - Vast, 0 * Vast) raise `Undecided`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import mpmath

MAX_BITS = 1 << 18
MAX_ABSORBED_BITS = 900  # below the precision of the finer comparison in ``equality``
_VAST = 1 << 60
_PLAIN = 1 << 30  # exponents (as powers of two) of values that Vast and Speck swallow safely


class Undecided(Exception):
    """The value exists, perhaps, but is not determined by these means."""


@dataclass(frozen=True, slots=True)
class Vast:
    """Beyond 2**(2**60), with a sign."""

    sign: int


@dataclass(frozen=True, slots=True)
class Speck:
    """Not zero, but nearer to it than 2**-(2**60), with a sign."""

    sign: int


Value: TypeAlias = "Fraction | mpmath.mpf | mpmath.mpc | Vast | Speck"


def approximate(x: Value) -> mpmath.mpf | mpmath.mpc:
    """A number as mpmath sees it."""
    if isinstance(x, Fraction):
        return mpmath.mpf(x.numerator) / x.denominator
    if isinstance(x, (Vast, Speck)):
        raise Undecided
    return x


def bits(x: Fraction) -> int:
    """Size of an exact value."""
    return max(x.numerator.bit_length(), x.denominator.bit_length())


def _fit(x: Fraction) -> Value:
    return x if bits(x) <= MAX_BITS else mpmath.mpf(x.numerator) / x.denominator


def _plain(x: Value) -> bool:
    """Neither vast nor a speck, and not near to being either."""
    if isinstance(x, (Vast, Speck)):
        return False
    size = abs(approximate(x))
    return bool(size == 0 or abs(mpmath.mag(size)) < _PLAIN)


def sign_of(x: Value) -> int:
    """-1, 0 or 1; complex values have none."""
    if isinstance(x, (Vast, Speck)):
        return x.sign
    if isinstance(x, mpmath.mpc):
        raise Undecided
    return (x > 0) - (x < 0)


def negate(x: Value) -> Value:
    """-x."""
    if isinstance(x, (Vast, Speck)):
        return type(x)(-x.sign)
    return -x


def add(x: Value, y: Value) -> Value:
    """x + y; a sum that would silently swallow one of its terms is `Undecided`."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        total = x + y
        if bits(total) > MAX_BITS:
            raise Undecided
        return total
    for a, b in ((x, y), (y, x)):
        if isinstance(a, Vast):
            if _plain(b) or isinstance(b, Speck) or b == a:
                return a
            raise Undecided
        if isinstance(a, Speck):
            if b == 0 or b == a:
                return a
            raise Undecided
    a, b = approximate(x), approximate(y)
    if a != 0 and b != 0 and abs(mpmath.mag(a) - mpmath.mag(b)) > MAX_ABSORBED_BITS:
        raise Undecided
    return a + b


def multiply(x: Value, y: Value) -> Value:
    """x * y."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return _fit(x * y)
    for a, b in ((x, y), (y, x)):
        if isinstance(a, (Vast, Speck)):
            if isinstance(b, type(a)) or (_plain(b) and b != 0):
                return type(a)(a.sign * sign_of(b))
            if isinstance(a, Speck) and b == 0:
                return Fraction(0)
            raise Undecided
    return approximate(x) * approximate(y)


def invert(x: Value) -> Value:
    """1 / x."""
    if isinstance(x, Vast):
        return Speck(x.sign)
    if isinstance(x, Speck):
        return Vast(x.sign)
    if x == 0:
        raise Undecided
    return 1 / x


def power(x: Value, y: Value) -> Value:
    """x ** y, the principal value."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        exact = _exact_power(x, y)
        if exact is not None:
            return exact
    if isinstance(y, Speck):
        raise Undecided
    if isinstance(y, Vast) or isinstance(x, (Vast, Speck)):
        return _vast_power(x, y)
    base, exponent = approximate(x), approximate(y)
    if base == 0:
        if not isinstance(exponent, mpmath.mpc) and exponent > 0:
            return Fraction(0)
        raise Undecided
    # mpmath would spend memory in proportion to the result's exponent: find out its size first.
    growth = abs(exponent) * abs(mpmath.log(abs(base)))
    if growth > _VAST:
        return _vast_power(x, Vast(1 if mpmath.re(exponent) > 0 else -1))
    return mpmath.power(base, exponent)


def _exact_power(x: Fraction, y: Fraction) -> Value | None:
    if y.denominator != 1:
        return _exact_root(x, y)
    n = y.numerator
    if x == 0:
        if n <= 0:
            raise Undecided  # 0^0 is a convention, not a value
        return Fraction(0)
    if abs(x) == 1:
        return Fraction(1) if x == 1 or n % 2 == 0 else Fraction(-1)
    if bits(x) * abs(n) <= MAX_BITS:
        return x**n
    return None


def _exact_root(x: Fraction, y: Fraction) -> Fraction | None:
    """Perfect powers of non-negative values stay exact: 8^(2/3) = 4."""
    if x < 0 or y.denominator > 64 or bits(x) > 4096:
        return None
    top, bottom = _root(x.numerator, y.denominator), _root(x.denominator, y.denominator)
    if top is None or bottom is None:
        return None
    exact = _exact_power(Fraction(top, bottom), Fraction(y.numerator))
    return exact if isinstance(exact, Fraction) else None


def _root(n: int, k: int) -> int | None:
    root = int(mpmath.nint(mpmath.root(n, k))) if n.bit_length() < 100 else _integer_root(n, k)
    return root if root**k == n else None


def _integer_root(n: int, k: int) -> int:
    low, high = 0, 1 << (n.bit_length() // k + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**k <= n:
            low = middle
        else:
            high = middle - 1
    return low


def _vast_power(x: Value, y: Value) -> Value:
    """Towers: the sizes alone decide."""
    if isinstance(x, (Vast, Speck)):
        grows = isinstance(x, Vast)
        if x.sign < 0 or sign_of(y) == 0 or not (isinstance(y, Vast) or abs(approximate(y)) >= 1):
            raise Undecided
        return Vast(1) if grows == (sign_of(y) > 0) else Speck(1)
    if isinstance(x, mpmath.mpc) or x <= 0 or x == 1 or not isinstance(y, Vast):
        raise Undecided
    # A base this close to 1 need not reach beyond the limit even under a vast exponent.
    if abs(mpmath.log(approximate(x))) < mpmath.mpf(2) ** -50:
        raise Undecided
    return Vast(1) if (x > 1) == (y.sign > 0) else Speck(1)
