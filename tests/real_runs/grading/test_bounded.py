"""Arithmetic that cannot run away."""

from __future__ import annotations

import contextlib
import time
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_runs.grading.bounded import MAX_BITS, Speck, Undecided, Vast, add, bits, invert, multiply, power
from real_runs.grading.evaluate import evaluate
from real_runs.grading.parser import parse_answer

SMALL = st.fractions(min_value=-50, max_value=50, max_denominator=50)


@settings(max_examples=200, deadline=None)
@given(SMALL, SMALL, st.integers(0, 12))
def test_small_values_are_exact(x: Fraction, y: Fraction, n: int) -> None:
    assert add(x, y) == x + y
    assert multiply(x, y) == x * y
    if x != 0:
        assert invert(x) == 1 / x
        assert power(x, Fraction(-n)) == x**-n if n else True


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(2, 6), st.integers(1, 5))
def test_perfect_roots_are_exact(base: int, degree: int, p: int) -> None:
    value = power(Fraction(base**degree), Fraction(p, degree))
    assert value == base**p
    assert isinstance(value, Fraction)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("10^{10^{10^{10}}}", Vast(1)),
        ("-10^{10^{10^{10}}} + 5", Vast(-1)),
        ("2^{-10^{10^{10^{10}}}}", Speck(1)),
        ("\\frac{1}{9^{9^{9^{9}}}}", Speck(1)),
        ("0.5^{10^{10^{10^{10}}}}", Speck(1)),
        ("((9!)!)!", Vast(1)),
        ("7 \\cdot 3^{3^{3^{3^{3}}}}", Vast(1)),
    ],
)
def test_towers_have_a_size(text: str, kind: object) -> None:
    assert evaluate(parse_answer(text), {}) == kind


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9^{9}}} - 9^{9^{9^{9}}}",
        "0 \\cdot 9^{9^{9^{9}}}",
        "\\sin(10^{100})",
        "\\frac{1}{0}",
        "0^0",
        "10^{10000} + 1/10^{300000}",
    ],
)
def test_what_sizes_do_not_decide_is_undecided(text: str) -> None:
    with mpmath.workdps(60), pytest.raises(Undecided):
        evaluate(parse_answer(text), {})


def test_exact_values_stay_bounded() -> None:
    value = power(Fraction(3), Fraction(10**7))
    assert not isinstance(value, Fraction)
    largest = power(Fraction(2), Fraction(MAX_BITS // 2))
    assert isinstance(largest, Fraction)
    assert bits(largest) <= MAX_BITS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 99), min_size=2, max_size=8), st.sampled_from(["^", "!^"]))
def test_any_tower_is_quick(levels: list[int], joiner: str) -> None:
    text = str(levels[-1])
    for level in reversed(levels[:-1]):
        text = f"{level}^{{({text})!}}" if joiner == "!^" else f"{level}^{{{text}}}"
    start = time.process_time()
    with contextlib.suppress(Undecided):
        evaluate(parse_answer(text), {})
    assert time.process_time() - start < 1.0
