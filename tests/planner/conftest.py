"""Shared pieces: a small ladder, spaces, and a world that answers at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from planner import PilotSpace
from race.allocation import Allocation, unit_costs
from race.ladders import Ladder, ladder
from race.records import Curve, PilotRecord, PilotSpec

World = Callable[[PilotSpec], PilotRecord]


@pytest.fixture(scope="session")
def rungs() -> Ladder:
    return ladder("qwen2.5")


@pytest.fixture(scope="session")
def space(rungs: Ladder) -> PilotSpace:
    return PilotSpace.build(rungs, budget="1e19", reward="sparse")


@pytest.fixture(scope="session")
def bump(rungs: Ladder) -> World:
    return bump_world(rungs)


def bump_world(rungs: Ladder, *, best: float = 0.6, gain: float = 0.3) -> World:
    """A world that is none of the simulator's: a bump in rho, growing with FLOPs and model size, with noise that
    depends on the pilot's seed only, so that the same spec gives the same record."""

    def run(spec: PilotSpec) -> PilotRecord:
        rng = np.random.default_rng(spec.seed)
        spent = spec.budget * np.array([0.1, 0.2, 0.4, 0.7, 1.0])
        grown = 1 - np.exp(-((spent / 3e17) ** 0.4))
        size = 0.05 * np.log(spec.params / 1.5e9)
        value = 0.25 + size + gain * grown * np.exp(-((spec.rho - best) ** 2) / 0.08)
        seen = np.clip(value + rng.normal(0, 0.01, 5), 0, 1)
        costs = unit_costs(rungs[spec.model].architecture, spec.recipe)
        sigma, rho, phi = (float(x) for x in costs.shares(spec.recipe.update_ratio))
        return PilotRecord(
            spec=spec,
            flops=Allocation(sigma * spec.budget, rho * spec.budget, phi * spec.budget),
            curves={
                target: Curve((1, 2, 3, 4, 5), tuple(map(float, spent)), tuple(map(float, seen)), (0.01,) * 5)
                for target in spec.targets
            },
            evidence="real",
            steps=5,
            id=f"bump-{spec.params}-{spec.seed}",
        )

    return run
