"""What a study will spend, run by run, before it spends anything.

Evaluation is metered beside the budget, so it is forecast beside it too: problems x (points + the base model) x sets,
at the recipe's mean lengths, with the scoring that the targets ask for. It can cost more than the run it watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from race.allocation import Allocation, unit_costs
from race.hardware import HardwareCost
from real_runs.config import RunOptions
from real_runs.study.design import StudyRun

if TYPE_CHECKING:
    from real_runs.study.file import Study

ToHardware = Callable[[Allocation], HardwareCost | None]
_NOTHING = Allocation(0, 0, 0)


@dataclass(frozen=True)
class Bill:
    """Runs with what they spend together, and what evaluating them takes beside that."""

    runs: int
    flops: Allocation
    evaluation: Allocation
    hardware: HardwareCost | None
    hardware_evaluation: HardwareCost | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "runs": self.runs,
            "flops": {**self.flops.to_dict(), "eval": self.evaluation.total},
            "cost": self.hardware.to_dict() if self.hardware else None,
            "evaluation_cost": self.hardware_evaluation.to_dict() if self.hardware_evaluation else None,
        }


@dataclass(frozen=True)
class StudyCost:
    """FLOPs of every run by phase, sums per stage and of all, and what they are on hardware.

    A run that several stages look at is counted in the first of them.
    """

    runs: tuple[StudyRun, ...]
    per_run: tuple[Bill, ...]
    stages: dict[str, Bill]
    total: Bill

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "runs": [
                {
                    "id": run.id,
                    "stages": list(run.stages),
                    "model": run.spec.model,
                    "reward": run.spec.reward,
                    "budget": run.spec.budget,
                    "seed": run.spec.seed,
                    "lora_rank": run.spec.recipe.lora.rank if run.spec.recipe.lora else None,
                    "learning_rate": run.spec.recipe.learning_rate,
                    "rho": run.plan.flops.rho,
                    "update_ratio": run.spec.recipe.update_ratio,
                    "steps": run.plan.steps,
                    "samples": run.plan.samples,
                    **{name: value for name, value in bill.to_dict().items() if name != "runs"},
                }
                for run, bill in zip(self.runs, self.per_run, strict=True)
            ],
            "stages": {name: bill.to_dict() for name, bill in self.stages.items()},
            **{name: value for name, value in self.total.to_dict().items() if name != "runs"},
        }


def forecast(study: Study, runs: Sequence[StudyRun], hardware: ToHardware = lambda _: None) -> StudyCost:
    """Add up what ``runs`` spend; ``hardware`` turns FLOPs into GPU-hours, dollars and kWh as ranges."""
    spent = [run.plan.flops for run in runs]
    beside = [evaluation(study, run) for run in runs]

    def bill(chosen: Iterable[int]) -> Bill:
        places = list(chosen)
        flops = sum((spent[i] for i in places), start=_NOTHING)
        watched = sum((beside[i] for i in places), start=_NOTHING)
        return Bill(len(places), flops, watched, hardware(flops), hardware(watched))

    names = dict.fromkeys(run.stages[0] for run in runs)
    stages = {name: bill(i for i, run in enumerate(runs) if run.stages[0] == name) for name in names}
    return StudyCost(tuple(runs), tuple(bill([i]) for i in range(len(runs))), stages, bill(range(len(runs))))


def evaluation(study: Study, run: StudyRun) -> Allocation:
    """FLOPs of all evaluations of one run: generation under search, scoring under reward."""
    options, recipe = study.run.get("options", {}), run.spec.recipe
    defaults = RunOptions()
    problems, points, samples = (
        options.get(name, getattr(defaults, name)) for name in ("eval_problems", "eval_points", "eval_samples")
    )
    once = (points + 1) * problems * samples
    sets = 1 + len({target.partition(":")[2] for target in study.targets if ":" in target})
    architecture = study.ladder[run.spec.model].architecture
    # With one answer per problem no prompt is shared.
    alone = unit_costs(architecture, replace(recipe, prefix_caching=recipe.prefix_caching and samples > 1))
    scored = alone.reward if "native" in study.targets else 0
    judge = study.run.get("judge_model")
    if "judge" in study.targets and judge is not None:
        scored += unit_costs(architecture, replace(recipe, reward="prm", reward_model=judge)).reward
    return Allocation(round(once * sets * alone.search_group / alone.group_size), 0, round(once * scored))
