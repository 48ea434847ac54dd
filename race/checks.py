"""Checks of plain values that come from users and files: one wording for every field of every schema.

What comes back is what went in, so a check can stand where the value is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from race.errors import InvalidInput


def check_real(name: str, value: Any, *, low: float, high: float) -> Any:
    """``value`` if it is a number from ``low`` to ``high``; `InvalidInput` naming the field otherwise."""
    return _number(name, value, (int, float), "a number", low, high)


def check_whole(name: str, value: Any, *, low: float, high: float) -> Any:
    """``value`` if it is an integer from ``low`` to ``high``; `InvalidInput` naming the field otherwise."""
    return _number(name, value, (int,), "a whole number", low, high)


def check_object(
    where: str, data: Any, *, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A copy of ``data`` if it is an object with the required keys and no unknown ones.

    Raises
    ------
    InvalidInput
        Something else, a key missing, or a key that nobody knows.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{where}: found {type(data).__name__}; allowed is an object")
    for name in required:
        if name not in data:
            raise InvalidInput(f"{where}.{name}: missing")
    unknown = sorted(set(data) - set(required) - set(optional))
    if unknown:
        raise InvalidInput(
            f"{where}: unknown field {unknown[0]!r}; allowed are {', '.join((*required, *optional))}"
        )
    return dict(data)


def _number(name: str, value: Any, kinds: tuple[type, ...], what: str, low: float, high: float) -> Any:
    good = isinstance(value, kinds) and not isinstance(value, bool)
    # The comparison is false for NaN and infinities, and works for ints beyond the range of a float.
    if not good or not low <= value <= high:
        raise InvalidInput(f"{name}: found {value!r}; allowed is {what} from {low:g} to {high:g}")
    return value
