"""The shapes an answer can have, as a small immutable tree.

`parse` builds it, `evaluate` turns expressions into numbers, `compare` says whether two trees are the same
answer. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Num:
    """A literal. ``decimals`` is the number of places shown, ``None`` for a whole number."""

    value: Fraction
    decimals: int | None = None
    significant: int = 0


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable or a constant (``pi``, ``e``, ``i``, ``infty``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """``+ * / ^ neg ! pm mp % deg`` applied to ``args``."""

    op: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of its arguments, known (``sin``) or not (``f``); ``F_`` is the sequence F indexed."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Big:
    """A sum or product over an index with bounds."""

    op: str
    var: str
    low: Node
    high: Node
    body: Node


@dataclass(frozen=True, slots=True)
class Dots:
    """An ellipsis."""


@dataclass(frozen=True, slots=True)
class Rel:
    """A chain of relations, ``items[0] ops[0] items[1] ops[1] ...``."""

    ops: tuple[str, ...]
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """Several values: a bare ``list``, a bracketed ``tuple`` (or interval), or a ``set``."""

    kind: str
    items: tuple[Node, ...]
    left: str = ""
    right: str = ""


@dataclass(frozen=True, slots=True)
class SetOp:
    """``cup``, ``cap`` or ``setminus`` of sets."""

    op: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """``a : b`` or ``a : b : c``; ``clock`` when it can be read as a time of day."""

    items: tuple[Node, ...]
    clock: str = ""


@dataclass(frozen=True, slots=True)
class Based:
    """Digits written in a base, such as 52 in base 8."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with its unit, ``""`` for a noun that is no unit of measurement."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words."""

    text: str


Node: TypeAlias = (
    Num | Sym | Op | Call | Big | Dots | Rel | Seq | SetOp | Matrix | Ratio | Based | Quantity | Words
)

CONSTANTS = frozenset({"pi", "e", "i", "infty"})


class Unreadable(Exception):
    """Our grammar does not cover this text."""


class TooBig(Exception):
    """The answer is longer or nested deeper than anything we are willing to read."""


def children(node: Node) -> tuple[Node, ...]:
    """Direct sub-nodes of any node."""
    match node:
        case Op(_, args) | Call(_, args):
            return args
        case Big(_, _, low, high, body):
            return (low, high, body)
        case Rel(_, items) | Seq(_, items) | SetOp(_, items) | Ratio(items):
            return items
        case Matrix(rows):
            return tuple(x for row in rows for x in row)
        case Quantity(value, _):
            return (value,)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree, parents first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(children(top))


def free_symbols(node: Node) -> frozenset[str]:
    """Names of variables, constants left out, bound indices left out."""
    bound = {n.var for n in walk(node) if isinstance(n, Big)}
    return frozenset(
        n.name for n in walk(node) if isinstance(n, Sym) and n.name not in CONSTANTS and n.name not in bound
    )


def has_dots(node: Node) -> bool:
    """Whether an ellipsis stands anywhere in it."""
    return any(isinstance(n, Dots) for n in walk(node))
