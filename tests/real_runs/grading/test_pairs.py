"""Verdicts on gold/answer pairs: public reports, a held-out set, and pairs made by machine."""

from __future__ import annotations

from fractions import Fraction

import pytest
from forms import PAIRS as FORMS
from heldout_pairs import PAIRS as HELDOUT
from hypothesis import given, settings
from hypothesis import strategies as st
from known_pairs import PAIRS as KNOWN
from known_pairs import POLICY

from real_runs.grading.judge import judge


def verdict(gold: str, completion: str) -> bool:
    return judge(gold, completion).outcome == "right"


@pytest.mark.parametrize(("source", "gold", "prediction", "right"), KNOWN)
def test_reported_pairs(source: str, gold: str, prediction: str, right: bool) -> None:
    found = judge(gold, prediction)
    assert (found.outcome == "right") is right, found
    if not right:
        assert found.outcome == "wrong"


@pytest.mark.parametrize(("source", "gold", "prediction", "right"), POLICY)
def test_policies(source: str, gold: str, prediction: str, right: bool) -> None:
    assert verdict(gold, prediction) is right


@pytest.mark.parametrize(("gold", "prediction", "right"), FORMS)
def test_forms(gold: str, prediction: str, right: bool) -> None:
    assert verdict(gold, prediction) is right


@pytest.mark.parametrize(("gold", "prediction", "right"), HELDOUT)
def test_heldout_pairs(gold: str, prediction: str, right: bool) -> None:
    assert verdict(gold, prediction) is right


def test_the_held_out_set_is_large_and_balanced() -> None:
    assert len(HELDOUT) >= 120
    assert 50 <= sum(right for _, _, right in HELDOUT) <= len(HELDOUT) - 50
    assert not {(g, p) for g, p, _ in HELDOUT} & {(g, p) for _, g, p, _ in [*KNOWN, *POLICY]}
    assert not {(g, p) for g, p, _ in HELDOUT} & {(g, p) for g, p, _ in FORMS}


def test_most_pairs_never_reach_math_verify() -> None:
    layers = [judge(gold, prediction).by for gold, prediction, _ in HELDOUT]
    assert layers.count("rules") >= 0.95 * len(layers)


def test_gold_comes_first() -> None:
    """An equation to solve answers nothing but itself, while its solution answers both ways of writing it."""
    assert verdict("5", "\\boxed{x = 5}")
    assert verdict("x = 5", "\\boxed{5}")
    assert not verdict("5", "\\boxed{3x + 2 = 5}")
    assert not verdict("x = 5", "\\boxed{y = 5}")


RATIONALS = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**4)


def spellings(x: Fraction) -> list[str]:
    sign, n, d = "-" if x < 0 else "", abs(x.numerator), x.denominator
    return [
        f"\\boxed{{{sign}\\frac{{{n}}}{{{d}}}}}",
        f"{sign}{n}/{d}",
        f"The answer is ${sign}\\dfrac{{{3 * n}}}{{{3 * d}}}$.",
        f"\\boxed{{\\frac{{{sign}{n}}}{{{d}}}}}",
        f"#### {sign}{n}/{d}",
    ]


@settings(max_examples=150, deadline=None)
@given(RATIONALS)
def test_a_rational_equals_every_spelling_of_itself(x: Fraction) -> None:
    gold = f"{x.numerator}" if x.denominator == 1 else f"\\frac{{{x.numerator}}}{{{x.denominator}}}"
    for text in spellings(x):
        assert verdict(gold, text), text


@settings(max_examples=150, deadline=None)
@given(RATIONALS, RATIONALS)
def test_two_rationals_agree_only_when_equal(x: Fraction, y: Fraction) -> None:
    gold = f"\\frac{{{x.numerator}}}{{{x.denominator}}}"
    for text in spellings(y):
        assert verdict(gold, text) is (x == y)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**15), st.integers(1, 10**6))
def test_whole_numbers_are_compared_exactly(n: int, d: int) -> None:
    assert verdict(str(n), f"\\boxed{{{n:,}}}")
    assert not verdict(str(n), f"\\boxed{{{n + d:,}}}")
    assert not verdict(str(n), f"\\boxed{{{n}.{d}}}")


POLYNOMIALS = st.lists(st.integers(-9, 9), min_size=2, max_size=6)


def polynomial(coefficients: list[int], order: int = 1) -> str:
    terms = [f"({c})x^{{{k}}}" for k, c in enumerate(coefficients)]
    return " + ".join(terms[::order])


@settings(max_examples=100, deadline=None)
@given(POLYNOMIALS, st.integers(0, 5), st.integers(-3, 3))
def test_polynomials_agree_only_with_equal_coefficients(coefficients: list[int], place: int, change: int) -> None:
    other = list(coefficients)
    other[place % len(other)] += change
    right = verdict(polynomial(coefficients), f"\\boxed{{{polynomial(other, -1)}}}")
    assert right is (change == 0)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gets_a_verdict(text: str) -> None:
    found = judge("\\frac{1}{2}", text)
    assert found.outcome in ("right", "wrong", "could-not-grade")
    assert found.score in (0.0, 1.0)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="\\{}[]()$^_&|,;:!%#.=<>+-*/0123456789abexpifrcsqtlon \n", max_size=120))
def test_any_mathematical_noise_gets_a_verdict(text: str) -> None:
    for completion in (text, f"\\boxed{{{text}}}", f"${text}$"):
        found = judge("x^2 + 1", completion)
        assert found.outcome in ("right", "wrong", "could-not-grade")
