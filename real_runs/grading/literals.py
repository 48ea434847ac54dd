"""Small constructors the grammar shares: numbers, products, units."""

from __future__ import annotations

from fractions import Fraction

from real_runs.grading.nodes import Node, Num, Op, Quantity, Rel, TooBig

# Letters that name a function when a bracket follows: f(x), O(n). Any other letter is multiplied.
UNDEFINED = frozenset({"f", "g", "h", "F", "G", "H", "O", "o", "Theta", "Omega", "P"})
CLOSERS = {"(": (")", "]"), "[": ("]", ")", "["), "]": ("[", "]"), "<|": ("|>",)}
_MAX_DECIMAL_EXPONENT = 5_000


def number(text: str) -> Num:
    """A literal such as ``12``, ``.5``, ``3.20`` or ``1e-5``, exactly."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, places = mantissa.partition(".")
    power = int(exponent or 0)
    if abs(power) > _MAX_DECIMAL_EXPONENT:
        raise TooBig(f"decimal exponent beyond {_MAX_DECIMAL_EXPONENT}")
    value = Fraction(int((whole or "0") + places), 10 ** len(places)) * Fraction(10) ** power
    decimals = len(places) - power if places or power < 0 else None
    return Num(value, decimals, len((whole + places).lstrip("0")))


def times(left: Node, right: Node) -> Node:
    """A product, kept flat on its left."""
    head = left.args if isinstance(left, Op) and left.op == "*" else (left,)
    return Op("*", (*head, right))


def proper(node: Op) -> bool:
    """A fraction of whole numbers below 1, which after a whole number makes a mixed number."""
    top, bottom = node.args
    whole = all(isinstance(x, Num) and x.decimals is None for x in (top, bottom))
    return whole and isinstance(top, Num) and isinstance(bottom, Num) and 0 < top.value < bottom.value


def unit_name(parts: list[str]) -> str:
    """``square cm`` and ``cm ^2`` to one spelling."""
    out: list[str] = []
    power = ""
    for part in parts:
        if part in ("square", "cubic"):
            power = "^2" if part == "square" else "^3"
        elif part == "per":
            out.append("/")
        else:
            out.append(part)
            if power and not part.startswith("^"):
                out.append(power)
                power = ""
    return "".join(out)


def attach_unit(node: Node, unit: str) -> Node:
    """``node`` with its unit; percent and degrees are operations, because they change the value."""
    if isinstance(node, Rel):  # x = 5 cm: the unit belongs to the last side
        return Rel(node.ops, (*node.items[:-1], attach_unit(node.items[-1], unit)))
    if unit in ("percent", "degree"):
        return Op("%" if unit == "percent" else "deg", (node,))
    return Quantity(node, unit)
