"""Whether stated intervals are true, on worlds with known truth. Loose bounds here; benchmarks/surrogate_calibration.py
measures exactly."""

from collections.abc import Sequence

import numpy as np
import pytest
from surrogate_pilots import RUNGS, spec

from race.simulator.worlds import World, alien_worlds, own_worlds
from surrogate import Surrogate
from surrogate.optimum import Slice, optimum

BUDGET = 2e19


def held(worlds: Sequence[World], reward: str, pilots: int) -> dict[str, float]:
    """How often what is stated about the slice is true."""
    recipe = RUNGS.recipe(reward)
    on = Slice.build(RUNGS.models, recipe, BUDGET)
    rows = []
    for number, world in enumerate(worlds):
        rng = np.random.default_rng([number, 5])
        records = [
            world(spec(reward, model=i % 3, rho=float(rng.uniform(0.15, 0.9)), budget=4e17, seed=i))
            for i in range(pilots)
        ]
        fitted = Surrogate.fit(records, ladder=RUNGS, recipe=recipe)
        found, truth = optimum(fitted, budget=BUDGET), world.truth(RUNGS, recipe, int(BUDGET))
        exact, stated = world.physics.expected(on.settings, "native"), fitted.predict(on.settings, "native")
        value = truth.value_at(found.model, found.recommended_rho)
        rows.append(
            {
                "grid": float(np.mean((exact >= stated.lo) & (exact <= stated.hi))),
                "value": found.value.lo <= value <= found.value.hi,
                "band": found.rho.lo <= truth.rho_band[1] and truth.rho_band[0] <= found.rho.hi,
                "width": float(np.mean(stated.hi - stated.lo)),
                "regret": (truth.value - value) / max(truth.range, 1e-9),
            }
        )
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def test_intervals_hold_on_the_simulators_own_worlds() -> None:
    before, after = (held(own_worlds(10), "sparse", pilots) for pilots in (0, 9))
    assert before["grid"] > 0.7
    assert after["grid"] > 0.75
    assert after["value"] >= 0.7
    assert after["band"] >= 0.8
    assert after["width"] < 0.8 * before["width"]
    assert after["regret"] < 0.1


def test_intervals_mostly_hold_on_alien_worlds() -> None:
    after = held(alien_worlds(8), "prm", 9)
    assert after["grid"] > 0.6
    assert after["value"] >= 0.6
    assert after["band"] >= 0.7


@pytest.mark.slow
@pytest.mark.parametrize(("worlds", "low"), [(own_worlds, 0.82), (alien_worlds, 0.75)])
def test_intervals_hold_over_many_worlds(worlds, low: float) -> None:  # type: ignore[no-untyped-def]
    found = [held(worlds(40, start=100), reward, 12) for reward in ("sparse", "prm")]
    for key in ("grid", "value", "band"):
        assert np.mean([f[key] for f in found]) > low
