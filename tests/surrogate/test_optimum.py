from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from surrogate_pilots import RUNGS, pilots

from race.allocation import REGIMES, regime_of
from race.errors import CannotDo, InvalidInput
from race.simulator import Worlds, simulate
from surrogate import Surrogate
from surrogate.optimum import Interval, Slice, optimum

RECIPE = RUNGS.recipe("prm")
ON = Slice.build(RUNGS.models, RECIPE, 1e19)


def logit(p: np.ndarray) -> np.ndarray:
    return np.log(p / (1 - p))


def hump(peak: float, *, height: float = 0.7, bend: float = 0.02) -> np.ndarray:
    """One draw, shape (1, L, Q): a parabola in logit rho; larger models higher."""
    value = height - bend * (logit(ON.rhos) - logit(np.array(peak))) ** 2
    return (value + 0.01 * np.arange(len(ON.rhos))[:, None])[None]


@given(st.floats(0.15, 0.8))
def test_a_parabola_is_found_between_grid_points(peak: float) -> None:
    rho, value, at_end = ON.peaks(hump(peak))
    assert np.allclose(rho, peak, atol=1e-6)
    assert np.allclose(value[0], 0.7 + 0.01 * np.arange(3), atol=1e-9)
    assert not at_end.any()


def test_a_peak_on_a_kink_of_the_costs_is_found_exactly() -> None:
    """One pass and two: the grid has them, and a response that turns there is not smoothed away."""
    assert np.all(ON.kinks.sum(axis=1) == 2)
    at = ON.rhos[ON.kinks].reshape(len(ON.rhos), 2)
    for line, price in enumerate(ON.costs):
        assert np.allclose(price.update_ratio(at[line]), [1.0, 2.0])
    x = logit(ON.rhos)
    for which in (0, 1):
        away = x - logit(at[:, [which]])
        tent = 0.6 - np.where(away < 0, -0.05 * away, 0.02 * away) - 0.01 * away**2
        rho, value, at_end = ON.peaks(tent[None])
        assert np.allclose(rho[0], at[:, which], atol=1e-12)
        assert np.allclose(value[0], 0.6)
        assert not at_end.any()


