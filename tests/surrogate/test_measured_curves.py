"""A curve that the simulator did not foresee is still believed: what was measured lies in its own interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from race.allocation import size_run
from race.ladders import ladder
from race.records import Curve, PilotRecord, PilotSpec
from race.simulator import Settings
from surrogate import Surrogate

RUNGS = ladder("qwen2.5")
RECIPE = replace(RUNGS.recipe("sparse"), prompts_per_step=64)
STEPS = np.arange(0, 57, 4)


def curve_record(model: int, start: float, end: float, middle: float, steepness: float) -> PilotRecord:
    """An S-shaped run from ``start`` to ``end``, half-way at step ``middle``; 1,319 questions an evaluation."""
    rung = RUNGS.models[model]
    step = size_run(rung.architecture, RECIPE, 10**19).step
    rise = 1 / (1 + np.exp(-(STEPS - middle) / steepness))
    value = start + (end - start) * (rise - rise[0]) / (rise[-1] - rise[0])
    se = np.sqrt(value * (1 - value) / 1319)
    curve = Curve(
        tuple(int(s) for s in STEPS),
        tuple(float(step.total) * int(s) for s in STEPS),
        tuple(float(v) for v in value),
        tuple(float(v) for v in se),
    )
    spec = PilotSpec(rung.name, rung.params, RECIPE, step.rho, int(curve.flops[-1]), 0, ("pass@1:gsm8k",))
    return PilotRecord(spec, step * 56, {"pass@1:gsm8k": curve}, "imported", steps=56, id=f"curve-{model}")


@pytest.mark.parametrize(
    ("shapes"),
    [
        # One model first has to learn the answer format: a jump from 0.04 to 0.69 within a dozen steps.
        [(0.04, 0.69, 18, 3), (0.55, 0.82, 16, 8), (0.56, 0.91, 4, 6)],
        # The small model beats the large one.
        [(0.40, 0.91, 10, 8), (0.30, 0.60, 10, 8), (0.15, 0.20, 10, 8)],
        # Training hurts.
        [(0.60, 0.30, 20, 8), (0.60, 0.35, 20, 8), (0.65, 0.40, 20, 8)],
    ],
)
def test_the_data_win(shapes: list[tuple[float, float, float, float]]) -> None:
    records = [curve_record(model, *shape) for model, shape in enumerate(shapes)]
    fitted = Surrogate.fit(records, ladder=RUNGS, recipe=RECIPE, targets=["pass@1:gsm8k"])
    inside = []
    for model, record in enumerate(records):
        curve = record.curves["pass@1:gsm8k"]
        asked = list(range(3, len(curve)))
        settings = Settings.build([(RUNGS.models[model], RECIPE, int(curve.flops[i])) for i in asked])
        said = fitted.predict(settings, "pass@1:gsm8k")
        measured = np.array([curve.value[i] for i in asked])
        assert abs(said.mean[-1] - measured[-1]) < 0.05
        assert np.all(np.abs(said.mean - measured) < 0.12)
        inside += list((said.lo <= measured) & (measured <= said.hi))
    assert np.mean(inside) >= 0.75
