"""Tokens to a tree: a recursive-descent grammar for answers.

    answer   := item ((',' | ';') item)*
    item     := [words ('=' | ':')] setexpr (relation setexpr)* [unit]
    setexpr  := sum (('cup' | 'cap' | 'setminus') sum)*
    sum      := product (('+' | '-' | 'pm' | 'mp') product)*
    product  := signed (('*' | '/')? signed)*
    signed   := ('-' | '+' | 'pm' | 'mp') signed | power
    power    := postfix ['^' exponent]
    postfix  := primary ('!' | '%' | degree | prime | '_' subscript)*

Juxtaposition multiplies, except a whole number before a proper fraction, which is a mixed number. Nesting is
bounded, so no answer can exhaust the stack.
"""

from __future__ import annotations

from fractions import Fraction

from real_runs.grading.lexer import Token
from real_runs.grading.literals import UNDEFINED, attach_unit, number, proper, times, unit_name
from real_runs.grading.nodes import Call, Node, Num, Op, Ratio, Rel, Seq, SetOp, Sym, TooBig, Unreadable
from real_runs.grading.primaries import function_of, primary
from real_runs.grading.vocabulary import SCALES

MAX_DEPTH = 60
_RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!=", "in", "to"})


class Parser:
    """One pass over the tokens; ``primaries`` reads the atoms."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # bars still open: the next one closes
        self.reversed = False  # inside ]a, b[ an opening bracket closes

    # token helpers

    def peek(self, ahead: int = 0) -> Token:
        """The token ``ahead`` places on, without taking it."""
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else Token("end", "")

    def op(self, *texts: str) -> bool:
        """Whether the next token is one of these symbols."""
        token = self.peek()
        return token.kind == "op" and token.text in texts

    def take(self) -> Token:
        """The next token."""
        token = self.peek()
        if token.kind == "end":
            raise Unreadable("ends too early")
        self.at += 1
        return token

    def expect(self, text: str) -> None:
        """Take a token that must be there."""
        token = self.take()
        if token.text != text:
            raise Unreadable(f"found {token.text!r}, expected {text!r}")

    # grammar

    def answer(self) -> Node:
        """The whole answer."""
        items = self.items()
        if self.peek().kind != "end":
            raise Unreadable(f"{self.peek().text!r} out of place")
        return items[0] if len(items) == 1 else Seq("list", tuple(items))

    def items(self) -> list[Node]:
        """Values separated by commas."""
        items = [self.item()]
        while self.op(",", ";"):
            self.take()
            if self.peek().kind == "end" or self.op(",", ";"):  # "21, 36, and 82"
                continue
            items.append(self.item())
        return items

    def item(self) -> Node:
        """One value or relation, with its unit."""
        self.skip_label()
        if self.op("="):  # "= 5", "≈ 3.14"
            self.take()
        unit = ""
        if self.peek().kind == "unit" and self.peek(1).kind in ("num", "op", "cmd"):  # $5
            unit = self.take().text
        first = self.set_expression()
        if self.op(":") and not self.bars:
            return self.ratio(first)
        ops, items = [], [first]
        while self.peek().kind == "op" and self.peek().text in _RELATIONS:
            ops.append(self.take().text)
            if self.peek().kind == "unit" and self.peek(1).kind in ("num", "op", "cmd"):
                unit = self.take().text
            items.append(self.set_expression())
        node = Rel(tuple(ops), tuple(items)) if ops else first
        return self.with_unit(node, unit)

    def skip_label(self) -> None:
        """``Area = 5`` and ``answer: 5``: words up to the sign."""
        ahead = 0
        while self.peek(ahead).kind in ("word", "name", "unit"):
            ahead += 1
        words = [self.peek(i).kind for i in range(ahead)]
        if "word" in words and self.peek(ahead).kind == "op" and self.peek(ahead).text in ("=", ":"):
            self.at += ahead + 1

    def with_unit(self, node: Node, unit: str) -> Node:
        """Attach what follows a value: a unit of measurement, or nouns, which carry no meaning here."""
        units, nouns = [unit] if unit else [], False
        while True:
            token = self.peek()
            if token.kind == "word" and token.text.lower() in SCALES:
                node = times(node, Num(Fraction(SCALES[self.take().text.lower()])))
            elif token.kind == "unit":
                units.append(self.take().text)
            elif token.kind == "word" or (nouns and token.kind == "name"):
                self.take()
                nouns = True
            elif units and self.op("^") and self.peek(1).kind == "num":
                self.take()
                units.append("^" + self.take().text)
            elif units and self.op("^") and self.peek(1).text == "{" and self.peek(2).kind == "num":
                self.at += 2
                units.append("^" + self.take().text)
                self.expect("}")
            elif units and self.op("/", "*") and self.peek(1).kind == "unit":
                units.append(self.take().text)
            else:
                break
        if not units and not nouns:
            return node
        return attach_unit(node, unit_name(units))

    def ratio(self, first: Node) -> Node:
        """``a : b : c``."""
        items = [first]
        while self.op(":"):
            self.take()
            items.append(self.set_expression())
        return Ratio(tuple(items))

    def set_expression(self) -> Node:
        """Unions, intersections and differences."""
        node = self.sum()
        while self.op("cup", "cap", "setminus") or self.plain_union():
            op = self.take().text.replace("U", "cup")
            right = self.sum()
            if isinstance(node, SetOp) and node.op == op and op != "setminus":
                node = SetOp(op, (*node.items, right))
            else:
                node = SetOp(op, (node, right))
        return node

    def plain_union(self) -> bool:
        """``(0, 1) U (2, 3)``."""
        if self.peek().text != "U" or self.at == 0:
            return False
        return self.tokens[self.at - 1].text in (")", "]") and self.peek(1).text in ("(", "[")

    def sum(self) -> Node:
        """Terms."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig(f"answer nested deeper than {MAX_DEPTH} levels")
        terms = [self.product()]
        while self.op("+", "-", "pm", "mp"):
            sign = self.take().text
            term = self.product()
            terms.append(term if sign == "+" else Op("neg" if sign == "-" else sign, (term,)))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Op("+", tuple(terms))

    def product(self) -> Node:
        """Factors, written or juxtaposed."""
        node = self.signed()
        while True:
            if self.op("*"):
                self.take()
                node = times(node, self.signed())
            elif self.op("/"):
                self.take()
                node = Op("/", (node, self.signed()))
            elif self.peek().kind == "cmd" and self.peek().text in ("pmod", "bmod"):
                self.take()
                node = Call("mod", (node, self.argument()))
            elif self.peek().kind == "fn" and self.peek().text == "choose":
                self.take()
                node = Call("binomial", (node, self.signed()))
            elif self.starts_factor():
                node = self.juxtapose(node)
            else:
                return node

    def starts_factor(self) -> bool:
        """Whether what follows multiplies without a sign."""
        token = self.peek()
        if token.kind in ("num", "name", "fn"):
            return token.text != "choose" and not self.plain_union()
        if token.kind == "cmd":
            return token.text in ("frac", "binom", "begin", "sum", "prod", "overline")
        if token.kind != "op":
            return False
        if token.text == "[" and self.reversed:
            return False
        opens = token.text in ("(", "[", "{", "<|", "lfloor", "lceil", "dots")
        return opens or (token.text == "|" and self.bars == 0)

    def juxtapose(self, left: Node) -> Node:
        """Multiply by what follows, or make a mixed number."""
        whole = isinstance(left, Num) and left.decimals is None
        if whole and self.peek().kind == "num":
            mixed = self.mixed_number(left)
            if mixed is None:
                raise Unreadable("two numbers side by side")
            return mixed
        called = function_of(self, left)
        if called is not None:
            return called
        right = self.power()
        if whole and isinstance(right, Op) and right.op == "/" and proper(right):
            return Op("+", (left, right))
        return times(left, right)

    def mixed_number(self, left: Node) -> Node | None:
        """``3 1/2``."""
        top, slash, bottom = self.peek(), self.peek(1), self.peek(2)
        if slash.text != "/" or bottom.kind != "num" or not top.spaced:
            return None
        fraction = Op("/", (number(top.text), number(bottom.text)))
        if not proper(fraction):
            return None
        self.at += 3
        return Op("+", (left, fraction))

    def signed(self) -> Node:
        """A factor with its sign."""
        if self.op("-", "+", "pm", "mp"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise TooBig(f"answer nested deeper than {MAX_DEPTH} levels")
            sign = self.take().text
            inner = self.signed()
            # -2x is -(2x) and -2^2 is -(2^2): the sign binds weaker than what follows.
            while self.starts_factor():
                inner = self.juxtapose(inner)
            self.depth -= 1
            return inner if sign == "+" else Op("neg" if sign == "-" else sign, (inner,))
        return self.power()

    def power(self) -> Node:
        """A base with its exponent."""
        base = self.postfix()
        if self.op("^"):
            self.take()
            braced = self.op("{") and self.peek(1).text in ("circ", "deg") and self.peek(2).text == "}"
            if self.op("circ", "deg") or braced:
                self.at += 3 if braced else 1
                return self.after_power(Op("deg", (base,)))
            return self.after_power(Op("^", (base, self.exponent())))
        return base

    def after_power(self, node: Node) -> Node:
        """Factorials and percent signs after an exponent."""
        while self.op("!", "%"):
            node = self.suffix(node)
        return node

    def suffix(self, node: Node) -> Node:
        """A factorial, a double factorial or a percent sign."""
        sign = self.take().text
        if sign == "!" and self.op("!") and not self.peek().spaced:
            self.take()
            return Call("factorial2", (node,))
        return Op(sign, (node,))

    def exponent(self) -> Node:
        """What stands after ``^``; right-associative."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig(f"answer nested deeper than {MAX_DEPTH} levels")
        if self.op("-", "+"):
            sign = self.take().text
            inner = self.exponent()
            node: Node = Op("neg", (inner,)) if sign == "-" else inner
        else:
            node = self.power()  # right-associative: 2^3^2 = 2^9
        self.depth -= 1
        return node

    def postfix(self) -> Node:
        """An atom with what follows it directly."""
        node = primary(self)
        while True:
            if self.op("!", "%"):
                node = self.suffix(node)
            elif self.op("deg"):
                self.take()
                node = Op("deg", (node,))
            elif self.op("'"):
                self.take()
                node = Call("prime", (node,))
            elif self.op("_") and isinstance(node, Sym):
                self.take()
                node = self.subscript(node)
            else:
                return node

    def subscript(self, base: Sym) -> Node:
        """A named or an indexed variable."""
        if self.peek().kind in ("word", "unit"):
            return Sym(f"{base.name}_{self.take().text}")
        if self.op("{") and self.peek(1).kind in ("word", "unit"):
            self.take()
            words = []
            while not self.op("}"):
                words.append(self.take().text)
            self.take()
            return Sym(f"{base.name}_{' '.join(words)}")
        index = self.argument()
        call = Call(f"{base.name}_", index.items if isinstance(index, Seq) else (index,))
        if base.name in UNDEFINED and self.op("("):
            return Call(f"{base.name}_()", (*call.args, *self.bracketed_arguments()))
        return call

    def argument(self) -> Node:
        """What a LaTeX command takes: a braced group, or one digit, letter or command."""
        if self.op("{"):
            self.take()
            items = self.items()
            self.expect("}")
            return items[0] if len(items) == 1 else Seq("list", tuple(items))
        token = self.peek()
        if token.kind == "num" and len(token.text) > 1:
            self.tokens[self.at] = Token("num", token.text[1:])
            return number(token.text[0])
        return self.power() if token.kind == "cmd" else self.postfix()

    def bracketed_arguments(self) -> tuple[Node, ...]:
        """``(a, b)`` after a function's name."""
        self.expect("(")
        items = self.items()
        self.expect(")")
        return tuple(items)
