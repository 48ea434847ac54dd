"""Budgets and quantities as people write them.

A FLOP budget is an exact Python int from here on: ``"2.5e17"`` goes through `decimal`, never through a
binary float, so what is printed back is what was asked for.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, DecimalException

from race.errors import InvalidInput

MIN_BUDGET = 1
MAX_BUDGET = 10**30

_SI = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24}
_WITH_UNIT = re.compile(r"^(?P<number>.+?)\s*(?P<prefix>[KMGTPEZY]?)FLOPs?$", re.IGNORECASE)
_ALLOWED = "a positive number of FLOPs such as 1e18, 2.5e17, 300PFLOP or 1EFLOP, at most 1e30"
# 1,000,000 is a pasted number; 1,5 is a decimal comma, which must not silently become 15.
_THOUSANDS = re.compile(r"^\d{1,3}(,\d{3})+(?![\d,])")
# Wider than any budget (31 digits), so that no budget is rounded on its way to int.
_EXACT = Context(prec=60)


def parse_budget(value: str | int | float, *, field: str = "budget") -> int:
    """Return a FLOP budget as an exact int.

    Parameters
    ----------
    value
        ``1e18``, ``"1e18"``, ``"2.5e17"``, ``"1EFLOP"``, ``"300 PFLOPs"``.
    field
        Name used in the error message.

    Raises
    ------
    InvalidInput
        Not a number, NaN, infinite, zero, negative, below one FLOP or above 1e30.
    """
    if isinstance(value, bool):
        raise InvalidInput(f"{field}: found {value!r}; allowed is {_ALLOWED}")
    text = str(value).strip()
    exponent = 0
    match = _WITH_UNIT.match(text)
    if match:
        text = match["number"].strip()
        exponent = _SI[match["prefix"].upper()]
    try:
        # Decimal accepts 1_000 by itself.
        number = Decimal(text.replace(",", "") if _THOUSANDS.match(text) else text)
        number = number.scaleb(exponent, _EXACT)
    except DecimalException:
        raise InvalidInput(f"{field}: found {str(value)!r}; allowed is {_ALLOWED}") from None
    if not number.is_finite() or not MIN_BUDGET <= number <= MAX_BUDGET:
        raise InvalidInput(f"{field}: found {str(value)!r}; allowed is {_ALLOWED}")
    return int(number)


def parse_fraction(value: str | float, *, field: str) -> float:
    """Return a share in (0, 1] written as ``0.1`` or ``"10%"``; anything else is `InvalidInput`."""
    text = str(value).strip()
    try:
        number = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number <= 1:
        raise InvalidInput(f"{field}: found {str(value)!r}; allowed is a share in (0, 1], such as 0.1 or 10%")
    return number


def format_flops(flops: float) -> str:
    """Three significant digits in scientific notation, as budgets are typed: ``1e18``, ``9.94e17``."""
    if flops == 0:
        return "0"
    mantissa, exponent = f"{float(flops):.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
