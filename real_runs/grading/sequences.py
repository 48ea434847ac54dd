"""Answers with an ellipsis: 1, 2, ..., n.

What the dots stand for is never written, so nothing may be added or dropped there. Two such sequences agree when
what comes after the dots agrees, and what comes before agrees as far as both go; terms that only one of them writes
must continue the other's own rule, a constant difference or a constant ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from real_runs.grading.equality import same_expression
from real_runs.grading.nodes import Dots, Node, Op, Rel, Seq

Same = Callable[[Node, Node], bool | None]


def same_dotted(gold: Node, pred: Node, same: Same) -> bool | None:
    """Compare two answers of which at least one holds an ellipsis; ``None`` when their forms differ."""
    if isinstance(gold, Rel) and isinstance(pred, Rel) and gold.ops == pred.ops:
        results = [_side(a, b, same) for a, b in zip(gold.items, pred.items, strict=True)]
        return None if None in results else all(results)
    a, b = _terms(gold), _terms(pred)
    if a is None or b is None or a[0] != b[0]:
        return None
    return _same_terms(a[1], b[1], same)


def _side(a: Node, b: Node, same: Same) -> bool | None:
    if a == b:
        return True
    first, second = _terms(a), _terms(b)
    if first is not None and second is not None and first[0] == second[0]:
        return _same_terms(first[1], second[1], same)
    return same(a, b)


def _terms(node: Node) -> tuple[str, tuple[Node, ...]] | None:
    if isinstance(node, Seq):
        return ("list" if node.kind == "list" else node.left + node.right, node.items)
    if isinstance(node, Op) and node.op in ("+", "*"):
        return node.op, node.args
    return None


def _same_terms(gold: Sequence[Node], pred: Sequence[Node], same: Same) -> bool | None:
    a, b = _cut(gold), _cut(pred)
    if a is None or b is None:
        return None if (a is None) == (b is None) else False
    (head_a, tail_a), (head_b, tail_b) = a, b
    if len(tail_a) != len(tail_b):
        return False
    shared = min(len(head_a), len(head_b))
    results = [same(x, y) for x, y in zip(tail_a, tail_b, strict=True)]
    results += [same(x, y) for x, y in zip(head_a[:shared], head_b[:shared], strict=True)]
    if any(r is False for r in results):
        return False
    if None in results:
        return None
    longer = head_a if len(head_a) > len(head_b) else head_b
    return all(_continues(longer[:k], longer[k]) for k in range(shared, len(longer)))


def _cut(items: Sequence[Node]) -> tuple[Sequence[Node], Sequence[Node]] | None:
    """What stands before and after the only ellipsis."""
    places = [k for k, x in enumerate(items) if isinstance(x, Dots)]
    if len(places) != 1:
        return None
    return items[: places[0]], items[places[0] + 1 :]


def _continues(head: Sequence[Node], term: Node) -> bool:
    """Whether ``term`` follows ``head`` by a constant difference or, from three terms on, a constant ratio."""
    if len(head) < 2:
        return False
    before, last = head[-2], head[-1]
    step = Op("+", (last, last, Op("neg", (before,))))
    if same_expression(step, term):
        return True
    return len(head) >= 3 and bool(same_expression(Op("/", (Op("*", (last, last)), before)), term))
