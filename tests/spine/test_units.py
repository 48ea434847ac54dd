from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from race.errors import InvalidInput
from race.units import MAX_BUDGET, format_flops, parse_budget, parse_fraction


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        ("1e18", 10**18),
        ("2.5e17", 25 * 10**16),
        ("1EFLOP", 10**18),
        ("300PFLOP", 3 * 10**17),
        ("300 PFLOPs", 3 * 10**17),
        ("0.1 EFLOP", 10**17),
        ("1eflops", 10**18),
        ("1e3 flops", 1000),
        ("1_000_000", 10**6),
        ("1,000,000", 10**6),
        ("12,345.5 KFLOP", 12_345_500),
        (" 7 ", 7),
        (1e18, 10**18),
        (10**30, 10**30),
        (10**30 - 1, 10**30 - 1),  # more digits than decimal's default precision
        ("0.000001 YFLOP", 10**18),
    ],
)
def test_budgets_as_people_write_them(text: object, flops: int) -> None:
    found = parse_budget(text)  # type: ignore[arg-type]
    assert found == flops
    assert type(found) is int


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "abc", "0", "-1", "-1e18", "nan", "NaN", "inf", "-inf", "snan", "0.5", "1e31", "1e400", "1e999999",
        "1e999999EFLOP", "1e99999999999999999999", "1e-999999 EFLOP", "1,5e18", "1,00", "1,0000", ",1", "1e18 EFLO",
        "EFLOP", "1e18 FLOP/s", "1 e 18", "1e18e2", "None", "1.2.3", "٪", float("nan"), float("inf"), -1.0, 0, -5,
        True, False, None, [], 1e31, 10**40,
    ],
)  # fmt: skip
def test_bad_budgets_are_one_line_that_names_the_field(text: object) -> None:
    with pytest.raises(InvalidInput, match=r"^budget: found .*allowed is a positive number") as caught:
        parse_budget(text)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_a_budget_or_invalid_input(text: str) -> None:
    try:
        found: int | str = parse_budget(text, field="--budget")
    except InvalidInput as error:
        found = str(error)
    assert found.startswith("--budget: ") if isinstance(found, str) else 1 <= found <= MAX_BUDGET


@given(st.integers(1, MAX_BUDGET))
def test_an_int_comes_back_to_the_last_digit(budget: int) -> None:
    assert parse_budget(budget) == budget
    assert parse_budget(str(budget)) == budget
    assert parse_budget(f"{budget:,}") == budget


@given(st.integers(1, 999), st.integers(0, 27))
def test_what_is_printed_is_what_was_typed(digits: int, exponent: int) -> None:
    budget = digits * 10**exponent
    assert parse_budget(format_flops(budget)) == budget


@given(st.integers(1, MAX_BUDGET))
def test_formatting_keeps_three_digits(budget: int) -> None:
    assert abs(parse_budget(format_flops(budget)) / budget - 1) <= 5e-3 if budget >= 100 else True


@pytest.mark.parametrize(
    ("text", "share"), [("10%", 0.1), ("0.1", 0.1), (0.1, 0.1), ("100%", 1.0), ("1", 1.0), (1, 1.0)]
)
def test_fractions(text: object, share: float) -> None:
    assert parse_fraction(text, field="pilot_budget") == pytest.approx(share)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["0", "0%", "-0.1", "101%", "1.1", "nan", "inf", "ten", "", "%", True, None, "1e-400"]
)
def test_bad_fractions(text: object) -> None:
    with pytest.raises(InvalidInput, match=r"^pilot_budget: found .*allowed is a share in \(0, 1\]"):
        parse_fraction(text, field="pilot_budget")  # type: ignore[arg-type]
