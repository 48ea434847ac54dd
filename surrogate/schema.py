"""Checks of what a JSON document holds; every refusal is one line that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from race.errors import InvalidInput


def expect(data: Any, where: str, names: set[str]) -> None:
    """Refuse anything but an object with exactly these fields."""
    if not isinstance(data, dict):
        raise InvalidInput(f"{where}: found {type(data).__name__}; allowed is an object")
    odd = sorted(set(data) ^ names)
    if odd:
        raise InvalidInput(f"{where}: field {odd[0]!r} is {'unknown' if odd[0] in data else 'missing'}")


def field(data: Any, where: str, name: str, kind: type) -> Any:
    """One field of a type."""
    if not isinstance(data, dict) or not isinstance(data.get(name), kind) or isinstance(data[name], bool):
        raise InvalidInput(f"{where}.{name}: missing or not of type {kind.__name__}")
    return data[name]


def strings(document: Mapping[str, Any], where: str, name: str) -> list[str]:
    """A list of strings."""
    values = field(document, where, name, list)
    if not all(isinstance(v, str) for v in values):
        raise InvalidInput(f"{where}.{name}: allowed are strings")
    return list(values)


def counts(
    document: Mapping[str, Any], where: str, name: str, kinds: tuple[str, ...] | None
) -> dict[str, int]:
    """Whole numbers by name; exactly the names of ``kinds`` where given."""
    found = field(document, where, name, dict)
    if kinds is not None:
        expect(found, f"{where}.{name}", set(kinds))
    for kind, count in found.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidInput(f"{where}.{name}.{kind}: found {count!r}; allowed is a whole number of at least 0")
    return dict(found)
