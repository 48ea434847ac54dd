"""The learning curve of a run: evaluations along the way, each a point on the curve of every target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from race.errors import InvalidInput
from race.records import Curve, PilotSpec
from real_runs.config import RunOptions
from real_runs.contracts import Judge, Reward, Task
from real_runs.evaluate import Evaluation, evaluate
from real_runs.grpo.pricing import Prices
from real_runs.grpo.seeds import seed_for
from real_runs.grpo.step import RunState
from real_runs.ledger import Ledger
from real_runs.rollout import RolloutBackend, Sampling


def check_targets(spec: PilotSpec, task: Task, benchmarks: Mapping[str, Task], judge: Judge | None) -> None:
    """Refuse a target that nothing here can evaluate."""
    for target in spec.targets:
        name = target.partition(":")[2]
        if name and name not in benchmarks and name != task.name:
            raise InvalidInput(
                f"targets: found {target!r}; allowed are pass@1 for {task.name!r}"
                + "".join(f", pass@1:{b}" for b in sorted(benchmarks))
            )
        if target == "judge" and judge is None:
            raise InvalidInput("targets: found 'judge', but the run was given no judge")


@dataclass(frozen=True)
class Evaluator:
    """Evaluates the policy for the targets of a spec.

    Plain ``pass@1``, ``native`` and ``judge`` are measured on the task's own held-out set, ``pass@1:NAME`` on that of
    the benchmark.
    """

    spec: PilotSpec
    options: RunOptions
    task: Task
    reward: Reward
    judge: Judge | None
    benchmarks: Mapping[str, Task]
    backend: RolloutBackend
    prices: Prices
    sampling: Sampling
    ledger: Ledger

    def add_points(self, state: RunState) -> None:
        """Evaluate, meter it beside the budget, and put a point on every curve."""
        self.backend.refresh(state.step)
        targets = set(self.spec.targets)
        sets: dict[str, Task] = {"": self.task}
        for name in sorted({t.partition(":")[2] for t in targets if ":" in t}):
            sets[name] = self.benchmarks.get(name, self.task)
        for name, task in sets.items():
            with self.ledger.phase(state.step, "eval", self._bound(task)) as phase:
                found = evaluate(
                    self.backend, task, prices=self.prices, sampling=self.sampling,
                    problems=self.options.eval_problems, samples=self.options.eval_samples,
                    seed=seed_for(self.spec.seed, state.step, f"eval:{name}"),
                    reward=self.reward if not name and "native" in targets else None,
                    judge=self.judge if not name and "judge" in targets else None,
                )  # fmt: skip
                phase.flops, phase.executed = found.flops, found.executed
            state.account.add("eval", found.flops)
            self._append(state, found, name)

    def _append(self, state: RunState, found: Evaluation, benchmark: str) -> None:
        for target in self.spec.targets:
            key, _, name = target.partition(":")
            if name != benchmark or key not in found.estimates:
                continue
            estimate = found.estimates[key]
            curve = state.curves.setdefault(target, {"step": [], "flops": [], "value": [], "se": []})
            curve["step"].append(state.step)
            curve["flops"].append(state.account.total)
            curve["value"].append(min(max(estimate.value, 0), 1))
            curve["se"].append(min(estimate.se, 1))

    def _bound(self, task: Task) -> int:
        """What an evaluation that never ended is charged: everything at the length limit.

        A judge without ``flops_bound`` cannot say what it would have cost, and is left out.
        """
        limit, samples = self.sampling.max_tokens, self.options.eval_samples
        bounds = [self.reward.flops_bound, getattr(self.judge, "flops_bound", None)]
        total = 0
        for problem in task.heldout_problems(count=self.options.eval_problems):
            prompt = len(problem.prompt_ids)
            total += self.prices.search(prompt, [limit] * samples)
            total += samples * sum(bound(prompt, limit) for bound in bounds if bound is not None)
        return total


def last_evaluated(state: RunState) -> int:
    """Step of the newest point; -1 before the first."""
    return max((int(c["step"][-1]) for c in state.curves.values()), default=-1)


def as_curves(state: RunState) -> dict[str, Curve]:
    """The points as a record holds them."""
    return {
        target: Curve(tuple(int(s) for s in c["step"]), tuple(c["flops"]), tuple(c["value"]), tuple(c["se"]))
        for target, c in state.curves.items()
    }
