"""Answer text to a tree: answers in words, in a base and times of day by form, everything else by the grammar."""

from __future__ import annotations

import re
from fractions import Fraction

from real_runs.grading.grammar import Parser
from real_runs.grading.lexer import Token, join_thousands, tidy, tokenize
from real_runs.grading.nodes import Based, Node, Num, Ratio, Sym, Unreadable, Words

_BASE_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_BASED = re.compile(rf"^\(?([0-9A-Fa-f]+)\)?_\{{?\s*(?:\\text\{{)?(\d{{1,2}}|{'|'.join(_BASE_WORDS)})\}}*$")
_CLOCK = re.compile(r"^(\d{1,2}):(\d{2})(?:\s*(?:\\text\{\s*)?([ap])\.?\s*m\.?\}?)?$", re.IGNORECASE)
_PROSE = re.compile(r"^[A-Za-z][A-Za-z'\- ]*$")


def parse_answer(text: str, *, symbols: frozenset[str] | None = None) -> Node:
    """Read one answer; ``symbols`` are the gold's variables when it is a prediction.

    Raises
    ------
    Unreadable
        Not in the grammar.
    TooBig
        Too long or too deep to read.
    """
    text = tidy(text)
    if not text:
        raise Unreadable("empty")
    based = _BASED.match(text)
    if based:
        base = based.group(2)
        return Based(based.group(1).upper(), _BASE_WORDS.get(base) or int(base))
    clock = _CLOCK.match(text)
    if clock:
        half = (clock.group(3) or "").lower()
        parts = tuple(Num(Fraction(int(clock.group(i)))) for i in (1, 2))
        return Ratio(parts, f"{int(clock.group(1))}:{clock.group(2)}{half}")
    tokens = tokenize(join_thousands(text), symbols=symbols)
    words = _as_words(text, tokens)
    if words is not None:
        return words
    return Parser(tokens).answer()


def _as_words(text: str, tokens: list[Token]) -> Words | Sym | None:
    """Answers in words: nothing but letters, with at least one real word or a run of capitals."""
    if not tokens:
        raise Unreadable("empty")
    kinds = {t.kind for t in tokens}
    plain = re.sub(r"\\[a-z]+\*?\{([^{}]*)\}", r"\1", text).strip()
    prose = all(t.kind in ("word", "unit", "name") or t.text == "," for t in tokens)
    if prose and "word" in kinds:
        words = _plain_words(plain)
        return Sym("Reals") if words in ("all real numbers", "all reals", "real numbers") else Words(words)
    if kinds == {"name"} and _PROSE.match(plain) and len(plain) > 1 and plain.isupper():
        return Words(_plain_words(plain))
    if kinds == {"unit"}:
        return Words(_plain_words(plain))
    return None


def _plain_words(text: str) -> str:
    text = re.sub(r"[^0-9A-Za-z]+", " ", text).strip().lower()
    return re.sub(r"^(?:the|a|an) ", "", text)
