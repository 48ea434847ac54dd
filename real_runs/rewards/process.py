"""Learned process rewards for text tasks: ``prm`` and its cheaper ``proxy-prm``.

A completion is cut into steps, each step gets a probability, and the aggregate (the lowest, by default) is the
reward. Three things a policy may try are worth nothing: no steps at all, steps beyond the model's context, and the
model's own marks written into the text. What it does try shows: steps, tokens per step, forged marks and the *true*
accuracy are logged beside the reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from race.errors import InvalidInput
from real_runs.contracts import Completion, Scores
from real_runs.data.task import grade_completions
from real_runs.grading import Grader
from real_runs.prm import ProcessRewardModel, Solution, StepScores, aggregate, split_steps
from real_runs.prm.steps import DELIMITER, check_aggregation
from real_runs.rewards.rules import verdict_health

# A reward model has its own tokenizer and template. The same text takes at most about as many tokens as the policy's,
# plus one mark per step; what exceeds twice the policy's count is scored 0 unread, so that a bound can be promised.
_RETOKENISED = 2


class PrmReward:
    """Reward system ``prm`` or ``proxy-prm`` on text.

    Parameters
    ----------
    prm
        The model behind it.
    grader
        For the accuracy logged beside the reward; ``None`` logs none.
    name
        ``prm`` or ``proxy-prm``.
    aggregation
        ``min`` (default), ``mean``, ``prod`` or ``last``.
    delimiter
        Where a completion is cut into steps.
    """

    def __init__(
        self,
        prm: ProcessRewardModel,
        grader: Grader | None = None,
        *,
        name: str = "prm",
        aggregation: str = "min",
        delimiter: str = DELIMITER,
    ) -> None:
        if name not in ("prm", "proxy-prm"):
            raise InvalidInput(f"reward: found {name!r}; allowed are prm and proxy-prm")
        if not delimiter:
            raise InvalidInput("delimiter: found an empty text; allowed is what separates steps")
        self.name = name
        self.prm = prm
        self.grader = grader
        self.aggregation = check_aggregation(aggregation)
        self.delimiter = delimiter

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Most that scoring one completion of these policy-token lengths can cost."""
        return self.prm.flops(self._limit(prompt_tokens, completion_tokens))

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,): the aggregated step probability; FLOPs on the lengths the reward model really read."""
        solutions = [
            Solution(
                str(c.problem.meta.get("question", c.problem.prompt)),
                tuple(split_steps(c.text, delimiter=self.delimiter)),
                self._limit(len(c.problem.prompt_ids), len(c.token_ids)),
            )
            for c in completions
        ]
        scored = self.prm.score(solutions)
        values = np.array([aggregate(s.probabilities, self.aggregation) for s in scored], dtype=np.float64)
        parts = {"prm": values}
        health = step_health(scored)
        if self.grader is not None:
            parts["accuracy"] = grade_completions(self.grader, completions)
            health |= verdict_health(self.grader.grade([(c.problem.gold, c.text) for c in completions]))
        return Scores(values, flops=sum(self.prm.flops(s.tokens) for s in scored), parts=parts, health=health)

    def _limit(self, prompt_tokens: int, completion_tokens: int) -> int:
        longest = self.prm.overhead_tokens + _RETOKENISED * (prompt_tokens + completion_tokens)
        return min(self.prm.max_tokens, longest)


class PrmJudge:
    """A process-quality score common to all reward systems of a text task; never trained on.

    The mean over steps: unlike the minimum it does not sink with one hard step, so it tells runs apart that all end
    in the same place. Give it another checkpoint than the reward's, or it judges its own pupil.
    """

    name = "judge"

    def __init__(self, prm: ProcessRewardModel, *, aggregation: str = "mean") -> None:
        self._reward = PrmReward(prm, aggregation=aggregation)

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,), in [0, 1]."""
        return self._reward.score(completions)


def step_health(scored: Sequence[StepScores]) -> dict[str, float]:
    """What shows a policy gaming a PRM: fewer or longer steps, forged marks, answers it did not read to the end."""
    return {
        "steps": float(sum(len(s.probabilities) for s in scored)),
        "step_tokens": float(sum(sum(s.step_tokens) for s in scored)),
        "no_steps": float(sum(not s.probabilities for s in scored)),
        "one_step": float(sum(len(s.probabilities) == 1 for s in scored)),
        "steps_cut": float(sum(s.cut for s in scored)),
        "forged_marks": float(sum(s.forged for s in scored)),
    }
