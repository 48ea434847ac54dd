"""How large the next step may be, so that no phase can ever overspend.

Before a step, completion lengths are unknown; a step of n prompts is started only if

    hard   search and reward at the length limit, and one update, fit what is left of the budget
    soft   the step at the mean length seen so far fits, passes included

The hard rule makes overspending impossible; the soft rule keeps a smaller step balanced instead of spending what is
left on rollouts alone. After the rollouts every length is known, so the passes are cut to the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from race.allocation import trained_samples
from real_runs.grpo.pricing import Prices

RewardBound = Callable[[int, int], int]

# A step below full size is worth taking only while this share of the budget is unspent: its gradient is noisier.
SMALL_STEP_FLOOR = 0.01
# A run uses at least 97 % of its budget wherever one pair of completions fits into the rest.
UNUSED_ALLOWED = 0.03


@dataclass(frozen=True)
class StepSize:
    """Prompts and completions per prompt of one step."""

    prompts: int
    group_size: int

    @property
    def samples(self) -> int:
        """Completions the step generates."""
        return self.prompts * self.group_size


@dataclass(frozen=True)
class Sizer:
    """Sizes steps of one run.

    Attributes
    ----------
    update_ratio
        a.
    full
        A step at full size.
    max_tokens
        Completion length limit.
    reward_bound
        Most FLOPs of scoring one completion, from its prompt and completion lengths.
    """

    prices: Prices
    reward_bound: RewardBound
    update_ratio: float
    full: StepSize
    max_tokens: int
    budget: int

    def trained(self, size: StepSize) -> int:
        """Samples trained on in a step of this size; rounded at full size, down below it."""
        if size == self.full:
            return trained_samples(self.update_ratio, size.samples)
        return max(1, math.floor(self.update_ratio * size.samples))

    def search_bound(self, prompts: Sequence[int], size: StepSize) -> int:
        """Most that the rollouts can cost."""
        longest = [self.max_tokens] * size.group_size
        return sum(self.prices.search(p, longest) for p in prompts[: size.prompts])

    def reward_bound_of(self, prompts: Sequence[int], size: StepSize) -> int:
        """Most that scoring can cost."""
        return size.group_size * sum(self.reward_bound(p, self.max_tokens) for p in prompts[: size.prompts])

    def next_size(self, prompts: Sequence[int], spent: int, mean_completion: float) -> StepSize | None:
        """The largest step that fits, or ``None`` when the run is over.

        Parameters
        ----------
        prompts
            True lengths of the step's prompts, at full size.
        spent
            C_total so far.
        mean_completion
            Mean completion length expected.
        """
        left = self.budget - spent
        if left <= 0:
            return None
        sizes = [StepSize(n, self.full.group_size) for n in range(self.full.prompts, 0, -1)]
        sizes += [StepSize(1, g) for g in range(self.full.group_size - 1, 1, -1)]
        for size in sizes:
            if size != self.full and left <= SMALL_STEP_FLOOR * self.budget:
                return None
            if self._hard(prompts, size) <= left and self._soft(prompts, size, mean_completion) <= left:
                return size
        # Better a few samples with fewer updates than they deserve than a budget that is not used.
        last = StepSize(1, 2)
        return last if left > UNUSED_ALLOWED * self.budget and self._hard(prompts, last) <= left else None

    def must_spend(self, lengths: Sequence[tuple[int, int]], unspent: int) -> int:
        """How much of ``unspent`` this step has to spend itself, because no other step will.

        Parameters
        ----------
        lengths
            True (prompt, completion) lengths of the step's samples.
        unspent
            What the budget has left after the step as planned.

        When not even a pair of completions fits into what is left, and more than 3 % is, that much is better spent on
        the samples at hand than not at all.
        """
        allowed = math.floor(UNUSED_ALLOWED * self.budget)
        # Twice: the next step's prompt may be longer than any of these.
        if unspent <= allowed or 2 * self._hard([max(p for p, _ in lengths)], StepSize(1, 2)) <= unspent:
            return 0
        return unspent - allowed

    def _hard(self, prompts: Sequence[int], size: StepSize) -> int:
        longest = max(prompts[: size.prompts])
        one = self.prices.trained(longest, self.max_tokens, times=0)
        return self.search_bound(prompts, size) + self.reward_bound_of(prompts, size) + one

    def _soft(self, prompts: Sequence[int], size: StepSize, mean_completion: float) -> float:
        c = max(1, min(self.max_tokens, math.ceil(mean_completion)))
        used = prompts[: size.prompts]
        groups = sum(self.prices.search(p, [c] * size.group_size) for p in used)
        scoring = size.group_size * sum(self.reward_bound(p, c) for p in used)
        mean_prompt = math.ceil(sum(used) / len(used))
        full, rest = divmod(self.trained(size), size.samples)
        once = [self.prices.trained(mean_prompt, c, times=times) for times in range(full + 1)]
        return groups + scoring + size.samples * sum(once[:full]) + rest * once[full]
