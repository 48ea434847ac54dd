"""Unions of intervals and points with known ends, brought to their one shortest form.

[0, 1] and [1, 2] together are [0, 2], and a list of roots that names one twice is the same set without it: a
mathematician writes either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mpmath

from real_runs.grading.bounded import Undecided, approximate
from real_runs.grading.evaluate import evaluate
from real_runs.grading.nodes import Node, Op, Seq, Sym

_INFINITY = Sym("infty")


@dataclass(frozen=True)
class _Piece:
    low: mpmath.mpf
    high: mpmath.mpf
    left: str
    right: str
    first: Node
    last: Node

    @property
    def node(self) -> Node:
        if self.first == self.last:
            return self.first
        return Seq("tuple", (self.first, self.last), self.left, self.right)


def merged(pieces: Sequence[Node]) -> tuple[Node, ...] | None:
    """The same set in as few pieces as possible, from left to right; ``None`` when an end has no known place."""
    try:
        found = [_piece(node) for node in pieces]
    except Undecided:
        return None
    # At the same place a closed end comes before an open one, so that what touches it joins it.
    found.sort(key=lambda p: (p.low, p.left != "["))
    out: list[_Piece] = []
    for piece in found:
        if piece.low > piece.high or (piece.low == piece.high and (piece.left, piece.right) != ("[", "]")):
            return None  # empty, or ends in the wrong order: not for us to mend
        if out and _joins(out[-1], piece):
            out[-1] = _joined(out[-1], piece)
        else:
            out.append(piece)
    return tuple(piece.node for piece in out)


def distinct(items: Sequence[Node], same: Callable[[Node, Node], bool | None]) -> tuple[Node, ...]:
    """The items without those that are surely the same as an earlier one."""
    out: list[Node] = []
    for item in items:
        if not any(same(item, other) for other in out):
            out.append(item)
    return tuple(out)


def _piece(node: Node) -> _Piece:
    if isinstance(node, Seq):
        if node.kind != "tuple" or len(node.items) != 2 or node.left not in "([" or node.right not in ")]":
            raise Undecided
        first, last = node.items
        return _Piece(_place(first), _place(last), node.left, node.right, first, last)
    place = _place(node)
    return _Piece(place, place, "[", "]", node, node)


def _place(node: Node) -> mpmath.mpf:
    if node == _INFINITY:
        return mpmath.inf
    if node == Op("neg", (_INFINITY,)):
        return -mpmath.inf
    place = approximate(evaluate(node, {}))
    if isinstance(place, mpmath.mpc):
        raise Undecided
    return place


def _joins(a: _Piece, b: _Piece) -> bool:
    return b.low < a.high or (b.low == a.high and (a.right == "]" or b.left == "["))


def _joined(a: _Piece, b: _Piece) -> _Piece:
    if b.high > a.high:
        return replace(a, high=b.high, right=b.right, last=b.last)
    if b.high == a.high and b.right == "]":
        return replace(a, right="]")
    return a
