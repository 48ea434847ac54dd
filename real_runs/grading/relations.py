"""Equations and inequalities: the same when they hold at the same places."""

from __future__ import annotations

from real_runs.grading.equality import ratio_at_points, same_expression
from real_runs.grading.nodes import Node, Num, Op, Rel, Seq, Sym, free_symbols

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_INFINITY = Sym("infty")


def difference(rel: Rel) -> Node:
    """Left side minus right side."""
    return Op("+", (rel.items[0], Op("neg", (rel.items[1],))))


def as_interval(rel: Rel) -> Seq | None:
    """The interval that an inequality in one variable describes, when it can be read off."""
    if rel.ops == ("in",) and isinstance(rel.items[1], Seq):
        return rel.items[1]
    if not all(op in ("<", ">", "<=", ">=") for op in rel.ops):
        return None
    ops, items = rel.ops, rel.items
    if all(op in (">", ">=") for op in ops):
        ops, items = tuple(_FLIPPED[op] for op in reversed(ops)), tuple(reversed(items))
    if any(op in (">", ">=") for op in ops):
        return None
    variables = [k for k, x in enumerate(items) if isinstance(x, Sym) and x.name not in ("pi", "e", "infty")]
    if len(variables) != 1 or any(free_symbols(x) - {"infty"} for k, x in enumerate(items) if k not in variables):
        return None
    at = variables[0]
    if len(items) == 3 and at == 1:
        return Seq("tuple", (items[0], items[2]), "(" if ops[0] == "<" else "[", ")" if ops[1] == "<" else "]")
    if len(items) == 2 and at == 0:
        return Seq("tuple", (Op("neg", (_INFINITY,)), items[1]), "(", ")" if ops[0] == "<" else "]")
    if len(items) == 2:
        return Seq("tuple", (items[0], _INFINITY), "(" if ops[0] == "<" else "[", ")")
    return None


def same_relation(gold: Rel, pred: Rel) -> bool | None:
    """Two single relations, or two chains relation by relation."""
    if len(gold.ops) != len(pred.ops):
        return False
    if len(gold.ops) > 1:
        flipped = Rel(tuple(_FLIPPED.get(op, op) for op in reversed(pred.ops)), tuple(reversed(pred.items)))
        for candidate in (pred, flipped):
            if candidate.ops == gold.ops:
                sides = [same_expression(a, b) for a, b in zip(gold.items, candidate.items, strict=True)]
                if all(sides):
                    return True
        return None if gold.ops == pred.ops else False
    if gold.ops[0] not in _FLIPPED or pred.ops[0] not in _FLIPPED:
        return None
    return _same_single(gold, pred)


def _same_single(gold: Rel, pred: Rel) -> bool | None:
    op = gold.ops[0]
    if op in ("=", "!="):
        if pred.ops[0] != op:
            return False
        return _proportional(gold, pred, signed=False)
    if pred.ops[0] == op:
        return _proportional(gold, pred, signed=True)
    if pred.ops[0] == _FLIPPED[op]:
        return _proportional(gold, Rel((op,), (pred.items[1], pred.items[0])), signed=True)
    return False


def _proportional(gold: Rel, pred: Rel, *, signed: bool) -> bool | None:
    """Whether the two differences are constant multiples of each other (by a positive constant if ``signed``)."""
    a, b = difference(gold), difference(pred)
    names = free_symbols(a) | free_symbols(b)
    if free_symbols(a) != free_symbols(b):
        return False
    if not names:
        return same_expression(a, b)
    ratio = ratio_at_points(a, b, sorted(names))
    if ratio is None:
        return None
    constant, value = ratio
    if constant:
        return value > 0 if signed else True
    # Not a multiple. Two polynomials of first degree are then different lines; beyond that they may still have
    # the same solutions (y = 1/x and xy = 1), which is for computer algebra to find out.
    return False if _linear(a) and _linear(b) else None


def _linear(node: Node) -> bool:
    """First degree in every variable, judged by form."""
    match node:
        case Num() | Sym():
            return True
        case Op("+", args) | Op("neg", args):
            return all(_linear(x) for x in args)
        case Op("*", args):
            return sum(bool(free_symbols(x)) for x in args) <= 1 and all(_linear(x) for x in args)
        case Op("/", (top, bottom)):
            return _linear(top) and not free_symbols(bottom)
    return not free_symbols(node)
