r"""Where in a text its answer is.

In order of trust: the last ``\boxed{}`` (neighbours joined by "and", "or" or commas are one answer), ``#### ``, a
phrase such as "the answer is", the last formula, and at the end plain text: the whole of it when short, what follows
the last "=" or "is", the last number. The first four are what the writer marked as the answer, so they are final;
plain readings are tried until one parses.

Every scan here is linear in the text: it runs on whatever a policy writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_TEXT_CHARS = 400_000
_PLAIN_CHARS = 300

_BOX = re.compile(r"\\(?:f?boxed|fbox)(?![a-zA-Z])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_JOINER = re.compile(r"[\s$.]*(?:,?\s*(?:\\text\s*\{\s*(?:and|or)\s*\}|and|or)|,|;|&)?[\s$.]*\Z", re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_PHRASE = re.compile(
    r"\b(?:answer|result|solution|value)\b[^\n.:=$\\]{0,40}?(?:\bis\b|\bare\b|\bwould be\b|\bshould be\b|[:=])[ \t:=]*",
    re.IGNORECASE,
)
_DOLLARS = re.compile(r"\$\$([^$]+)\$\$|\$([^$\n]+)\$")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_NUMBER = re.compile(
    r"-?(?:\$\s*)?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:\s*/\s*\d+(?![\d.]))?\s?\\?%?"
)


@dataclass(frozen=True)
class Extracted:
    """Candidate answers, best first; ``marked`` when the writer said that this is the answer."""

    candidates: tuple[str, ...]
    marked: bool


def extract(text: str) -> Extracted:
    """Read the answer out of a completion; no candidates when there is none."""
    text = text[-MAX_TEXT_CHARS:]
    boxed = last_boxed(text)
    if boxed is not None:
        return Extracted((boxed,) if boxed.strip() else (), True)
    hashes = _HASHES.findall(text)
    if hashes and hashes[-1].strip():
        return Extracted((hashes[-1].strip(),), True)
    clean = _without_markdown(text)
    phrase = _after_phrase(clean)
    if phrase:
        formula = _first_formula(phrase)
        return Extracted((formula,), True) if formula else Extracted(tuple(_plain(phrase)), False)
    formula = _last_formula(clean)
    if formula:
        return Extracted((formula,), True)
    return Extracted(tuple(_plain(clean)), False)


def last_boxed(text: str) -> str | None:
    """Content of the last complete box, with the boxes that directly precede it; ``None`` without any."""
    starts = {m.start(): m.end() for m in _BOX.finditer(text)}
    if not starts:
        return None
    boxes = _closed_boxes(text, starts)
    if not boxes:
        return None
    group = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if group[0][0] - box[3] > 40 or not _JOINER.match(text[box[3] : group[0][0]]):
            break
        group.insert(0, box)
    parts = [unbox(text[start:end]) for _, start, end, _ in group]
    return ", ".join(dict.fromkeys(p.strip() for p in parts)) if len(parts) > 1 else parts[0]


def _closed_boxes(text: str, starts: dict[int, int]) -> list[tuple[int, int, int, int]]:
    """Outermost balanced boxes as (start of command, start and end of content, end of box), in one pass."""
    opens = {}  # position of a box's opening brace -> start of its command
    boxes = []
    for start, after in starts.items():
        rest = re.compile(r"\s*").match(text, after)
        brace = rest.end() if rest else after
        if text[brace : brace + 1] == "{":
            opens[brace] = start
        else:
            short = re.compile(r"\s*([^\s{}\\$])").match(text, after)  # \boxed 5
            if short:
                boxes.append((start, short.start(1), short.end(1), short.end()))
    stack: list[int] = []
    for match in _BRACE.finditer(text, min(starts)):
        if match.group() == "{":
            stack.append(match.start())
        elif match.group() == "}" and stack:
            brace = stack.pop()
            if brace in opens:
                boxes.append((opens[brace], brace + 1, match.start(), match.end()))
    boxes.sort()
    outer: list[tuple[int, int, int, int]] = []
    for box in boxes:
        if not outer or box[0] >= outer[-1][3]:
            outer.append(box)
    return outer


def unbox(content: str) -> str:
    r"""Drop boxes and dollar signs inside an answer: ``\boxed{\boxed{5}}``, ``\boxed{$x<3$}``."""
    content = _BOX.sub(" ", content)
    if content.count("$") % 2 == 0 and "\\$" not in content:
        content = content.replace("$", " ")
    return content


def _without_markdown(text: str) -> str:
    text = text.replace("__", "").replace("`", "")
    # ** around words is bold; between operands it is a power.
    return re.sub(r"\*\*(?=\S[^*\n]{0,300}?\*\*)|(?<=\S)\*\*(?=[\s.,;:!?]|$)|(?<![\w)])\*\*", "", text)


def _after_phrase(text: str) -> str | None:
    """What follows the last "answer is", up to the end of its sentence."""
    last = None
    for match in _PHRASE.finditer(text):
        last = match
    if last is None:
        return None
    rest = text[last.end() :].lstrip()
    line = rest.split("\n", 1)[0]
    if "\\[" in line and "\\]" not in line:
        line = rest[: rest.find("\\]") + 2]
    end = _SENTENCE_END.search(line)
    cut = line[: end.start()] if end else line
    return cut.strip() or None


def _first_formula(text: str) -> str | None:
    group = _formulas(text)
    return group[0] if group else None


def _last_formula(text: str) -> str | None:
    group = _formulas(text)
    return group[-1] if group else None


def _formulas(text: str) -> list[str]:
    """Formulas, those joined by "and", "or" or a comma as one."""
    out: list[str] = []
    end = -1
    for start, content, after in _spans(text):
        if out and start - end <= 8 and re.fullmatch(r"\s*(?:,|,?\s*(?:and|or))\s*", text[end:start]):
            out[-1] += ", " + content
        else:
            out.append(content)
        end = after
    return out


def _spans(text: str) -> list[tuple[int, str, int]]:
    """Start, content and end of everything between mathematical brackets, in order."""
    found = [(m.start(), (m.group(1) or m.group(2)).strip(), m.end()) for m in _DOLLARS.finditer(text)]
    for opening, closing in (("\\[", "\\]"), ("\\(", "\\)")):
        done = 0
        while (close := text.find(closing, done)) >= 0:
            start = text.rfind(opening, done, close)
            if start >= 0:
                found.append((start, text[start + 2 : close].strip(), close + 2))
            done = close + 2
    return sorted(span for span in found if span[1])


def _plain(text: str) -> list[str]:
    """Readings of text without any mark, most specific first."""
    stripped = text.strip()
    lines = [line.strip() for line in stripped[-4000:].splitlines() if line.strip()]
    if not lines:
        return []
    out: list[str] = []
    if len(lines) == 1 and len(stripped) <= _PLAIN_CHARS:
        out.append(stripped)
    last = lines[-1][-_PLAIN_CHARS:]
    out.append(last)
    sentences = [s for s in _SENTENCE_END.split(last) if s.strip()]
    if sentences:
        sentence = sentences[-1].strip()
        out.append(sentence)
        for mark in (" is ", " are ", "=", ":"):
            if mark in sentence:
                out.append(sentence.rsplit(mark, 1)[1].strip())
    numbers = _NUMBER.findall(stripped[-4000:])
    if numbers:
        out.append(numbers[-1].strip())
    return list(dict.fromkeys(x for x in out if x))
