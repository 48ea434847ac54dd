"""Two targets at once: what each wants costs the other what the draws say."""

from __future__ import annotations

import numpy as np
import pytest

from planner.compromise import weigh_targets
from planner.slices import BudgetSlice
from planner.space import PilotSpace
from race.ladders import Ladder
from race.simulator import Settings
from surrogate import Surrogate


class Known:
    """A surrogate that knows: values by update fraction, the same in every draw but for a common shift."""

    def __init__(self, peaks: dict[str, float]) -> None:
        self._peaks = peaks

    def sample(self, settings: Settings, target: str, *, draws: int, seed: int) -> np.ndarray:
        share = np.linspace(0, 1, len(settings))
        shift = np.random.default_rng(seed).normal(0, 0.01, draws)[:, None]
        return 0.8 - 0.4 * (share - self._peaks[target]) ** 2 + shift


def on(rungs: Ladder, *targets: str) -> BudgetSlice:
    return BudgetSlice.build(PilotSpace.build(rungs, budget="1e19", reward="sparse", target=targets))


def weigh(rungs: Ladder, **peaks: float) -> object:
    return weigh_targets(Known(peaks), on(rungs, *peaks), draws=50)  # type: ignore[arg-type]


def test_one_target_needs_no_compromise(rungs: Ladder) -> None:
    assert weigh(rungs, native=0.5) is None


def test_targets_that_agree_cost_each_other_nothing(rungs: Ladder) -> None:
    found = weigh_targets(Known({"native": 0.5, "judge": 0.5}), on(rungs, "native", "judge"), draws=50)  # type: ignore[arg-type]
    assert found is not None
    assert found.between.worst == pytest.approx(0, abs=1e-9)
    assert found.own["native"].to_dict() == found.own["judge"].to_dict()


def test_the_compromise_lies_between_and_its_cost_is_stated(rungs: Ladder) -> None:
    found = weigh_targets(Known({"native": 0.2, "judge": 0.8}), on(rungs, "native", "judge"), draws=50)  # type: ignore[arg-type]
    assert found is not None
    # Each target's best costs the other 0.4 * 0.6 ** 2, half-way costs both 0.4 * 0.3 ** 2.
    assert found.own["native"].losses["native"].value.mean == pytest.approx(0, abs=1e-9)
    assert found.own["native"].losses["judge"].value.mean == pytest.approx(0.144, abs=0.01)
    assert found.own["judge"].losses["native"].value.mean == pytest.approx(0.144, abs=0.01)
    for target in ("native", "judge"):
        assert found.between.losses[target].value.mean == pytest.approx(0.036, abs=0.01)
        # The shift is common to all settings: a difference between settings is certain.
        loss = found.between.losses[target].value
        assert loss.hi - loss.lo < 1e-9
    assert found.between.worst < min(found.own[t].worst for t in ("native", "judge"))
    said = found.sentences()
    assert len(said) == 3
    assert said[0].startswith("best for native: ")
    assert "of judge" in said[0]


def test_a_real_surrogate_can_be_weighed(rungs: Ladder) -> None:
    slice_ = on(rungs, "native", "pass@1", "judge")
    fitted = Surrogate.fit([], ladder=rungs, recipe=slice_.space.recipes[0], targets=slice_.space.targets)
    found = weigh_targets(fitted, slice_, draws=200)
    assert found is not None
    assert set(found.to_dict()) == {"model", "reward", "rho", "losses", "own"}
    for choice in (found.between, *found.own.values()):
        for loss in choice.losses.values():
            assert 0 <= loss.share <= 1.0001
            assert loss.value.lo <= loss.value.mean <= loss.value.hi
