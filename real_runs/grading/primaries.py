"""The atoms of the answer grammar: numbers, names, functions, brackets, matrices, sums."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from real_runs.grading.literals import CLOSERS, UNDEFINED, number
from real_runs.grading.nodes import (
    CONSTANTS,
    Big,
    Call,
    Dots,
    Matrix,
    Node,
    Num,
    Op,
    Rel,
    Seq,
    Sym,
    Unreadable,
)

if TYPE_CHECKING:
    from real_runs.grading.grammar import Parser

_MATRIX_KINDS = frozenset({"pmatrix", "bmatrix", "vmatrix", "Bmatrix", "Vmatrix", "matrix", "smallmatrix", "array"})


def primary(p: Parser) -> Node:
    """One atom, with its arguments."""
    token = p.take()
    if token.kind == "num":
        return _repeating(p, token.text)
    if token.kind == "name":
        if token.text in UNDEFINED and p.op("("):
            return Call(f"{token.text}()", p.bracketed_arguments())
        return Sym(token.text)
    if token.kind == "fn":
        return _function(p, token.text)
    if token.kind == "cmd":
        return _command(p, token.text)
    if token.kind == "op":
        return _bracket(p, token.text)
    raise Unreadable(f"{token.text!r} out of place")


def function_of(p: Parser, left: Node) -> Node | None:
    """``p(x)`` and ``p(x, y)``: a letter before bare letters in brackets is a function, not a factor."""
    name = left.name if isinstance(left, Sym) else ""
    if isinstance(left, Call) and left.name == "prime" and isinstance(left.args[0], Sym):
        name = left.args[0].name + "'"
    if not name or name in CONSTANTS or not p.op("("):
        return None
    ahead = 1
    while p.peek(ahead).kind == "name" and p.peek(ahead).text not in CONSTANTS:
        if p.peek(ahead + 1).text == ")":
            return Call(f"{name}()", p.bracketed_arguments())
        if p.peek(ahead + 1).text != ",":
            return None
        ahead += 2
    return None


def _repeating(p: Parser, text: str) -> Node:
    r"""A literal, or a repeating decimal such as ``0.1\overline{6}``."""
    base = number(text)
    if "." not in text or p.peek().text != "overline" or "e" in text.lower():
        return base
    p.take()
    p.expect("{")
    block = p.take()
    p.expect("}")
    if block.kind != "num" or not block.text.isdigit():
        raise Unreadable("a bar over something that is no digit")
    places = len(text.partition(".")[2])
    tail = Fraction(int(block.text), 10 ** len(block.text) - 1) / 10**places
    return Num(base.value + tail)


def _function(p: Parser, name: str) -> Node:
    exponent: Node | None = None
    base: Node | None = None
    if name == "sqrt" and p.op("["):
        p.take()
        degree = p.sum()
        p.expect("]")
        return Call("root", (p.argument(), degree))
    if name == "sqrt" and p.peek().kind == "num":
        return Call("sqrt", (_repeating(p, p.take().text),))
    if p.op("_"):
        p.take()
        base = p.argument()
    if p.op("^"):
        p.take()
        exponent = p.exponent()
    if p.op("(", "["):
        p.take()
        args: tuple[Node, ...] = tuple(p.items())
        if not p.op(")", "]"):
            raise Unreadable("a function's bracket is not closed")
        p.take()
    elif p.op("{"):
        args = (p.argument(),)
    else:
        args = (_bare_argument(p),)
    if name == "log" and len(args) == 2:  # log(x, base)
        base = args[1]
        args = args[:1]
    if base is not None:
        if name != "log" or len(args) != 1:
            raise Unreadable(f"a subscript on {name}")
        args = (*args, base)
    call = Call(name, args)
    if exponent is None:
        return call
    if name in ("sin", "cos", "tan") and exponent == Op("neg", (Num(Fraction(1), None, 1),)):
        return Call(f"arc{name}", args)
    return Op("^", (call, exponent))


def _bare_argument(p: Parser) -> Node:
    r"""``\sin 2x``: factors up to the next function, sign or operator."""
    node = p.power()
    while p.starts_factor() and p.peek().kind != "fn" and not p.op("(", "["):
        node = p.juxtapose(node)
    if p.op("/") and p.peek().kind == "op" and p.peek(1).kind == "num" and isinstance(node, Sym):
        p.take()  # sin pi/2
        return Op("/", (node, p.power()))
    return node


def _command(p: Parser, name: str) -> Node:
    if name == "frac":
        top = p.argument()
        return Op("/", (top, p.argument()))
    if name == "binom":
        top = p.argument()
        return Call("binomial", (top, p.argument()))
    if name in ("sum", "prod"):
        return _big(p, name)
    if name == "begin":
        return _matrix(p)
    if name == "overline":
        return Call("overline", (p.argument(),))
    raise Unreadable(f"\\{name} out of place")


def _big(p: Parser, op: str) -> Node:
    low: Node | None = None
    high: Node | None = None
    for _ in range(2):
        if p.op("_"):
            p.take()
            low = p.argument()
        elif p.op("^"):
            p.take()
            high = p.argument()
    if not (isinstance(low, Rel) and low.ops == ("=",) and isinstance(low.items[0], Sym)) or high is None:
        raise Unreadable(f"{op} without plain bounds")
    return Big(op, low.items[0].name, low.items[1], high, p.product())


def _matrix(p: Parser) -> Node:
    kind = _environment(p)
    if kind not in _MATRIX_KINDS:
        raise Unreadable(f"environment {kind}")
    if kind == "array" and p.op("{"):
        while not p.op("}"):
            p.take()
        p.take()
    rows: list[tuple[Node, ...]] = []
    row: list[Node] = []
    while True:
        if p.peek().text == "end" and p.peek().kind == "cmd":
            break
        if p.op("\\\\"):
            p.take()
            rows.append(tuple(row))
            row = []
        elif p.op("&"):
            p.take()
        else:
            row.append(p.sum())
    if row:
        rows.append(tuple(row))
    p.take()
    if _environment(p) != kind or not rows or len({len(r) for r in rows}) != 1:
        raise Unreadable("a ragged matrix")
    return Matrix(tuple(rows))


def _environment(p: Parser) -> str:
    p.expect("{")
    name = ""
    while not p.op("}"):
        name += p.take().text
    p.take()
    return name


def _bracket(p: Parser, text: str) -> Node:
    if text == "dots":
        return Dots()
    if text == "{" and not p.op("}"):  # a group, or a set written without backslashes
        return _set(p, "}")
    if text in ("{", "\\{"):
        return _set(p, "}" if text == "{" else "\\}")
    if text == "|":
        p.bars += 1
        inner = p.sum()
        p.bars -= 1
        p.expect("|")
        return Call("abs", (inner,))
    if text in ("lfloor", "lceil"):
        inner = p.sum()
        p.expect("r" + text[1:])
        return Call("floor" if text == "lfloor" else "ceil", (inner,))
    if text in CLOSERS:
        outside = p.bars, p.reversed
        p.bars, p.reversed = 0, text == "]"
        items = p.items()
        p.bars, p.reversed = outside
        closer = p.take()
        if closer.kind != "op" or closer.text not in CLOSERS[text]:
            raise Unreadable(f"{text!r} is closed by {closer.text!r}")
        if len(items) == 1 and text in "([" and {"(": ")", "[": "]"}[text] == closer.text:
            return items[0]
        # ]0, 1[ is the other way to write the open interval (0, 1).
        left = "(" if text == "]" else text
        right = ")" if closer.text == "[" else closer.text
        return Seq("tuple", tuple(items), left, right)
    raise Unreadable(f"{text!r} out of place")


def _set(p: Parser, closer: str) -> Node:
    if p.op(closer):
        p.take()
        return Sym("emptyset")
    p.bars += 1  # in {x | x > 3} the bar is no absolute value
    items = p.items()
    p.bars -= 1
    if p.op("|", ":") and len(items) == 1:  # set builder: the condition is the set
        p.take()
        condition = p.items()
        p.expect(closer)
        return condition[0] if len(condition) == 1 else Seq("list", tuple(condition))
    p.expect(closer)
    if closer == "}" and len(items) == 1:
        return items[0]
    return Seq("set", tuple(items), "{", "}")
