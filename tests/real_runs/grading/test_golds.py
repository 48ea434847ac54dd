"""Reference answers are boxed and proved gradable before a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from race.errors import InvalidInput
from real_runs.grading import Grader, validate_golds
from real_runs.grading.judge import boxed_gold


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, timeout=2.0) as pool:
        yield pool


@pytest.mark.parametrize(
    ("gold", "boxed"),
    [
        ("2\\pi", "\\boxed{2\\pi}"),
        ("$2\\pi$", "\\boxed{2\\pi}"),
        ("\\boxed{2\\pi}", "\\boxed{2\\pi}"),
        ("She has 3 left.\n#### 3", "\\boxed{3}"),
        ("3\\frac{1}{2}", "\\boxed{3\\frac{1}{2}}"),
        ("(1,2)", "\\boxed{(1,2)}"),
        ("\\$32,\\!348", "\\boxed{\\$32,\\!348}"),
    ],
)
def test_golds_are_boxed_once(gold: str, boxed: str) -> None:
    assert boxed_gold(gold) == boxed
    assert boxed_gold(boxed_gold(gold)) == boxed


def test_usable_golds_are_kept_and_others_counted(grader: Grader) -> None:
    golds = [
        "18",
        "",
        "   ",
        "\\frac{1}{2}",
        "\\text{The proof is left to the reader as an exercise}",
        "\\boxed{}",
        "\\text{Evelyn}",
        "x" * 600,
        "\\int_0^1 x^2\\,dx",
        "\\foo \\bar{",
    ]
    report = validate_golds(golds, grader)
    assert [index for index, _ in report.kept] == [0, 3, 6, 8]
    assert report.kept[0] == (0, "\\boxed{18}")
    assert report.counts == {"empty": 3, "free text": 1, "too long": 1, "unreadable": 1}
    assert "4 answers kept, 6 dropped" in report.summary()


def test_a_gold_that_hangs_is_dropped(grader: Grader) -> None:
    report = validate_golds(["\\int_0^1 10^{10^{10^{10}}}\\,dx + 1", "7"], grader)
    assert [gold for _, gold in report.kept] == ["\\boxed{7}"]


def test_a_gold_must_be_text(grader: Grader) -> None:
    with pytest.raises(InvalidInput, match=r"golds\[1\]"):
        validate_golds(["1", 2], grader)  # type: ignore[list-item]
