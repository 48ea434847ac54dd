"""The nano task: chain arithmetic as a stream of training problems and a fixed held-out set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from race.errors import InvalidInput
from real_runs.contracts import Completion, Problem
from real_runs.nano.alphabet import EOS_ID, PAD_ID, decode, encode
from real_runs.nano.arithmetic import LINE_TOKENS, MAX_STEPS, draw_balanced
from real_runs.nano.reading import read_prompt, read_solution

TRAIN_LEVELS = (3, 4, 5)
BENCHMARK_LEVELS = {"easy": (2, 3), "hard": (5, 6)}
HELDOUT_LEVELS = (2, 3, 4, 5, 6)

# Entropy words that keep the streams of one seed apart.
_TRAIN, _ORDER, _HELDOUT = 1, 2, 3


class NanoTask:
    """Chain arithmetic modulo 10; implements `real_runs.contracts.Task`.

    A training step draws all its problems from one level, so its prompts have one length and need no padding; the
    levels take turns in a seeded order, each once in every ``len(levels)`` steps, because training on one level
    alone unlearns the others. All ten answers are equally likely, so guessing gains nothing. The held-out set goes
    through its levels round robin, so that any beginning of it is balanced; it reaches one level below and one above
    the trained ones.

    Parameters
    ----------
    levels, heldout_levels
        Steps per problem (k) in training and in the held-out set.
    """

    name = "nano"
    eos_id = EOS_ID
    pad_id = PAD_ID
    # The longest correct solution of the highest held-out level, and one line more: room to go wrong.
    max_completion_tokens = LINE_TOKENS * (max(HELDOUT_LEVELS) + 1) + 3

    def __init__(
        self, *, levels: Sequence[int] = TRAIN_LEVELS, heldout_levels: Sequence[int] = HELDOUT_LEVELS
    ) -> None:
        self.levels = _check_levels("levels", levels)
        self.heldout_levels = _check_levels("heldout_levels", heldout_levels)
        self.max_completion_tokens = LINE_TOKENS * (max(*self.levels, *self.heldout_levels) + 1) + 3
        self._heldout: list[Problem] = []
        self._seen: set[str] = set()
        self._heldout_rng = np.random.default_rng([_HELDOUT])

    def level_of(self, *, seed: int, step: int) -> int:
        """The level of training step ``step``."""
        turn, place = divmod(step, len(self.levels))
        order = np.random.default_rng([_ORDER, seed, turn]).permutation(len(self.levels))
        return self.levels[int(order[place])]

    def train_problems(self, *, seed: int, step: int, count: int) -> list[Problem]:
        """The ``count`` problems of training step ``step``; a smaller count is a beginning of a larger one."""
        if count < 1 or seed < 0 or step < 0:
            raise InvalidInput(
                f"train_problems: found seed {seed}, step {step}, count {count}; allowed are seed and step >= 0 "
                "and count >= 1"
            )
        level = self.level_of(seed=seed, step=step)
        # One problem per generator call: a batch drawn at once would change with its size.
        rng = np.random.default_rng([_TRAIN, seed, step])
        return [problem(draw_balanced(rng, level, heldout=False).prompts()[0]) for _ in range(count)]

    def heldout_problems(self, *, count: int) -> list[Problem]:
        """The first ``count`` problems of the held-out set, all different."""
        while len(self._heldout) < count:
            level = self.heldout_levels[len(self._heldout) % len(self.heldout_levels)]
            prompt = draw_balanced(self._heldout_rng, level, heldout=True).prompts()[0]
            if prompt not in self._seen:
                self._seen.add(prompt)
                self._heldout.append(problem(prompt))
        return self._heldout[:count]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled tokens without the end token."""
        return decode(token_ids)

    def correct(self, completions: Sequence[Completion]) -> npt.NDArray[np.float64]:
        """1.0 where the completion ended by itself on the right answer, shape (n,)."""
        return np.array([float(is_right(c)) for c in completions])


def nano_benchmarks() -> dict[str, NanoTask]:
    """Held-out sets behind the targets ``pass@1:easy`` and ``pass@1:hard``: each has a level that is not trained on."""
    return {name: NanoTask(heldout_levels=levels) for name, levels in BENCHMARK_LEVELS.items()}


def problem(prompt: str) -> Problem:
    """The `Problem` that ``prompt`` states."""
    chain = read_prompt(prompt)
    return Problem(
        id=hashlib.sha256(prompt.encode()).hexdigest()[:16],
        prompt_ids=encode(prompt),
        prompt=prompt,
        gold=str(chain.answer()),
        level=str(len(chain.steps)),
    )


def is_right(completion: Completion) -> bool:
    """Whether a completion ends by itself on the right answer, however it got there."""
    answer = read_solution(completion.text).answer
    return completion.finished and answer is not None and str(answer) == completion.problem.gold


def _check_levels(field: str, levels: Sequence[int]) -> tuple[int, ...]:
    if not levels or any(isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_STEPS for k in levels):
        raise InvalidInput(f"{field}: found {levels!r}; allowed are whole numbers of steps from 1 to {MAX_STEPS}")
    return tuple(levels)
