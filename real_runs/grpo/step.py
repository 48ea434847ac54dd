"""One step of budgeted GRPO: sample, score, learn, with every phase forecast, metered and written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from race.errors import CannotDo
from real_runs.config import RunOptions
from real_runs.contracts import Completion, Problem, Reward, Scores, Task
from real_runs.evaluate import as_completions
from real_runs.grpo.advantage import group_advantages, silent_groups
from real_runs.grpo.health import HealthCounts
from real_runs.grpo.pricing import Prices, Tally
from real_runs.grpo.seeds import seed_for
from real_runs.grpo.selection import affordable, passes, topped_up
from real_runs.grpo.sizing import Sizer, StepSize
from real_runs.grpo.update import Learner, PassReport, Row, run_passes
from real_runs.grpo.watch import Watch, score_metrics
from real_runs.ledger import Account, Ledger
from real_runs.rollout._base import RolloutBackend, Sample


@dataclass
class RunState:
    """Everything that a step changes besides weights and moments; part of the checkpoint.

    Attributes
    ----------
    step
        Steps done.
    account
        Useful FLOPs so far.
    tokens
        Completion tokens sampled so far; the mean length forecasts the next step.
    milestone
        Evaluations done after the base model's.
    curves
        Target to ``[step, flops, value, se]`` columns.
    watch
        What the rewards said and counted in training.
    """

    step: int = 0
    account: Account = field(default_factory=Account)
    counts: HealthCounts = field(default_factory=HealthCounts)
    tokens: int = 0
    milestone: int = 0
    curves: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)

    def mean_completion(self, planned: float) -> float:
        """Mean completion length so far; ``planned`` before the first step."""
        return self.tokens / self.counts.samples if self.counts.samples else planned

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "step": self.step,
            "account": self.account.to_dict(),
            "counts": self.counts.to_dict(),
            "tokens": self.tokens,
            "milestone": self.milestone,
            "curves": self.curves,
            "watch": self.watch.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunState:
        """As `to_dict` wrote it."""
        return cls(
            step=data["step"],
            account=Account.from_dict(data["account"]),
            counts=HealthCounts.from_dict(data["counts"]),
            tokens=data["tokens"],
            milestone=data["milestone"],
            curves={t: {k: list(v) for k, v in c.items()} for t, c in data["curves"].items()},
            watch=Watch.from_dict(data["watch"]),
        )


@dataclass
class Trainer:
    """The parts of one run that a step needs."""

    seed: int
    options: RunOptions
    task: Task
    reward: Reward
    backend: RolloutBackend
    learner: Learner
    prices: Prices
    sizer: Sizer
    ledger: Ledger

    def take(self, state: RunState, problems: Sequence[Problem], size: StepSize) -> dict[str, float]:
        """Do step ``state.step + 1`` on the first ``size.prompts`` problems; returns its metrics.

        ``state`` is brought up to date, except for curves. When a loss is not finite, ``state.counts.unstable`` is
        set and the pass that made it is charged but not taken.
        """
        step = state.step + 1
        before = Account(**state.account.to_dict())
        seconds: dict[str, float] = {}
        problems = problems[: size.prompts]
        samples, completions = self._search(state, step, problems, size, seconds)
        scores = self._score(state, step, completions, size, seconds)
        rewards = np.asarray(scores.values, dtype=np.float64).reshape(size.prompts, size.group_size)
        report, trained = self._learn(state, step, samples, rewards, size, seconds)

        silent = silent_groups(rewards)
        metrics = {
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std(axis=1, ddof=1).mean()),
            "silent_groups": float(silent.mean()),
            "completion_tokens": float(np.mean([len(s.token_ids) for s in samples])),
            "finished": float(np.mean([s.finished for s in samples])),
            "prompts": float(size.prompts),
            "trained": float(trained),
            **score_metrics(scores),
            **report.metrics,
        }
        counts = state.counts
        counts.steps += 1
        counts.groups += len(silent)
        counts.silent += int(silent.sum())
        counts.varied += int(not silent.all())
        counts.samples += len(samples)
        counts.truncated += sum(not s.finished for s in samples)
        counts.mismatch += report.metrics.get("logprob_mismatch", 0.0)
        counts.unstable = counts.unstable or not report.stable
        state.watch.add(scores)
        state.tokens += sum(len(s.token_ids) for s in samples)
        state.step = step
        spent = Account(**{k: v - before.to_dict()[k] for k, v in state.account.to_dict().items()})
        self.ledger.step(step, spent, state.account.total, seconds, metrics)
        return metrics

    def _search(
        self, state: RunState, step: int, problems: Sequence[Problem], size: StepSize, seconds: dict[str, float]
    ) -> tuple[list[Sample], list[Completion]]:
        prompts = [len(p.prompt_ids) for p in problems]
        with self.ledger.phase(step, "search", self.sizer.search_bound(prompts, size)) as phase:
            self.backend.refresh(step)
            rollouts = self.backend.generate(
                [p.prompt_ids for p in problems],
                group_size=size.group_size,
                sampling=self.learner.sampling,
                seed=seed_for(self.seed, step, "search"),
                share_prefill=self.prices.share_prefill,
            )
            for length, group in zip(prompts, rollouts.groups, strict=True):
                phase.flops += self.prices.search(length, [len(s.token_ids) for s in group])
            phase.executed = rollouts.executed
        self._book(state, "search", phase.flops, phase.seconds, seconds)
        completions = [
            completion
            for problem, group in zip(problems, rollouts.groups, strict=True)
            for completion in as_completions(self.task, problem, group)
        ]
        return [s for group in rollouts.groups for s in group], completions

    def _score(
        self, state: RunState, step: int, completions: Sequence[Completion], size: StepSize,
        seconds: dict[str, float],
    ) -> Scores:
        bound = sum(
            self.sizer.reward_bound(len(c.problem.prompt_ids), len(c.token_ids)) for c in completions
        )
        with self.ledger.phase(step, "reward", bound) as phase:
            scores = self.reward.score(completions)
            phase.flops = phase.executed = scores.flops
        values = np.asarray(scores.values)
        if values.shape != (size.samples,) or not np.isfinite(values).all():
            raise CannotDo(
                f"reward: {self.reward.name!r} returned shape {values.shape} or a value that is not finite for "
                f"{size.samples} completions; it must give one finite number each"
            )
        self._book(state, "reward", phase.flops, phase.seconds, seconds)
        return scores

    def _learn(
        self, state: RunState, step: int, samples: Sequence[Sample], rewards: npt.NDArray[np.float64],
        size: StepSize, seconds: dict[str, float],
    ) -> tuple[PassReport, int]:
        chosen = self._chosen(step, samples, rewards, size, self.sizer.budget - state.account.total)
        advantages = group_advantages(rewards, scale=self.options.scale_advantages).reshape(-1)
        trained = sorted({int(i) for indices in chosen for i in indices})
        again = chosen if self.prices.recompute_old_logprobs else chosen[1:]
        compared = sorted({int(i) for indices in again for i in indices})
        found: dict[str, dict[int, Row]] = {"reference": {}, "old_logprobs": {}}
        for name, indices in (("reference", trained if self.prices.kl else []), ("old_logprobs", compared)):
            if not indices:
                continue
            cost = sum(getattr(self.prices, name)(*_lengths(samples[i])) for i in indices)
            with self.ledger.phase(step, name, cost) as phase:
                tally = Tally(self.learner.costs)
                found[name] = self.learner.logprobs(samples, indices, tally, adapter=name == "old_logprobs")
                phase.flops, phase.executed = cost, tally.flops
            self._book(state, name, cost, phase.seconds, seconds)
        cost = sum(self.prices.update(*_lengths(samples[int(i)])) for indices in chosen for i in indices)
        with self.ledger.phase(step, "update", cost) as phase, self.learner.policy.learning():
            tally = Tally(self.learner.costs)
            report = run_passes(
                self.learner, samples, advantages, chosen,
                old=found["old_logprobs"], reference=found["reference"],
                compare_first=self.prices.recompute_old_logprobs, tally=tally, rate=self._rate(state, size),
            )
            phase.flops, phase.executed = cost, tally.flops
        self._book(state, "update", cost, phase.seconds, seconds)
        return report, sum(len(indices) for indices in chosen)

    def _chosen(
        self, step: int, samples: Sequence[Sample], rewards: npt.NDArray[np.float64], size: StepSize, left: int
    ) -> list[npt.NDArray[np.int64]]:
        """The samples of each pass, within what is ``left`` of the budget."""
        lengths = [_lengths(s) for s in samples]

        def cost(sample: int, times: int) -> int:
            return self.prices.trained(*lengths[sample], times=times)

        planned = passes(
            rewards, self.sizer.trained(size), subset=self.options.subset, seed=seed_for(self.seed, step, "subset")
        )
        chosen, spent = affordable(planned, cost, left)
        least = self.sizer.must_spend(lengths, left - spent)
        return topped_up(chosen, len(samples), cost, least=least, left=left - spent)

    def _rate(self, state: RunState, size: StepSize) -> float:
        """Learning rate of this step.

        A step cut short by the budget moves the weights in proportion to its samples: Adam's step does not shrink
        with the batch by itself, and a handful of samples should not weigh as much as a full step.
        """
        rate = self.learner.optimizer.defaults["lr"] * size.samples / self.sizer.full.samples
        if self.options.schedule == "linear":
            rate *= max(0.0, 1 - state.account.total / self.sizer.budget)
        return float(rate)

    @staticmethod
    def _book(state: RunState, phase: str, flops: int, spent: float, seconds: dict[str, float]) -> None:
        state.account.add(phase, flops)
        seconds[phase] = spent


def _lengths(sample: Sample) -> tuple[int, int]:
    return len(sample.prompt_ids), len(sample.token_ids)
