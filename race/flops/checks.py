"""Values checked at the door: each returns what it was given, or raises ``InvalidInput`` naming the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np

from race.errors import InvalidInput

Attention = Literal["causal", "full"]
Rotary = Literal["elementwise", "matmul"]


def positive_int(field: str, value: object) -> int:
    """A Python integer >= 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{field}: {value!r} is not a whole number >= 1")
    return value


def check_attention(attention: object) -> Attention:
    """``"causal"`` or ``"full"``."""
    if attention == "causal":
        return "causal"
    if attention == "full":
        return "full"
    raise InvalidInput(f"attention: {attention!r} is not one of {', '.join(get_args(Attention))}")


def check_rotary(rotary: object) -> Rotary:
    """``"elementwise"`` or ``"matmul"``."""
    if rotary == "elementwise":
        return "elementwise"
    if rotary == "matmul":
        return "matmul"
    raise InvalidInput(f"rotary: {rotary!r} is not one of {', '.join(get_args(Rotary))}")


def check_lengths(field: str, lengths: object, least: int = 1) -> list[int]:
    """A non-empty list of whole numbers >= ``least``, as Python integers (so that sums are exact)."""
    if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Iterable):
        raise InvalidInput(f"{field}: {lengths!r} is not a list of whole numbers")
    checked = []
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < least:
            raise InvalidInput(f"{field}: {length!r} is not a whole number >= {least}")
        checked.append(int(length))
    if not checked:
        raise InvalidInput(f"{field}: empty; give at least one")
    return checked


def check_amount(field: str, value: Any, least: int) -> Any:
    """An integer, a float or an array, finite and >= ``least``. Arrays and numpy scalars become float64."""
    if isinstance(value, int) and not isinstance(value, bool):
        ok = value >= least
    elif isinstance(value, float):
        ok = least <= value < float("inf")
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise InvalidInput(f"{field}: {value!r} is not a number or an array of numbers")
        value = array.astype(np.float64)
        ok = bool(np.all((value >= least) & (value < np.inf)))
    if not ok:
        raise InvalidInput(f"{field}: {value!r} must be finite and >= {least}")
    return value
