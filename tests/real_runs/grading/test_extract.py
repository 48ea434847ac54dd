"""Reading an answer out of a completion."""

from __future__ import annotations

import time

import pytest

from real_runs.grading.extract import extract, last_boxed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{42}", "42"),
        ("first \\boxed{1}, then at last\n\n\\boxed{2}", "2"),
        ("\\boxed{3} and \\boxed{4}", "3, 4"),
        ("\\boxed{3}, \\boxed{4}, and \\boxed{5}.", "3, 4, 5"),
        ("\\boxed{7} \\boxed{7}", "7"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{5}}", " {5}"),
        ("\\boxed 5", "5"),
        ("\\fbox{8}", "8"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("an escaped \\} brace \\boxed{x}", "x"),
        ("\\boxed{1} but then cut off \\boxed{2", "1"),
    ],
)
def test_boxes(text: str, answer: str) -> None:
    assert last_boxed(text) == answer


def test_no_box_is_none() -> None:
    assert last_boxed("nothing here") is None
    assert last_boxed("\\boxed{never closed") is None
    assert last_boxed("\\boxedlike{5}") is None


@pytest.mark.parametrize(
    ("text", "first", "marked"),
    [
        ("9 * 2 = 18\n#### 18", "18", True),
        ("#### 1\nno wait\n#### 2", "2", True),
        ("The answer is $x+1$, as $2 > 1$.", "x+1", True),
        ("Hence $a = 1$ and so $b = 2$ holds", "b = 2", True),
        ("Hence $a = 1$, $b = 2$", "a = 1, b = 2", True),
        ("It is \\[x + 1\\] by \\(y\\) above", "y", True),
        ("It is \\[x + 1\\] by symmetry", "x + 1", True),
        ("Let $y$ be it. We see that $x = 3$.", "x = 3", True),
        ("**Final Answer:** 73", "73", False),
        ("The answer is 12. I checked it.", "12", False),
        ("pi/2", "pi/2", False),
    ],
)
def test_marks(text: str, first: str, marked: bool) -> None:
    found = extract(text)
    assert found.marked is marked
    assert found.candidates[0] == first


def test_nothing_is_nothing() -> None:
    assert extract("").candidates == ()
    assert extract("\\boxed{}").candidates == ()


@pytest.mark.parametrize("piece", ["{", "}", "\\boxed{", "\\boxed", "$", "answer is ", "#### ", "\\[", "1,", "9", "**"])
def test_reading_is_linear(piece: str) -> None:
    """A megabyte of any mark is read in about the time of a megabyte of prose."""
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    extract(text)
    assert time.process_time() - start < 2.0
