"""Evaluation on held-out problems: pass@1 with its confidence interval, pass@k, native reward, judge.

Metered beside the budget, never inside it. Every number averages over problems, so its standard error is that of
the problem means: completions of one problem are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from race.errors import CannotDo
from real_runs.contracts import Completion, Judge, Problem, Reward, Task
from real_runs.grpo.pricing import Prices
from real_runs.intervals import Z95, wilson
from real_runs.rollout._base import RolloutBackend, Sample, Sampling


@dataclass(frozen=True)
class Estimate:
    """A mean over problems in [0, 1], its standard error, and a 95 % interval."""

    value: float
    se: float
    lo: float
    hi: float
    levels: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"value": self.value, "se": self.se, "lo": self.lo, "hi": self.hi, "levels": dict(self.levels)}


@dataclass(frozen=True)
class Evaluation:
    """Estimates by target, and what they cost.

    Attributes
    ----------
    estimates
        ``pass@1``, ``pass@k`` for powers of two up to the samples drawn, ``native`` and ``judge`` where asked.
    flops, executed
        Rollouts plus reward and judge models.
    health
        Mean completion length, share finished, and what reward and judge counted, per completion.
    """

    estimates: Mapping[str, Estimate]
    flops: int
    executed: int | None
    health: Mapping[str, float]
    problems: int
    samples: int


def evaluate(
    backend: RolloutBackend,
    task: Task,
    *,
    prices: Prices,
    sampling: Sampling,
    problems: int,
    samples: int,
    seed: int,
    reward: Reward | None = None,
    judge: Judge | None = None,
) -> Evaluation:
    """Sample ``samples`` completions for each of the first ``problems`` held-out problems, and score them.

    Raises
    ------
    CannotDo
        The task has no held-out problems.
    """
    chosen = list(task.heldout_problems(count=problems))
    if not chosen:
        raise CannotDo(f"task: {task.name!r} has no held-out problems to evaluate on")
    rollouts = backend.generate(
        [p.prompt_ids for p in chosen], group_size=samples, sampling=sampling, seed=seed,
        share_prefill=prices.share_prefill,
    )
    completions = [
        completion
        for problem, group in zip(chosen, rollouts.groups, strict=True)
        for completion in as_completions(task, problem, group)
    ]
    flops = sum(
        prices.search(len(p.prompt_ids), [len(s.token_ids) for s in group])
        for p, group in zip(chosen, rollouts.groups, strict=True)
    )
    levels = [p.level for p in chosen]
    shape = (len(chosen), samples)
    correct = np.asarray(task.correct(completions), dtype=np.float64).reshape(shape)
    estimates = {"pass@1": _estimate(correct.mean(1), levels, binary=samples == 1)}
    k = 2
    while k <= samples:
        estimates[f"pass@{k}"] = _estimate(pass_at_k(correct.sum(1), samples, k), levels)
        k *= 2
    health = {
        "completion_tokens": float(np.mean([len(c.token_ids) for c in completions])),
        "finished": float(np.mean([c.finished for c in completions])),
    }
    extra_flops = 0
    for target, scorer in (("native", reward), ("judge", judge)):
        if scorer is None:
            continue
        scores = scorer.score(completions)
        estimates[target] = _estimate(np.asarray(scores.values, dtype=np.float64).reshape(shape).mean(1), levels)
        extra_flops += scores.flops
        health |= {f"{target}/{name}": float(value) / len(completions) for name, value in scores.health.items()}
    executed = None if rollouts.executed is None else rollouts.executed + extra_flops
    return Evaluation(estimates, flops + extra_flops, executed, health, len(chosen), samples)


def as_completions(task: Task, problem: Problem, group: Sequence[Sample]) -> list[Completion]:
    """Samples of one problem as what rewards and judges read."""
    return [Completion(problem, s.token_ids, task.decode(s.token_ids), s.finished) for s in group]


def pass_at_k(correct: npt.NDArray[np.float64], samples: int, k: int) -> npt.NDArray[np.float64]:
    """Chance that at least one of k draws is right, per problem: 1 - C(n - c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374), from n = ``samples`` of which ``correct``, shape
    (problems,), were right.
    """
    total = math.comb(samples, k)
    return np.array([1 - math.comb(samples - round(c), k) / total for c in correct.tolist()])


def _estimate(means: npt.NDArray[np.float64], levels: Sequence[str], *, binary: bool = False) -> Estimate:
    n = len(means)
    value = float(means.mean())
    spread = float(means.std(ddof=1)) if n > 1 else 0.5
    # All problems alike says little when there are few: never below half of what one problem can move the mean.
    se = max(spread / math.sqrt(n), 0.5 / n)
    lo, hi = wilson(value, n) if binary else (max(0.0, value - Z95 * se), min(1.0, value + Z95 * se))
    by_level = {
        level: float(means[[i for i, found in enumerate(levels) if found == level]].mean())
        for level in sorted(set(levels))
        if level
    }
    return Estimate(value, se, lo, hi, by_level)
