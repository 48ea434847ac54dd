"""What a study will spend, run by run, before it spends anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from race.allocation import Allocation
from race.hardware import HardwareCost
from real_runs.study.design import StudyRun

ToHardware = Callable[[Allocation], HardwareCost | None]


@dataclass(frozen=True)
class StudyCost:
    """FLOPs of every run by phase, and what they are on hardware.

    Evaluation comes on top: it is metered beside the budget, and depends on the run options.
    """

    runs: tuple[StudyRun, ...]
    total: Allocation
    hardware: HardwareCost | None
    per_run: tuple[HardwareCost | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "runs": [
                {
                    "id": run.id,
                    "stages": list(run.stages),
                    "model": run.spec.model,
                    "reward": run.spec.reward,
                    "rho": run.plan.flops.rho,
                    "update_ratio": run.spec.recipe.update_ratio,
                    "steps": run.plan.steps,
                    "samples": run.plan.samples,
                    "flops": run.plan.flops.to_dict(),
                    "cost": cost.to_dict() if cost else None,
                }
                for run, cost in zip(self.runs, self.per_run, strict=True)
            ],
            "flops": self.total.to_dict(),
            "cost": self.hardware.to_dict() if self.hardware else None,
        }


def forecast(runs: Sequence[StudyRun], hardware: ToHardware = lambda _: None) -> StudyCost:
    """Add up what ``runs`` spend; ``hardware`` turns FLOPs into GPU-hours, dollars and kWh as ranges."""
    total = sum((run.plan.flops for run in runs), start=Allocation(0, 0, 0))
    return StudyCost(tuple(runs), total, hardware(total), tuple(hardware(run.plan.flops) for run in runs))
