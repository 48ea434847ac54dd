"""Records for store tests, importable by the writer processes that get killed."""

from __future__ import annotations

from typing import Any

from race.allocation import Allocation
from race.recipe import Recipe
from race.records import Curve, PilotRecord, PilotSpec


def record(record_id: str, *, points: int = 20, **provenance: Any) -> PilotRecord:
    """A plausible record: two targets, ``points`` points each."""
    steps = tuple(range(0, 10 * points, 10))
    budget = 10**12 * steps[-1] or 10**12
    curve = Curve(
        steps,
        tuple(1e12 * s for s in steps),
        tuple(0.9 - 0.8 / (1 + s / 50) for s in steps),
        (0.01,) * points,
    )
    spec = PilotSpec("nano-s", 10**5, Recipe("sparse"), rho=0.5, budget=budget, targets=("native", "pass@1"))
    return PilotRecord(
        spec,
        Allocation(budget // 2, budget - budget // 2, 0),
        {"native": curve, "pass@1": curve},
        evidence="simulated",
        steps=steps[-1],
        seconds={"search": 1.0, "learning": 2.0},
        provenance={"made_by": "tests", **provenance},
        id=record_id,
    )
