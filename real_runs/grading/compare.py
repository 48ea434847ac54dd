"""Are two answers the same answer? Decided by the kind of answer the gold is.

Policies, where mathematics leaves a choice (all symmetric in gold and prediction):

- ``x = 5`` answers 5, and ``x = 5`` answers ``x = 5``, but not ``y = 5``; an equation to solve answers nothing else.
- 50 % equals 50 and 0.5. A unit may be left out, a different unit of measurement may not be given.
- (0, 1) and 0 < x < 1 are the same interval; (1, 2) and "1, 2" the same pair; a set and a list have no order.
- 52 in base 8 answers "52" (the question fixes the base) but not 42.
- Sequences with an ellipsis agree when their last terms do and each says no other terms than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from real_runs.grading.equality import same_expression
from real_runs.grading.nodes import (
    Based,
    Call,
    Matrix,
    Node,
    Num,
    Op,
    Quantity,
    Ratio,
    Rel,
    Seq,
    SetOp,
    Sym,
    Words,
    free_symbols,
    has_dots,
)
from real_runs.grading.relations import as_interval, same_relation
from real_runs.grading.sequences import same_dotted
from real_runs.grading.unions import distinct, merged

MAX_ITEMS = 64
_KNOWN_FREE = frozenset({"", "square", "^2", "^3"})


def same_answer(gold: Node, pred: Node) -> bool | None:
    """Compare two parsed answers; ``None`` when these rules cannot tell."""
    if gold == pred:
        return True
    gold, pred = expand_signs(gold), expand_signs(pred)
    if has_dots(gold) or has_dots(pred):
        return same_dotted(strip_assignment(gold, pred), strip_assignment(pred, gold), same_answer)
    gold, pred = strip_assignment(gold, pred), strip_assignment(pred, gold)
    if isinstance(gold, Quantity) or isinstance(pred, Quantity):
        return _same_quantity(gold, pred)
    if isinstance(gold, Words) or isinstance(pred, Words):
        return _same_words(gold, pred)
    if isinstance(gold, Based) or isinstance(pred, Based):
        return _same_based(gold, pred)
    if isinstance(gold, Ratio) or isinstance(pred, Ratio):
        return _same_ratio(gold, pred)
    if isinstance(gold, Matrix) or isinstance(pred, Matrix):
        return _same_matrix(gold, pred)
    if isinstance(gold, Rel) or isinstance(pred, Rel) or _is_set(gold) or _is_set(pred):
        return _same_set_or_relation(gold, pred)
    if isinstance(gold, Seq) or isinstance(pred, Seq):
        return _same_sequence(gold, pred)
    return _same_scalar(gold, pred)


def all_of(results: Sequence[bool | None]) -> bool | None:
    """Three-valued and."""
    if any(r is False for r in results):
        return False
    return None if any(r is None for r in results) else True


# rewriting


def strip_assignment(node: Node, other: Node) -> Node:
    """``x = 5`` to ``5`` when the other side does not say ``x = `` too; ``n = 2, 3`` to ``2, 3``."""
    if isinstance(node, Seq) and node.kind == "list" and node.items:
        return _strip_list(node, other)
    if not isinstance(node, Rel) or node.ops[-1] not in ("=", "in"):
        return node
    if node.ops[-1] == "in":
        return node.items[-1] if isinstance(node.items[0], (Sym, Call)) else node
    left, right = node.items[0], node.items[-1]
    if set(node.ops) != {"="}:
        return node
    if isinstance(other, Rel) and other.ops == ("=",) and len(node.items) == 2:
        return right if left == other.items[0] and _is_name(left) else node
    if _is_name(left) or (not _has_variables(left) and not isinstance(other, Rel)):
        return right
    return Rel(("=",), (left, right))


def _strip_list(node: Seq, other: Node) -> Node:
    first = node.items[0]
    if isinstance(first, Rel) and first.ops == ("=",) and _is_name(first.items[0]):
        same_name = all(
            not isinstance(x, Rel) or (x.ops == ("=",) and x.items[0] == first.items[0]) for x in node.items
        )
        named = all(isinstance(x, Rel) and x.ops == ("=",) and _is_name(x.items[0]) for x in node.items)
        other_named = isinstance(other, Seq) and any(isinstance(x, Rel) for x in other.items)
        if same_name or (named and not other_named):
            return Seq("list", tuple(x.items[-1] if isinstance(x, Rel) else x for x in node.items))
    return node


def _is_name(node: Node) -> bool:
    if isinstance(node, Call):
        return node.name.endswith(("()", "_", "prime")) or node.name == "overline"
    if isinstance(node, Op) and node.op == "*":  # AB = 5 names a segment
        return all(isinstance(x, Sym) and x.name.isupper() for x in node.args)
    if isinstance(node, Op) and node.op == "/":  # dy/dx
        return all(isinstance(x, Op) and x.args[0] == Sym("d") and _is_name(x.args[-1]) for x in node.args)
    if isinstance(node, Seq) and node.kind == "tuple":  # (x, y) = (2, 3)
        return all(isinstance(x, Sym) for x in node.items)
    return isinstance(node, (Sym, Words))


def _has_variables(node: Node) -> bool:
    return bool(free_symbols(node))


def expand_signs(node: Node) -> Node:
    """``a ± b`` to the two values it stands for, wherever it stands."""
    if isinstance(node, Seq) and node.kind in ("list", "set"):
        items: list[Node] = []
        for item in node.items:
            expanded = expand_signs(item)
            items.extend(expanded.items if isinstance(expanded, Seq) and expanded.kind == "list" else [expanded])
        return Seq(node.kind, tuple(items), node.left, node.right)
    if isinstance(node, Rel) and node.ops == ("=",) and _contains_sign(node.items[1]):
        values = expand_signs(node.items[1])
        assert isinstance(values, Seq)
        return Seq("list", tuple(Rel(("=",), (node.items[0], v)) for v in values.items))
    if isinstance(node, Quantity) and _contains_sign(node.value):
        return expand_signs(node.value)
    if _contains_sign(node) and isinstance(node, (Op, Call)):
        return Seq("list", (_choose(node, 1), _choose(node, -1)))
    return node


def _contains_sign(node: Node) -> bool:
    if isinstance(node, Op):
        return node.op in ("pm", "mp") or any(_contains_sign(x) for x in node.args)
    return isinstance(node, Call) and any(_contains_sign(x) for x in node.args)


def _choose(node: Node, sign: int) -> Node:
    if isinstance(node, Op):
        args = tuple(_choose(x, sign) for x in node.args)
        if node.op in ("pm", "mp"):
            plus = (sign > 0) == (node.op == "pm")
            return args[0] if plus else Op("neg", args)
        return Op(node.op, args)
    return Call(node.name, tuple(_choose(x, sign) for x in node.args)) if isinstance(node, Call) else node


# kinds


def _same_scalar(gold: Node, pred: Node) -> bool | None:
    """Numbers and expressions, with the two readings of a percentage and the unit of an angle."""
    result = same_expression(gold, pred)
    if result is True:
        return True
    for mine, other in ((gold, pred), (pred, gold)):
        if isinstance(mine, Op) and mine.op in ("%", "deg") and not _is_op(other, mine.op):
            again = same_expression(mine.args[0], other)
            return True if again else (None if result is None and again is None else False)
    if _is_infinite(gold) or _is_infinite(pred):
        return _infinity(gold) == _infinity(pred)
    return result


def _is_op(node: Node, op: str) -> bool:
    return isinstance(node, Op) and node.op == op


def _infinity(node: Node) -> int | None:
    """1 or -1 for plus or minus infinity."""
    sign = 1
    while isinstance(node, Op) and node.op == "neg":
        node, sign = node.args[0], -sign
    return sign if node == Sym("infty") else None


def _is_infinite(node: Node) -> bool:
    return _infinity(node) is not None


def _same_quantity(gold: Node, pred: Node) -> bool | None:
    units = {x.unit for x in (gold, pred) if isinstance(x, Quantity)} - _KNOWN_FREE
    if len(units) > 1:
        return False
    bare = [x.value if isinstance(x, Quantity) else x for x in (gold, pred)]
    return same_answer(bare[0], bare[1])


def _same_words(gold: Node, pred: Node) -> bool | None:
    if isinstance(gold, Words) and isinstance(pred, Words):
        return gold.text == pred.text or gold.text.replace(" ", "") == pred.text.replace(" ", "")
    words, other = (gold, pred) if isinstance(gold, Words) else (pred, gold)
    assert isinstance(words, Words)
    letters = words.text.replace(" ", "")
    return letters == _letters(other)


def _letters(node: Node) -> str | None:
    """Letters of a bare name or product of names, as one would read them aloud."""
    if isinstance(node, Sym):
        return node.name.lower()
    if isinstance(node, Op) and node.op == "*" and all(isinstance(x, Sym) for x in node.args):
        return "".join(x.name for x in node.args if isinstance(x, Sym)).lower()
    if isinstance(node, Call) and node.name == "overline":
        return _letters(node.args[0])
    return None


def _same_based(gold: Node, pred: Node) -> bool | None:
    if isinstance(gold, Based) and isinstance(pred, Based):
        return gold.base == pred.base and gold.digits.lstrip("0") == pred.digits.lstrip("0")
    based, other = (gold, pred) if isinstance(gold, Based) else (pred, gold)
    assert isinstance(based, Based)
    if isinstance(other, Num) and other.decimals is None and based.digits.isdigit():
        return other.value == Fraction(int(based.digits))
    return False


def _same_ratio(gold: Node, pred: Node) -> bool | None:
    if isinstance(gold, Ratio) and isinstance(pred, Ratio):
        if gold.clock and pred.clock:
            return gold.clock.rstrip("apm") == pred.clock.rstrip("apm") and not (
                gold.clock[-1] in "ap" and pred.clock[-1] in "ap" and gold.clock[-1] != pred.clock[-1]
            )
        if len(gold.items) != len(pred.items):
            return False
        pairs = zip(gold.items[1:], pred.items[1:], strict=True)
        return all_of(
            [same_expression(Op("*", (gold.items[0], p)), Op("*", (g, pred.items[0]))) for g, p in pairs]
        )
    ratio, other = (gold, pred) if isinstance(gold, Ratio) else (pred, gold)
    assert isinstance(ratio, Ratio)
    if len(ratio.items) != 2 or isinstance(other, (Seq, SetOp, Rel, Matrix)):
        return False
    return same_expression(Op("/", ratio.items), other)


def _same_matrix(gold: Node, pred: Node) -> bool | None:
    a, b = _entries(gold), _entries(pred)
    if a is None or b is None or len(a) != len(b) or any(len(r) != len(s) for r, s in zip(a, b, strict=True)):
        return False
    return all_of([same_answer(x, y) for r, s in zip(a, b, strict=True) for x, y in zip(r, s, strict=True)])


def _entries(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    """Rows; a tuple is a column vector, and so is a matrix of one row."""
    if isinstance(node, Matrix):
        return tuple((x,) for x in node.rows[0]) if len(node.rows) == 1 else node.rows
    if isinstance(node, Seq) and node.kind == "tuple":
        return tuple((x,) for x in node.items)
    return None


def _is_set(node: Node) -> bool:
    return isinstance(node, SetOp) or node in (Sym("Reals"), Sym("emptyset"))


def _same_set_or_relation(gold: Node, pred: Node) -> bool | None:
    mine, other = _pieces(gold), _pieces(pred)
    if mine is not None and other is not None:
        return match_unordered(mine, other) or _same_union(mine, other)
    if isinstance(gold, Rel) and isinstance(pred, Rel):
        return same_relation(gold, pred)
    if isinstance(gold, Seq) and isinstance(pred, Seq):
        return _same_sequence(gold, pred)
    if isinstance(gold, SetOp) and isinstance(pred, SetOp) and gold.op == pred.op and gold.op != "setminus":
        return match_unordered(gold.items, pred.items) or None
    if isinstance(gold, SetOp) or isinstance(pred, SetOp):
        return None
    return False


def _same_union(mine: Sequence[Node], other: Sequence[Node]) -> bool | None:
    """Whether two unions that are cut into different pieces cover the same numbers."""
    if max(len(mine), len(other)) > MAX_ITEMS:
        return None
    a, b = merged(mine), merged(other)
    return False if a is None or b is None else match_unordered(a, b)


def _pieces(node: Node) -> tuple[Node, ...] | None:
    """The intervals and points whose union a set or an inequality is."""
    if isinstance(node, SetOp):
        parts = [_pieces(x) for x in node.items] if node.op == "cup" else [None]
        return None if None in parts else tuple(x for part in parts if part for x in part)
    if isinstance(node, Rel):
        interval = as_interval(node)
        return None if interval is None else (interval,)
    if isinstance(node, Seq) and node.kind == "list" and any(isinstance(x, Rel) for x in node.items):
        parts = [_pieces(x) if isinstance(x, Rel) else None for x in node.items]
        return None if None in parts else tuple(x for part in parts if part for x in part)
    if isinstance(node, Seq) and node.kind == "set":
        return node.items
    if isinstance(node, Seq) and node.kind == "tuple" and len(node.items) == 2:
        return (node,)
    if node == Sym("Reals"):
        infinity = Sym("infty")
        return (Seq("tuple", (Op("neg", (infinity,)), infinity), "(", ")"),)
    return None


def _same_sequence(gold: Node, pred: Node) -> bool | None:
    a, b = (_without_repeats(x) if isinstance(x, Seq) else Seq("list", (x,)) for x in (gold, pred))
    if len(a.items) != len(b.items):
        return False
    if a.kind == b.kind == "tuple":
        # With two entries the brackets may say open or closed; with more they say nothing.
        if len(a.items) == 2 and (a.left, a.right) != (b.left, b.right) and "<|" not in (a.left, b.left):
            return False
        return all_of([same_answer(x, y) for x, y in zip(a.items, b.items, strict=True)])
    if "tuple" in (a.kind, b.kind):
        if "set" in (a.kind, b.kind):
            return False
        return all_of([same_answer(x, y) for x, y in zip(a.items, b.items, strict=True)])
    return match_unordered(a.items, b.items)


def _without_repeats(node: Seq) -> Seq:
    """A set that names a member twice is the set that names it once; a list is not."""
    if node.kind != "set" or len(node.items) > MAX_ITEMS:
        return node
    return Seq("set", distinct(node.items, same_answer), node.left, node.right)


def match_unordered(mine: Sequence[Node], other: Sequence[Node]) -> bool | None:
    """A one-to-one pairing of equal members; equality is transitive, so greedy matching is enough."""
    if len(mine) != len(other):
        return False
    if len(mine) > MAX_ITEMS:
        return None
    left = list(other)
    unsure = False
    for item in mine:
        for index, candidate in enumerate(left):
            result = same_answer(item, candidate)
            unsure = unsure or result is None
            if result:
                del left[index]
                break
        else:
            return None if unsure else False
    return True
