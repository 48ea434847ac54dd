"""Chain arithmetic modulo 10: the problems of the nano ladder and their careful solutions.

A problem of level k starts from a digit and applies k steps to it, each of one of six kinds:

    + - *    modulo 10          > <    the larger, the smaller          |    distance |a - b|

An operand is a digit or a letter that stands for an earlier value. ``A4B-3C*8D+B=`` reads: start from 4, subtract
3, multiply by 8, add what B came to. The careful solution writes one line per step (label, running value, kind,
operand, ``=``, result) and then the answer: ``B4-3=1C1*8=8D8+1=9#9$``. The labels turn finding an operand into
copying what followed the same letter before, which two attention layers can do; a letter operand needs one hop
more, which is what the deeper rungs of the ladder are better at.

Notation
    n  problems in a batch      k  steps of each      start (n,)      kinds, operands, values (n, k)
    an operand below 10 is that digit; 10 + j is the j-th running value (j = 0: the start)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from real_runs.nano.alphabet import ANSWER, DIGITS, END_OF_PROMPT, EOS, KINDS, LABELS, TOKEN_OF

IntArray = npt.NDArray[np.int64]

MAX_STEPS = len(LABELS) - 1
LINE_TOKENS = 6
HELDOUT_SHARE = 1 / 8
REFERENCE_SHARE = 0.3

_A, _B = np.meshgrid(np.arange(10), np.arange(10), indexing="ij")
# RESULT[kind, a, b], in the order of KINDS.
RESULT: IntArray = np.stack(
    [(_A + _B) % 10, (_A - _B) % 10, (_A * _B) % 10, np.maximum(_A, _B), np.minimum(_A, _B), np.abs(_A - _B)]
).astype(np.int64)

_OPERANDS = DIGITS + LABELS
_KIND_TOKEN = np.array([TOKEN_OF[c] for c in KINDS])
_LABEL_TOKEN = np.array([TOKEN_OF[c] for c in LABELS])
_DIGIT_TOKEN = np.array([TOKEN_OF[c] for c in DIGITS])
_OPERAND_TOKEN = np.array([TOKEN_OF[c] for c in _OPERANDS])


@dataclass(frozen=True)
class Chains:
    """``n`` problems of one level, as arrays."""

    start: IntArray
    kinds: IntArray
    operands: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, index: slice | npt.NDArray[np.bool_]) -> Chains:
        return Chains(self.start[index], self.kinds[index], self.operands[index])

    @property
    def steps(self) -> int:
        """k."""
        return int(self.kinds.shape[1])

    def prompt_tokens(self) -> IntArray:
        """Token ids of the prompts, shape (n, 3 k + 3)."""
        n, k = self.kinds.shape
        labels = np.broadcast_to(_LABEL_TOKEN[1 : k + 1], (n, k))
        steps = np.stack([labels, _KIND_TOKEN[self.kinds], _OPERAND_TOKEN[self.operands]], axis=2)
        head = np.stack([np.full(n, _LABEL_TOKEN[0]), _DIGIT_TOKEN[self.start]], axis=1)
        tail = np.full((n, 1), TOKEN_OF[END_OF_PROMPT])
        return np.concatenate([head, steps.reshape(n, 3 * k), tail], axis=1)

    def prompts(self) -> list[str]:
        """The prompts as text."""
        return [
            f"{LABELS[0]}{start}"
            + "".join(
                f"{label}{KINDS[kind]}{_OPERANDS[operand]}"
                for label, kind, operand in zip(LABELS[1:], kinds, operands, strict=False)
            )
            + END_OF_PROMPT
            for start, kinds, operands in zip(
                self.start.tolist(), self.kinds.tolist(), self.operands.tolist(), strict=True
            )
        ]


@dataclass(frozen=True)
class Working:
    """What somebody writes down while solving: each step's running value, resolved operand and result.

    All of shape (n, k).
    """

    before: IntArray
    operands: IntArray
    results: IntArray


def work_out(chains: Chains, slips: IntArray | None = None) -> Working:
    """Solve ``chains``, adding ``slips`` (n, k) to the results; a slip is carried into all later steps."""
    n, k = chains.kinds.shape
    values = np.empty((n, k + 1), dtype=np.int64)
    values[:, 0] = chains.start
    operands = np.empty((n, k), dtype=np.int64)
    rows = np.arange(n)
    for i in range(k):
        raw = chains.operands[:, i]
        operands[:, i] = np.where(raw < 10, raw, values[rows, np.clip(raw - 10, 0, i)])
        values[:, i + 1] = RESULT[chains.kinds[:, i], values[:, i], operands[:, i]]
        if slips is not None:
            values[:, i + 1] = (values[:, i + 1] + slips[:, i]) % 10
    return Working(values[:, :-1], operands, values[:, 1:])


def draw_chains(rng: np.random.Generator, count: int, steps: int) -> Chains:
    """``count`` problems of level ``steps``, from the distribution that training and held-out share."""
    operands = rng.integers(10, size=(count, steps))
    for i in range(1, steps):
        # Not the running value itself (j = i): `x - x` and its like would be no arithmetic.
        refers = rng.random(count) < REFERENCE_SHARE
        operands[:, i] = np.where(refers, 10 + rng.integers(i, size=count), operands[:, i])
    return Chains(rng.integers(10, size=count), rng.integers(len(KINDS), size=(count, steps)), operands)


def is_heldout(prompt: str) -> bool:
    """Whether a problem belongs to the held-out eighth.

    Decided by a cryptographic hash of the prompt: a simpler residue of the operands would tell something about
    the answer, such as its parity.
    """
    digest = hashlib.sha256(prompt.encode()).digest()
    return int.from_bytes(digest[:8], "big") < HELDOUT_SHARE * 2**64


def draw_split(rng: np.random.Generator, count: int, steps: int, *, heldout: bool) -> Chains:
    """``count`` problems of level ``steps`` from one side of the split."""
    share = HELDOUT_SHARE if heldout else 1 - HELDOUT_SHARE
    parts: list[Chains] = []
    missing = count
    while missing > 0:
        # A little more than the other side takes away, so one round nearly always suffices.
        drawn = draw_chains(rng, int(missing / share * 1.1) + 8, steps)
        kept = drawn[np.array([is_heldout(p) == heldout for p in drawn.prompts()])][:missing]
        parts.append(kept)
        missing -= len(kept)
    return Chains(
        np.concatenate([p.start for p in parts]),
        np.concatenate([p.kinds for p in parts]),
        np.concatenate([p.operands for p in parts]),
    )


def draw_balanced(rng: np.random.Generator, steps: int, *, heldout: bool) -> Chains:
    """One problem of level ``steps`` from one side of the split, every answer equally likely.

    As chains come, 0 is the answer of one in five, so guessing it would pay as well as an untrained policy's work,
    and policies do find that out. Here a guess is right one time in ten, whatever is guessed.
    """
    answer = rng.integers(10)
    while True:
        drawn = draw_chains(rng, 32, steps)
        fits = drawn[work_out(drawn).results[:, -1] == answer]
        for row, prompt in enumerate(fits.prompts()):
            if is_heldout(prompt) == heldout:
                return fits[row : row + 1]


def solution_tokens(chains: Chains, working: Working) -> IntArray:
    """Token ids of solutions that show ``working`` and answer with its last result, shape (n, 6 k + 3)."""
    n, k = chains.kinds.shape
    lines = np.stack(
        [
            np.broadcast_to(_LABEL_TOKEN[1 : k + 1], (n, k)),
            _DIGIT_TOKEN[working.before],
            _KIND_TOKEN[chains.kinds],
            _DIGIT_TOKEN[working.operands],
            np.full((n, k), TOKEN_OF["="]),
            _DIGIT_TOKEN[working.results],
        ],
        axis=2,
    ).reshape(n, LINE_TOKENS * k)
    return np.concatenate([lines, answer_tokens(working.results[:, -1])], axis=1)


def answer_tokens(answers: IntArray) -> IntArray:
    """Token ids of ``#answer$``, shape (n, 3)."""
    n = len(answers)
    return np.stack([np.full(n, TOKEN_OF[ANSWER]), _DIGIT_TOKEN[answers], np.full(n, TOKEN_OF[EOS])], axis=1)
