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

from real_runs.nano.alphabet import DIGITS, KINDS, LABELS, PAD_ID, decode, encode
from real_runs.nano.arithmetic import (
    Chains,
    IntArray,
    answer_tokens,
    draw_split,
    solution_tokens,
    work_out,
)
from real_runs.nano.reading import correct_lines, read_prompt, read_solution

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
    token_ids
        Prompt and completion, filled to one width, shape (n, width).
    labels
        1 or 0 at the last token of each step, -100 elsewhere, shape (n, width).
    right
        Whether the final answer is right, shape (n,).
    """

    token_ids: IntArray
    labels: IntArray
    right: npt.NDArray[np.bool_]


def labelled(rng: np.random.Generator, count: int, steps: int, *, heldout: bool = False) -> Labelled:
    """``count`` completions of mixed quality to problems of level ``steps``, each step labelled.

    A line is correct if it is exactly the step due there, given the values written before it; the answer is
    correct if it is the right one.
    """
    chains = draw_split(rng, count, steps, heldout=heldout)
    slips = _slips(rng, chains, 0.0)
    slips[rng.random(count) < 0.25] = 0
    solutions = solution_tokens(chains, work_out(chains, slips))
    texts = [_mangled(rng, decode(row)) for row in solutions.tolist()]
    return label(chains.prompts(), texts)


def label(prompts: Sequence[str], texts: Sequence[str]) -> Labelled:
    """Label completions ``texts`` (without the end token) of ``prompts``."""
    width = max(len(p) + len(t) for p, t in zip(prompts, texts, strict=True)) + 1
    ids = np.full((len(prompts), width), PAD_ID, dtype=np.int64)
    labels = np.full((len(prompts), width), -100, dtype=np.int64)
    right = np.zeros(len(prompts), dtype=np.bool_)
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        ids[row, : len(prompt) + len(text)] = encode(prompt + text)
        chain, solution = read_prompt(prompt), read_solution(text)
        verdicts = correct_lines(chain, solution)
        for end, verdict in zip(solution.line_ends(), verdicts, strict=True):
            labels[row, len(prompt) + end] = int(verdict)
        right[row] = solution.answer == chain.answer()
        if solution.answer is not None:
            labels[row, len(prompt) + len(text) - 1] = int(right[row])
    return Labelled(ids, labels, right)


def _mangled(rng: np.random.Generator, text: str) -> str:
    """``text`` left alone half of the time, else with one thing wrong that slips alone would not bring about."""
    draw = rng.random()
    if draw < 0.5:
        return text
    body, _, answer = text.partition("#")
    lines = [body[i : i + 6] for i in range(0, len(body), 6)]
    at = int(rng.integers(len(lines)))
    if draw < 0.6:  # hasty: no lines, a guess
        return f"#{rng.integers(10)}"
    if draw < 0.7:  # another answer than the lines lead to
        return f"{body}#{rng.integers(10)}"
    if draw < 0.77:  # a step left out
        return "".join(lines[:at] + lines[at + 1 :]) + f"#{answer}"
    if draw < 0.82:  # a step done twice
        return "".join(lines[: at + 1] + lines[at:]) + f"#{answer}"
    if draw < 0.85:  # stops early
        return "".join(lines[:at]) + f"#{lines[at - 1][-1] if at else answer}"
    # One character of one line replaced by another of its sort; later lines do not follow it.
    place = int(rng.integers(6))
    choices = {0: LABELS, 2: KINDS}.get(place, DIGITS)
    line = lines[at]
    if place == 4:
        place = 5
    lines[at] = line[:place] + choices[int(rng.integers(len(choices)))] + line[place + 1 :]
    return "".join(lines) + f"#{answer}"
