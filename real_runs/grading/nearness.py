"""How near a wrong number is: what a dense reward may give partial credit for."""

from __future__ import annotations

import mpmath

from real_runs.grading.bounded import Undecided, approximate
from real_runs.grading.compare import strip_assignment
from real_runs.grading.evaluate import evaluate
from real_runs.grading.nodes import Node, Quantity


def nearness(gold: Node | None, pred: Node | None) -> float:
    """1 - |answer - gold| / max(|gold|, 1), not below 0, for two real numbers; 0 for anything else."""
    if gold is None or pred is None:
        return 0.0
    try:
        with mpmath.workdps(30):
            a = approximate(evaluate(_number(gold, pred), {}))
            b = approximate(evaluate(_number(pred, gold), {}))
            if isinstance(a, mpmath.mpc) or isinstance(b, mpmath.mpc):
                return 0.0
            near = 1 - abs(a - b) / max(abs(a), 1)
            return float(near) if 0 < near <= 1 else 0.0
    except (Undecided, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return 0.0


def _number(node: Node, other: Node) -> Node:
    node = strip_assignment(node, other)
    return node.value if isinstance(node, Quantity) else node
