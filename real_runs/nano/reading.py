"""Reading what a policy wrote: problems back from their prompts, lines and answers out of completions.

A policy may say anything, so nothing here raises on a completion: what is not a line is a wrong line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from race.errors import InvalidInput
from real_runs.nano.alphabet import ANSWER, DIGITS, KINDS, LABELS
from real_runs.nano.arithmetic import RESULT

_PROMPT = re.compile(rf"{LABELS[0]}([0-9])((?:[{LABELS[1:]}][{re.escape(KINDS)}][0-9{LABELS}])+)=")
_LINE = re.compile(rf"[{LABELS}][0-9][{re.escape(KINDS)}][0-9]=([0-9])")
# A label opens a line; whatever stands before the first label is a line of its own (and a wrong one).
_LINES = re.compile(rf"[{LABELS}][^{LABELS}]*|^[^{LABELS}]+")


@dataclass(frozen=True)
class Chain:
    """One problem: a starting digit, and per step its kind and operand (a digit or a label)."""

    start: int
    steps: tuple[tuple[str, str], ...]

    def line(self, index: int, values: list[int | None]) -> str | None:
        """The correct line of step ``index`` given the values written so far (``values[0]`` is the start).

        ``None`` when it needs a value that was never written.
        """
        kind, operand = self.steps[index]
        before = values[index]
        resolved = int(operand) if operand in DIGITS else values[LABELS.index(operand)]
        if before is None or resolved is None:
            return None
        result = RESULT[KINDS.index(kind), before, resolved]
        return f"{LABELS[index + 1]}{before}{kind}{resolved}={result}"

    def answer(self) -> int:
        """The true final value."""
        values: list[int | None] = [self.start]
        for index in range(len(self.steps)):
            line = self.line(index, values)
            assert line is not None  # every earlier value is there
            values.append(int(line[-1]))
        return int(values[-1] or 0)


@lru_cache(maxsize=65536)
def read_prompt(prompt: str) -> Chain:
    """The problem a prompt states; anything else is `InvalidInput`."""
    match = _PROMPT.fullmatch(prompt)
    body = match[2] if match else ""
    labels, operands = body[0::3], body[2::3]
    # An operand letter must name an earlier line, else there is no value to look up.
    if match is None or labels != LABELS[1 : len(labels) + 1] or any(
        operand in LABELS and LABELS.index(operand) > index for index, operand in enumerate(operands)
    ):
        raise InvalidInput(f"prompt: found {prompt!r}; allowed are chains such as A4B-3C*8D+B=")
    return Chain(int(match[1]), tuple(zip(body[1::3], operands, strict=True)))


@dataclass(frozen=True)
class Solution:
    """What a completion says.

    Attributes
    ----------
    lines
        Pieces before the answer mark, each opened by a label.
    answer
        The one digit after the answer mark; ``None`` when there is no mark or anything else follows it.
    """

    lines: tuple[str, ...]
    answer: int | None

    def line_ends(self) -> Iterator[int]:
        """Index in the text of each line's last character."""
        end = -1
        for line in self.lines:
            end += len(line)
            yield end


def read_solution(text: str) -> Solution:
    """Take a completion's text apart."""
    body, _, tail = text.partition(ANSWER)
    answer = int(tail) if len(tail) == 1 and tail in DIGITS else None
    return Solution(tuple(_LINES.findall(body)), answer)


def due_lines(chain: Chain, solution: Solution) -> tuple[str | None, ...]:
    """For each line that was written, the correct one there given the values written before it.

    ``None`` where no step is due any more, or the step needs a value that was never legibly written.
    """
    values: list[int | None] = [chain.start]
    due = []
    for index, line in enumerate(solution.lines):
        due.append(chain.line(index, values) if index < len(chain.steps) else None)
        written = _LINE.fullmatch(line)
        values.append(int(written[1]) if written else None)
    return tuple(due)


def correct_lines(chain: Chain, solution: Solution) -> tuple[bool, ...]:
    """For each line, whether it is exactly the step due there, given the values written before it.

    A slip makes one line wrong; lines that carry the wrong value on correctly are right.
    """
    return tuple(line == due for line, due in zip(solution.lines, due_lines(chain, solution), strict=True))


def due_tokens(chain: Chain, solution: Solution) -> list[str | None]:
    """For each character of a solution, the one that a careful solver would write there; ``None`` where nothing is due.

    Given all that was written before it, slips included: a result follows from its line as that stands, and the
    answer is the last line's result. So a solution is flawless exactly if every character is the due one.
    """
    found: list[str | None] = []
    last: str | None = str(chain.start)
    for line, due in zip(solution.lines, due_lines(chain, solution), strict=True):
        tokens: list[str | None] = [*(due or "")[: len(line)]]
        tokens += [None] * (len(line) - len(tokens))
        written = _LINE.fullmatch(line)
        if written and due is not None:
            tokens[5] = str(RESULT[KINDS.index(line[2]), int(line[1]), int(line[3])])
        last = written[1] if written else None
        found += tokens
    if solution.answer is not None:
        at = len(solution.lines)
        found += [ANSWER if at >= len(chain.steps) else LABELS[at + 1], last]
    return found


def well_formed(chain: Chain, solution: Solution) -> bool:
    """Whether it has one line per step, labelled in order, each of the right shape, and then an answer."""
    return (
        solution.answer is not None
        and [line[0] for line in solution.lines] == list(LABELS[1 : len(chain.steps) + 1])
        and all(_LINE.fullmatch(line) for line in solution.lines)
    )