@given(st.integers(0, 5))
def test_a_peak_value_is_never_below_the_grid(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(size=(20, *ON.rhos.shape))
    _, peak, _ = ON.peaks(values)
    assert np.all(peak >= values.max(axis=2) - 1e-12)
    assert np.all(peak <= 1)


def test_a_rising_response_has_its_optimum_at_the_end_and_says_so() -> None:
    rho, _, at_end = ON.peaks(ON.rhos[None])
    assert np.allclose(rho[0], ON.rhos[:, -1])
    assert at_end.all()


def test_a_plateau_is_answered_by_its_middle() -> None:
    flat = np.ones((1, *ON.rhos.shape))
    rho, _, at_end = ON.peaks(flat)
    ends = logit(ON.rhos)[:, [0, -1]].mean(axis=1)
    assert np.allclose(logit(rho[0]), ends)
    assert not at_end.any()


def test_regimes_agree_with_the_definition() -> None:
    for reward in ("sparse", "prm"):
        on = Slice.build(RUNGS.models, RUNGS.recipe(reward), 1e19)
        for line, costs in enumerate(on.costs):
            sigma, rho, phi = costs.shares(costs.update_ratio(on.rhos[line]))
            expected = [REGIMES.index(regime_of(*s)) for s in zip(rho, sigma, phi, strict=True)]
            found = on.regimes(np.full(len(rho), line), on.rhos[line])
            assert found.tolist() == expected


@pytest.fixture(scope="module")
def prior() -> Surrogate:
    return Surrogate.fit([], ladder=RUNGS, recipe=RECIPE)


def test_probabilities_add_up_and_intervals_are_in_order(prior: Surrogate) -> None:
    found = optimum(prior, budget=1e19)
    assert sum(found.regimes.values()) == pytest.approx(1)
    assert sum(m.probability for m in found.models) == pytest.approx(1)
    for interval in (found.rho, found.value, found.regret, *(m.rho for m in found.models)):
        assert 0 <= interval.lo <= interval.mean <= interval.hi <= 1
    assert found.near[0] <= found.recommended_rho <= found.near[1]
    assert found.regime in REGIMES
    assert found.to_dict()["rho_star"]["mean"] == found.rho.mean


def test_same_seed_same_answer(prior: Surrogate) -> None:
    assert optimum(prior, budget=1e19, seed=5) == optimum(prior, budget=1e19, seed=5)


def test_pilots_settle_the_optimum() -> None:
    world = Worlds.prior(1, seed=8)
    found = optimum(
        Surrogate.fit(pilots(12, world, reward="prm", budget=5e18), ladder=RUNGS, recipe=RECIPE), budget=1e19
    )
    truth = simulate(world, ON.settings, targets=("native",))["native"]
    rho, peak, _ = ON.peaks(truth.reshape(1, *ON.rhos.shape))
    best = int(peak.argmax())
    assert found.rho.lo - 0.05 <= rho[0, best] <= found.rho.hi + 0.05
    picked = [m.name for m in ON.models].index(found.model)
    at = int(np.argmin(np.abs(ON.rhos[picked] - found.recommended_rho)))
    assert peak.max() - truth.reshape(ON.rhos.shape)[picked, at] < 0.1 * np.ptp(truth)


def test_models_the_budget_cannot_pay_for_are_left_out_by_name(prior: Surrogate) -> None:
    on = Slice.build(RUNGS.models, RECIPE, 1e30)
    steps = on.settings.step_flops.reshape(on.rhos.shape).min(axis=1)
    found = optimum(prior, budget=float(np.sqrt(steps[1] * steps[2])))
    assert [m.model for m in found.models] == [m.name for m in RUNGS.models[:2]]
    assert any(RUNGS.models[2].name in note for note in found.notes)
    with pytest.raises(CannotDo, match="below one step of every model"):
        optimum(prior, budget=1e12)


def test_settings_the_budget_cannot_pay_a_step_of_are_never_recommended(prior: Surrogate) -> None:
    on = Slice.build(RUNGS.models, RECIPE, 1e30)
    steps = on.settings.step_flops.reshape(on.rhos.shape)[0]
    budget = float(np.median(steps))
    found = optimum(prior, budget=budget, models=[RUNGS.models[0].name])
    assert found.recommended_rho <= on.rhos[0][steps <= budget].max() + 1e-9
    assert found.rho.hi <= on.rhos[0][steps <= budget].max() + 1e-9


def test_one_model_can_be_asked_about_alone(prior: Surrogate) -> None:
    name = RUNGS.models[1].name
    found = optimum(prior, budget=1e19, models=[name])
    assert found.model == name
    assert found.models[0].probability == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": 0.0}, "level"),
        ({"points": 2}, "points"),
        ({"draws": 1}, "draws"),
        ({"models": ["gpt-7"]}, "gpt-7"),
        ({"target": "happiness"}, "target"),
    ],
)
def test_bad_questions_name_the_field(prior: Surrogate, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        optimum(prior, budget=1e19, **changes)  # type: ignore[arg-type]


class Certain:
    """A surrogate stand-in that knows one response exactly, so that caveats can be tested on known shapes."""

    def __init__(self, surrogate: Surrogate, response) -> None:  # type: ignore[no-untyped-def]
        self.ladder, self.recipe, self.response = surrogate.ladder, surrogate.recipe, response

    def sample(self, settings, target, *, draws, seed):  # type: ignore[no-untyped-def]
        value = self.response(settings.rho)
        return np.broadcast_to(value, (draws, len(value)))


def test_caveats_name_flat_tops_and_cut_off_peaks(prior: Surrogate) -> None:
    flat = optimum(Certain(prior, lambda rho: 0.6 - 0.0 * rho), budget=1e19)  # type: ignore[arg-type]
    assert any("flat top" in note for note in flat.notes)
    rising = optimum(Certain(prior, lambda rho: 0.5 + 0.4 * rho), budget=1e19)  # type: ignore[arg-type]
    assert rising.edge == 1
    assert any("cut off" in note for note in rising.notes)
    sharp = optimum(Certain(prior, lambda rho: 0.8 - (rho - 0.4) ** 2), budget=1e19)  # type: ignore[arg-type]
    assert sharp.edge == 0
    assert not sharp.notes
    assert sharp.rho.mean == pytest.approx(0.4, abs=0.01)
    assert sharp.regret.hi == pytest.approx(0, abs=1e-3)


def test_interval_contains_its_mean() -> None:
    skewed = np.concatenate([np.zeros(99), [1.0]])
    found = Interval.of(skewed, 0.9)
    assert found.lo <= found.mean <= found.hi
    assert replace(found, mean=0.0).to_dict() == {"mean": 0.0, "lo": found.lo, "hi": found.hi}
