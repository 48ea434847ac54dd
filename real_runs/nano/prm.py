"""Learned process rewards of the nano task: ``prm`` and its cheaper, more short-sighted ``proxy-prm``.

A nano PRM reads prompt and completion once and says at every token which one is due next, slips so far included; what
probability it gives to the one that was written is its verdict on it. A step (a line, or the answer) is as probable as
its least probable token. The lowest step is the reward (sums are known to collapse training). A rule stands
around it: a completion that was cut off, or whose lines are not one per step asked for, in order and legible, or that
has no answer, is worth 0. A scorer of steps has nothing to say about steps that are not there, and without the rule a
guessed answer alone, one step to doubt instead of six, is worth more than most honest attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from race.errors import InvalidInput
from race.flops import Architecture, cost_functions
from real_runs.contracts import Completion, Scores
from real_runs.nano.alphabet import PAD_ID
from real_runs.nano.models import REWARD_MODELS, load_prm, model_config
from real_runs.nano.reading import read_prompt, read_solution, well_formed
from real_runs.nano.task import is_right

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FloatArray = npt.NDArray[np.floating]

AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": lambda steps: sum(steps) / len(steps),
    "prod": lambda steps: float(np.prod(steps)),
    "last": lambda steps: steps[-1],
}
ROWS_PER_FORWARD = 256


def step_ends(text: str) -> list[int]:
    """Position in a completion of each step's last token: the lines', then the answer's if there is one."""
    solution = read_solution(text)
    ends = list(solution.line_ends())
    if solution.answer is not None:
        # The mark stands right after the lines, the digit after the mark.
        ends.append((ends[-1] if ends else -1) + 2)
    return ends


@torch.inference_mode()
def token_probabilities(model: PreTrainedModel, ids: torch.Tensor) -> FloatArray:
    """How probable ``model`` finds each token of ``ids`` (rows, width), given those before it; 0 for the first."""
    logits = model(input_ids=ids, use_cache=False).logits
    given = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, ids[:, 1:, None])[..., 0].exp()
    found: FloatArray = torch.nn.functional.pad(given, (1, 0)).numpy()
    return found


def step_minima(tokens: FloatArray, ends: Sequence[int]) -> list[float]:
    """Probability of each step, from those of a completion's tokens: the lowest from the step before to its end."""
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [float(tokens[start : end + 1].min()) for start, end in zip(starts, ends, strict=False)]


class NanoPrmReward:
    """Reward system ``prm`` or ``proxy-prm`` on the nano task; implements `real_runs.contracts.Reward`.

    Parameters
    ----------
    kind
        Which of the two.
    aggregation
        How step probabilities become one score: ``min`` (default), ``mean``, ``prod`` or ``last``.
    """

    def __init__(self, kind: str, *, aggregation: str = "min") -> None:
        if aggregation not in AGGREGATIONS:
            raise InvalidInput(f"aggregation: found {aggregation!r}; allowed are {', '.join(AGGREGATIONS)}")
        self.model = load_prm(kind)
        self.name = kind
        self.aggregation = aggregation
        architecture = Architecture.from_config(model_config(REWARD_MODELS[kind]))
        self._cost = cost_functions(architecture, lora=None).forward

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Exact for these lengths: one forward with a verdict at every position."""
        length = prompt_tokens + completion_tokens
        return self._cost(length, length)

    def step_probabilities(self, completions: Sequence[Completion]) -> list[list[float]]:
        """Probability of each step being correct, one list per completion (empty when it has no steps)."""
        ends = [step_ends(c.text) for c in completions]
        # Rows of like length share a forward; the order of the answers is the caller's.
        order = sorted(range(len(completions)), key=lambda i: _length(completions[i]))
        found: list[list[float]] = [[] for _ in completions]
        for first in range(0, len(order), ROWS_PER_FORWARD):
            rows = order[first : first + ROWS_PER_FORWARD]
            correct = self._probabilities([completions[i] for i in rows])
            for row, i in enumerate(rows):
                offset = len(completions[i].problem.prompt_ids)
                found[i] = step_minima(correct[row, offset:], ends[i])
        return found

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,): the aggregated step probability, 0 where the form is not kept; FLOPs on true lengths."""
        steps = self.step_probabilities(completions)
        aggregate = AGGREGATIONS[self.aggregation]
        answered = np.array(
            [c.finished and read_solution(c.text).answer is not None for c in completions], dtype=np.float64
        )
        formed = np.array(
            [c.finished and well_formed(read_prompt(c.problem.prompt), read_solution(c.text)) for c in completions],
            dtype=np.float64,
        )
        values = np.array([aggregate(s) if s else 0.0 for s in steps]) * formed
        flops = sum(self.flops_bound(len(c.problem.prompt_ids), len(c.token_ids)) for c in completions)
        right = np.array([float(is_right(c)) for c in completions])
        return Scores(
            values,
            flops=flops,
            # Accuracy beside the score, so that a policy that games the PRM is seen doing it.
            parts={"prm": values, "accuracy": right},
            health={
                "steps": float(sum(map(len, steps))),
                "step_tokens": float(sum(len(c.token_ids) for c, s in zip(completions, steps, strict=True) if s)),
                "answered": float(answered.sum()),
                "well_formed": float(formed.sum()),
                "no_steps": float(sum(not s for s in steps)),
            },
        )

    def _probabilities(self, completions: Sequence[Completion]) -> FloatArray:
        """Probability of every token, shape (rows, longest)."""
        width = max(_length(c) for c in completions)
        # Padding on the right of a causal model changes nothing before it, so no mask is needed.
        ids = torch.full((len(completions), width), PAD_ID)
        for row, c in enumerate(completions):
            tokens = (*c.problem.prompt_ids, *c.token_ids)
            ids[row, : len(tokens)] = torch.tensor(tokens)
        return token_probabilities(self.model, ids)


def _length(completion: Completion) -> int:
    return len(completion.problem.prompt_ids) + len(completion.token_ids)
