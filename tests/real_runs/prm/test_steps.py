"""Splitting solutions and aggregating step scores."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from race.errors import CannotDo, InvalidInput
from real_runs.prm import AGGREGATIONS, Solution, StepScores, aggregate, check_counts, split_steps
from real_runs.prm.steps import MAX_STEPS


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a\n\nb\n\nc", ["a", "b", "c"]),
        ("a\n \t\nb\n\n\n\n  c\n\n", ["a", "b", "c"]),
        ("one\ntwo", ["one\ntwo"]),
        ("", []),
        (" \n\n \n", []),
    ],
)
def test_blank_lines_separate_steps(text: str, steps: list[str]) -> None:
    assert split_steps(text) == steps


def test_another_delimiter() -> None:
    assert split_steps("a\nb\n\nc", delimiter="\n") == ["a", "b", "c"]


def test_steps_cannot_be_multiplied_without_end() -> None:
    steps = split_steps("\n\n".join(str(k) for k in range(5000)))
    assert len(steps) == MAX_STEPS
    assert steps[-1].endswith("4999")


PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(PROBABILITIES)
def test_aggregates_are_probabilities_in_order(steps: list[float]) -> None:
    values = {how: aggregate(steps, how) for how in AGGREGATIONS}
    assert all(0 <= v <= 1 for v in values.values())
    assert values["prod"] <= values["min"] <= values["mean"] + 1e-12
    assert values["min"] == min(steps)
    assert values["last"] == steps[-1]
    assert math.isclose(values["mean"], math.fsum(steps) / len(steps), abs_tol=1e-12)


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_no_steps_are_worth_nothing(how: str) -> None:
    assert aggregate([], how) == 0.0


def test_sums_are_not_offered() -> None:
    with pytest.raises(InvalidInput, match="min, mean, prod, last"):
        aggregate([0.5], "sum")


def test_counts_must_match() -> None:
    solution = Solution("q", ("a", "b"))
    check_counts([solution], [StepScores((0.1, 0.2), 9, (1, 1))])
    with pytest.raises(CannotDo, match="3 scores for the 2 steps"):
        check_counts([solution], [StepScores((0.1, 0.2, 0.3), 9, (1, 1))])
    with pytest.raises(CannotDo, match="0 results for 1"):
        check_counts([solution], [])
    with pytest.raises(CannotDo, match="no probability"):
        check_counts([solution], [StepScores((0.1, float("nan")), 9, (1, 1))])
