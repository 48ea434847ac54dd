r"""Answer text, LaTeX or plain, to one token stream.

One lexer reads both, because policies mix them (``\frac{pi}{2}``, ``sqrt(2)/2``, ``3 \text{ cm}``). It undoes
spelling only: spacing, fonts, sizes, unicode, thousand separators, doubled backslashes. Meaning is the parser's.

A token is ``(kind, text, spaced)``; ``spaced`` says that white space came before it. Kinds: ``num``, ``name``
(variable or constant), ``fn`` (named function), ``cmd`` (LaTeX structure such as ``frac``), ``word``, ``unit``,
``op`` (everything else, one symbol each).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from real_runs.grading.nodes import TooBig, Unreadable
from real_runs.grading.vocabulary import (
    COMMANDS,
    CONSTANT_WORDS,
    DAY_HALVES,
    FUNCTIONS,
    GREEK,
    OPERATORS,
    SCALES,
    SPELLINGS,
    UNIT_SYMBOLS,
    UNITS,
)

MAX_ANSWER_CHARS = 4_000
MAX_TOKENS = 1_500


class Token(NamedTuple):
    """See the module docstring."""

    kind: str
    text: str
    spaced: bool = False


_TEXT_COMMANDS = r"text|textbf|textit|textrm|textnormal|texttt|mbox|hbox|mathrm|rm|operatorname\*?|mathit|mathsf"
_TEXT = re.compile(rf"\\(?:{_TEXT_COMMANDS})\s*\{{([^{{}}]*)\}}")
_FONT = re.compile(r"\\(?:mathbf|boldsymbol|bm|mathcal|mathfrak|vec|hat|tilde|bar|underline|displaystyle|textstyle)\b")
_SIZE = re.compile(r"\\(?:left|right|[bB]ig{1,2}[lrm]?|limits|nolimits|mathopen|mathclose|mathrel)(?![A-Za-z])")
_SPACE = re.compile(r"(?<!\\)\\[,;:!> ]|\\(?:quad|qquad|thinspace|enspace|phantom\{[^{}]*\}|hspace\*?\{[^{}]*\})|~")
_THIN = re.compile(r"(?<=\d)\s*(?:\{,\}|\\[,!]\s*,?|,\s*\\[,!;:]|,\\ )\s*(?=\d{3}(?!\d))")
_THOUSANDS = re.compile(r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,]*\d)")
_SPACED_THOUSANDS = re.compile(r"(?<![\d,.] )(?<![\d,.])(\d{1,3}(?: \d{3})+)(?![\d,]*\d)")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}%$])")
_DOTTED_HALF = re.compile(r"\b([aApP])\.\s?[mM]\.?(?![a-zA-Z])")
_NUMBER = re.compile(r"(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d{1,4}(?![\d.]))?")
_RUN = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)


def tidy(text: str) -> str:
    """Undo spelling differences that carry no meaning; the result is still LaTeX or plain text."""
    if len(text) > MAX_ANSWER_CHARS:
        raise TooBig(f"answer longer than {MAX_ANSWER_CHARS} characters")
    for old, new in SPELLINGS:
        if old in text:
            text = text.replace(old, new)
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    text = text.strip().strip("`").replace("**", "^" if _is_power(text) else "")
    if "\\" in text:
        text = _THIN.sub("", text)
        text = _SIZE.sub(" ", text)
        text = _SPACE.sub(" ", text)
        text = _FONT.sub(" ", text)
        text = text.replace("\\$", " \\currency ")
    text = text.replace("$", " \\currency " if _is_money(text) else " ")
    text = text.strip()
    while text and text[-1] in ".,;:" and not text.endswith("\\ldots") and not text.endswith("..."):
        text = text[:-1].rstrip()
    return text


def _is_power(text: str) -> bool:
    """``x**2`` is a power; ``**73**`` is markdown."""
    return re.search(r"[\w)\]}]\s*\*\*\s*[-\w({]", text) is not None and not text.startswith("**")


def _is_money(text: str) -> bool:
    """One dollar sign before a number is money; a pair of them is mathematics."""
    return text.count("$") == 1 and re.search(r"\$\s*-?[\d.]", text) is not None


def join_thousands(text: str) -> str:
    """``1,234`` to ``1234``, outside brackets only: inside them a comma separates coordinates."""
    if "," not in text and " " not in text:
        return text
    out, depth, start = [], 0, 0
    for match in re.finditer(r"\\[{}]|[()\[\]]", text):
        if depth == 0:
            out.append(_join(text[start : match.start()]))
            start = match.start()
        depth += 1 if match.group() in ("(", "[", "\\{") else -1
        if depth <= 0:
            out.append(text[start : match.start()])
            start, depth = match.start(), 0
    rest = text[start:]
    out.append(_join(rest) if depth == 0 else rest)
    return "".join(out)


def _join(text: str) -> str:
    text = _THOUSANDS.sub(lambda m: m.group(1).replace(",", ""), text)
    return _SPACED_THOUSANDS.sub(lambda m: m.group(1).replace(" ", ""), text)


def tokenize(text: str, *, symbols: frozenset[str] | None = None) -> list[Token]:
    """Tokens of a tidied answer.

    Parameters
    ----------
    symbols
        Variables of the gold. A run of letters such as ``xy`` in a prediction is a product when they are all
        variables there, and a noun (``5 men``) otherwise.

    Raises
    ------
    Unreadable
        A character or LaTeX command that the grammar does not know.
    TooBig
        More tokens than an answer can need.
    """
    tokens: list[Token] = []
    _lex(text, tokens, symbols, in_text=False)
    if len(tokens) > MAX_TOKENS:
        raise TooBig(f"answer longer than {MAX_TOKENS} tokens")
    return tokens


def _lex(text: str, out: list[Token], symbols: frozenset[str] | None, *, in_text: bool) -> None:
    at, end, spaced = 0, len(text), False
    while at < end:
        char = text[at]
        if char.isspace():
            at, spaced = at + 1, True
            continue
        if char == "\\":
            boxed_text = _TEXT.match(text, at)
            if boxed_text:
                _lex_text(boxed_text.group(1), out, symbols, spaced)
                at, spaced = boxed_text.end(), False
                continue
            match = _COMMAND.match(text, at)
            if match is None:
                raise Unreadable("a lone backslash")
            out.append(_command(match.group(1), spaced))
            at = match.end()
        elif char.isdigit() or (char == "." and at + 1 < end and text[at + 1].isdigit()):
            match = _NUMBER.match(text, at)
            if match is None:  # a digit of another script
                raise Unreadable(f"character {char!r}")
            out.append(Token("num", match.group(), spaced))
            at = match.end()
        elif "a" <= char.lower() <= "z":
            match = _RUN.match(text, at)
            assert match is not None
            after_number = bool(out) and (out[-1].kind == "num" or out[-1].text in ")}")
            following = text[match.end() : match.end() + 20]
            last = not following.lstrip()[:1].isalnum() and following[:1] not in ("_", "(")
            rate = len(out) > 1 and out[-1].text == "/" and out[-2].kind == "unit"
            if rate and match.group() in UNIT_SYMBOLS:  # km/h: what follows a unit and a stroke is one too
                out.append(Token("unit", UNIT_SYMBOLS[match.group()], spaced))
            else:
                out.extend(_letters(match.group(), spaced, after_number, symbols, in_text, last))
            at = match.end()
        elif text.startswith("...", at):
            out.append(Token("op", "dots", spaced))
            at += 3
        else:
            for operator in OPERATORS:
                if text.startswith(operator, at):
                    out.append(Token("op", OPERATORS[operator], spaced))
                    at += len(operator)
                    break
            else:
                raise Unreadable(f"character {char!r}")
        spaced = False


def _lex_text(content: str, out: list[Token], symbols: frozenset[str] | None, spaced: bool) -> None:
    r"""The inside of ``\text{...}`` and its relatives."""
    stripped = content.strip()
    if not stripped:
        return
    single_unit = stripped in UNIT_SYMBOLS and bool(out) and (out[-1].kind in ("num", "unit") or out[-1].text in ")}/^")
    if single_unit and stripped not in ("e", "i"):
        out.append(Token("unit", UNIT_SYMBOLS[stripped], True))
        return
    if stripped in FUNCTIONS:
        out.append(Token("fn", FUNCTIONS[stripped], spaced))
        return
    before = len(out)
    content = _DOTTED_HALF.sub(r"\1m", content)
    try:
        _lex(content, out, symbols, in_text=True)
    except Unreadable:  # prose with punctuation of its own
        del out[before:]
        out.append(Token("word", " ".join(stripped.split()), True))
        return
    if len(out) > before:
        out[before] = out[before]._replace(spaced=spaced or content[0].isspace() or out[before].spaced)


def _command(name: str, spaced: bool) -> Token:
    if name in FUNCTIONS:
        return Token("fn", FUNCTIONS[name], spaced)
    if name in GREEK:
        return Token("name", GREEK[name], spaced)
    if name in COMMANDS:
        kind, text = COMMANDS[name]
        return Token(kind, text, spaced)
    raise Unreadable(f"command \\{name}")


def _letters(
    run: str, spaced: bool, after_number: bool, symbols: frozenset[str] | None, in_text: bool, last: bool
) -> list[Token]:
    """A run of letters: a function, a constant, a unit, a product of variables, or a word."""
    lower = run.lower()
    if lower in ("and", "or"):
        return [Token("op", ",", spaced)]
    if lower in DAY_HALVES and after_number and last and (spaced or in_text):
        return [Token("unit", DAY_HALVES[lower], spaced)]
    if len(run) == 1:
        if after_number and spaced and run in UNIT_SYMBOLS and symbols is not None and run not in symbols and last:
            return [Token("unit", UNIT_SYMBOLS[run], spaced)]
        return [Token("name", run, spaced)]
    if lower in ("st", "nd", "rd", "th") and after_number and not spaced:  # 3rd
        return []
    if lower in SCALES:
        return [Token("word", lower, spaced)]
    if run in FUNCTIONS:
        return [Token("fn", FUNCTIONS[run], spaced)]
    if run in CONSTANT_WORDS or lower in ("pi", "infinity"):
        return [Token("name", CONSTANT_WORDS.get(run) or CONSTANT_WORDS[lower], spaced)]
    if lower == "in" and after_number and spaced and symbols is not None:
        return [Token("unit", "inch", spaced)]
    if lower in UNITS:
        return [Token("unit", UNITS[lower], spaced)]
    if in_text:
        return [Token("word", run, spaced)]
    split = _split(run)
    letters = {t.text for t in split if len(t.text) == 1 and t.kind == "name"}
    if symbols is None:
        product = len(run) <= 3 if not spaced else len(split) <= 2
    else:
        product = letters <= (symbols | {"e", "i"}) if letters else True
        # A prediction may use variables the gold does not; only a clear product is read as one.
        product = product or (len(split) <= 2 and not spaced and after_number)
    if product:
        return [split[0]._replace(spaced=spaced), *split[1:]]
    return [Token("word", run, spaced)]


def _split(run: str) -> list[Token]:
    """``npi`` to n, pi; ``xsin`` to x, sin; anything else to single letters."""
    out: list[Token] = []
    at = 0
    while at < len(run):
        for length in range(min(6, len(run) - at), 1, -1):
            piece = run[at : at + length]
            if piece in FUNCTIONS and length > 2:
                out.append(Token("fn", FUNCTIONS[piece]))
                break
            if piece in ("pi", "sqrt"):
                out.append(Token("name", "pi"))
                break
        else:
            length = 1
            out.append(Token("name", run[at]))
        at += length
    return out
