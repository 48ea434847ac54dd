"""Records for the tests: pilots in simulated worlds, and curves made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from race.allocation import Allocation, unit_costs
from race.ladders import Ladder, ladder
from race.records import Curve, Health, PilotRecord, PilotSpec
from race.simulator import Worlds, run_world

RUNGS = ladder("qwen2.5")


def spec(
    reward: str = "sparse",
    *,
    model: int = 0,
    rho: float = 0.5,
    budget: float = 1e18,
    seed: int = 0,
    rungs: Ladder = RUNGS,
    targets: Sequence[str] = ("native",),
    **changes: object,
) -> PilotSpec:
    rung, recipe = rungs.models[model], rungs.recipe(reward, **changes)
    costs = unit_costs(rung.architecture, recipe)
    low, high = costs.rho_range
    rho = float(np.clip(rho, low + 1e-9, high - 1e-9))
    recipe = recipe.with_update_ratio(float(costs.update_ratio(rho)))
    return PilotSpec(rung.name, rung.params, recipe, rho, int(budget), seed=seed, targets=tuple(targets))


def record(
    made: PilotSpec,
    shape: Callable[[np.ndarray], np.ndarray] | float | Sequence[float],
    *,
    points: int = 8,
    se: float = 0.02,
    evidence: str = "real",
    health: Health | None = None,
    target: str = "native",
    **changes: object,
) -> PilotRecord:
    """A record whose curve is ``shape`` of the share of the run that is done."""
    share = np.linspace(0, 1, points)
    if callable(shape):
        value = np.asarray(shape(share), dtype=float)
    else:
        value = np.broadcast_to(np.asarray(shape, dtype=float), share.shape)
    curve = Curve(
        tuple(range(0, 10 * points, 10)),
        tuple(float(made.budget * s) for s in share),
        tuple(float(v) for v in value),
        tuple([se] * points),
    )
    rho = made.rho
    flops = Allocation((1 - rho) * made.budget, rho * made.budget, 0.0)
    out = PilotRecord(made, flops, {target: curve}, evidence, health or Health(), steps=10 * (points - 1))  # type: ignore[arg-type]
    return replace(out, **changes) if changes else out  # type: ignore[arg-type]


def pilots(
    count: int,
    world: Worlds,
    *,
    reward: str = "sparse",
    budget: float = 2e18,
    seed: int = 0,
    targets: Sequence[str] = ("native",),
) -> list[PilotRecord]:
    """Pilots over models and update fractions in one simulated world."""
    rng = np.random.default_rng(seed)
    return [
        run_world(
            world,
            spec(reward, model=i % 3, rho=float(rng.uniform(0.15, 0.9)), budget=budget, seed=i, targets=targets),
            seed=seed,
        )
        for i in range(count)
    ]
