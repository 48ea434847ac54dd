"""What the nano models are trained on before any reinforcement learning.

Policies read a mixture of three hands: *careful* (every step right), *sloppy* (each step may slip by one, at a rate
of the writer's own, and slips are carried on) and *hasty* (no steps, a guessed answer). A base that has read only
careful solutions has nothing left to elicit; one that has read this mixture does the right thing now and then,
and its most likely completion is a wrong one.

Reward models read the same hands and some clumsier ones, with every step labelled by the ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from real_runs.nano.alphabet import DIGITS, KINDS, LABELS, PAD_ID, TOKEN_OF, decode, encode
from real_runs.nano.arithmetic import (
    RESULT,
    Chains,
    IntArray,
    Working,
    answer_tokens,
    draw_split,
    solution_tokens,
    work_out,
)
from real_runs.nano.reading import correct_lines, due_tokens, read_prompt, read_solution

FloatArray = npt.NDArray[np.float32]

# Multiplication and distance slip more readily than the rest, in the order of KINDS: problems of one level then
# differ in difficulty, as real ones do.
SLIP_ODDS = np.array([0.8, 1.0, 1.25, 0.8, 0.8, 1.25])


@dataclass(frozen=True)
class Mixture:
    """Shares of the three hands (the rest is hasty), and the least slip rate of a sloppy writer (the most is 1)."""

    careful: float
    sloppy: float
    least_slip: float


CAREFUL = Mixture(1.0, 0.0, 1.0)
# What reward models read: careful below the first, sloppy below the second, and the rest misread the problem.
CAREFUL_SCORED, SLOPPY_SCORED = 0.3, 0.55


def solved(rng: np.random.Generator, count: int, steps: int, mixture: Mixture) -> tuple[IntArray, FloatArray]:
    """``count`` training problems of level ``steps``, each solved by a hand drawn from ``mixture``.

    Returns
    -------
    Token ids of prompt and completion (count, 9 k + 6), and 1 for each completion token that was written, 0 for
    filling after a short one (count, 6 k + 3).
    """
    chains = draw_split(rng, count, steps, heldout=False)
    hand = rng.random(count)
    slips = _slips(rng, chains, mixture.least_slip)
    slips[hand < mixture.careful] = 0
    completions = solution_tokens(chains, work_out(chains, slips))
    weights = np.ones(completions.shape, dtype=np.float32)
    hasty = hand >= mixture.careful + mixture.sloppy
    guesses = answer_tokens(rng.integers(10, size=count))
    completions[hasty] = PAD_ID
    completions[hasty, :3] = guesses[hasty]
    weights[hasty, 3:] = 0
    return np.concatenate([chains.prompt_tokens(), completions], axis=1), weights


def _slips(rng: np.random.Generator, chains: Chains, least: float) -> IntArray:
    """1 where a sloppy writer slips, shape (n, k); writers differ in how often they do."""
    count, steps = chains.kinds.shape
    rate = rng.uniform(least, 1.0, size=(count, 1))
    chance = 1 - (1 - rate) ** SLIP_ODDS[chains.kinds]
    slipped: IntArray = (rng.random((count, steps)) < chance).astype(np.int64)
    return slipped


@dataclass(frozen=True)
class Labelled:
    """Completions with a verdict on every step.

    Attributes
    ----------
    prompts, texts
        What they were made of.
    token_ids
        Prompt and completion, filled to one width, shape (n, width).
    labels
        1 or 0 at the last token of each step, -100 elsewhere, shape (n, width).
    due
        At every token of the completion the one that a careful solver would have written there, -100 where there is
        none, shape (n, width): what reward models learn from. From verdicts on steps alone they have to find out
        which of six characters was wrong, in ten times the updates, and stay shallow.
    right
        Whether the final answer is right, shape (n,).
    """

    prompts: Sequence[str]
    texts: Sequence[str]
    token_ids: IntArray
    labels: IntArray
    due: IntArray
    right: npt.NDArray[np.bool_]


def labelled(rng: np.random.Generator, count: int, steps: int, *, heldout: bool = False) -> Labelled:
    """``count`` completions of mixed quality to problems of level ``steps``, each step labelled.

    A line is correct if it is exactly the step due there, given the values written before it; the answer is
    correct if all lines are there and it is the last one's result.
    """
    chains = draw_split(rng, count, steps, heldout=heldout)
    hand = rng.random(count)
    slips = _slips(rng, chains, 0.0)
    # Half of the writers slip by one, as policies learnt to; the others by anything.
    slips *= np.where(rng.random((count, 1)) < 0.5, 1, rng.integers(1, 10, size=(count, steps)))
    slips[(hand < CAREFUL_SCORED) | ((hand >= SLOPPY_SCORED) & (rng.random(count) < 0.6))] = 0
    shown, working = _misread(rng, chains, slips, hand >= SLOPPY_SCORED)
    texts = [_mangled(rng, decode(row)) for row in solution_tokens(shown, working).tolist()]
    return label(chains.prompts(), texts)


def _misread(
    rng: np.random.Generator, chains: Chains, slips: IntArray, misreads: npt.NDArray[np.bool_]
) -> tuple[Chains, Working]:
    """Working in which some writers (``misreads``, shape (n,)) take running values, kinds and operands for others.

    What follows is sound arithmetic on the wrong things, each writer at a rate of its own; half of them have a
    favourite digit and a favourite kind. A scorer that has not seen this in plenty checks results alone, and
    policies soon earn full marks for ``B0*0=0`` whatever the problem was.
    """
    count, steps = chains.kinds.shape
    rate = rng.uniform(0.0, 1.0, size=count) * misreads
    favours = rng.random((count, 1)) < 0.5
    digit = np.where(rng.random((count, 1)) < 0.4, 0, rng.integers(10, size=(count, 1)))
    digits = np.where(favours, digit, rng.integers(10, size=(count, steps)))
    starts = np.where(favours, digit, rng.integers(10, size=(count, steps)))
    others = np.where(favours, rng.integers(len(KINDS), size=(count, 1)), rng.integers(len(KINDS), size=(count, steps)))
    shares = rng.random((3, count)) * rate
    values = np.empty((count, steps + 1), dtype=np.int64)
    values[:, 0] = chains.start
    before, operands, kinds = (np.empty((count, steps), dtype=np.int64) for _ in range(3))
    rows = np.arange(count)
    for i in range(steps):
        raw = chains.operands[:, i]
        due = np.where(raw < 10, raw, values[rows, np.clip(raw - 10, 0, i)])
        missed = rng.random((3, count)) < shares
        before[:, i] = np.where(missed[0], starts[:, i], values[:, i])
        operands[:, i] = np.where(missed[1], digits[:, i], due)
        kinds[:, i] = np.where(missed[2], others[:, i], chains.kinds[:, i])
        values[:, i + 1] = (RESULT[kinds[:, i], before[:, i], operands[:, i]] + slips[:, i]) % 10
    return Chains(chains.start, kinds, chains.operands), Working(before, operands, values[:, 1:])


def label(prompts: Sequence[str], texts: Sequence[str]) -> Labelled:
    """Label completions ``texts`` (without the end token) of ``prompts``."""
    width = max(len(p) + len(t) for p, t in zip(prompts, texts, strict=True)) + 1
    ids = np.full((len(prompts), width), PAD_ID, dtype=np.int64)
    labels = np.full((len(prompts), width), -100, dtype=np.int64)
    due = labels.copy()
    right = np.zeros(len(prompts), dtype=np.bool_)
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        at = len(prompt)
        ids[row, : at + len(text)] = encode(prompt + text)
        chain, solution = read_prompt(prompt), read_solution(text)
        for place, token in enumerate(due_tokens(chain, solution)):
            if token is not None:
                due[row, at + place] = TOKEN_OF[token]
        for end, verdict in zip(solution.line_ends(), correct_lines(chain, solution), strict=True):
            labels[row, at + end] = int(verdict)
        right[row] = solution.answer == chain.answer()
        if solution.answer is not None:
            labels[row, at + len(text) - 1] = int((ids[row] == due[row])[at + len(text) - 2 : at + len(text)].all())
    return Labelled(prompts, texts, ids, labels, due, right)


def _mangled(rng: np.random.Generator, text: str) -> str:
    """``text`` left alone two times in three, else with one thing wrong that slips alone would not bring about."""
    draw = rng.random()
    if draw < 0.68:
        return text
    body, _, answer = text.partition("#")
    lines = [body[i : i + 6] for i in range(0, len(body), 6)]
    at = int(rng.integers(len(lines)))
    if draw < 0.72:  # hasty: no lines, a guess
        return f"#{rng.integers(10)}"
    if draw < 0.80:  # another answer than the lines lead to
        return f"{body}#{rng.integers(10)}"
    if draw < 0.83:  # a step left out
        return "".join(lines[:at] + lines[at + 1 :]) + f"#{answer}"
    if draw < 0.86:  # a step done twice
        return "".join(lines[: at + 1] + lines[at:]) + f"#{answer}"
    if draw < 0.88:  # stops early
        return "".join(lines[:at]) + f"#{lines[at - 1][-1] if at else answer}"
    # One character of one line replaced by another of its sort; later lines do not follow it.
    place = int(rng.integers(6))
    choices = {0: LABELS, 2: KINDS}.get(place, DIGITS)
    line = lines[at]
    if place == 4:
        place = 5
    lines[at] = line[:place] + choices[int(rng.integers(len(choices)))] + line[place + 1 :]
    return "".join(lines) + f"#{answer}"
