"""Worlds without dynamics: what they keep of the simulator, and what they do not."""

import numpy as np
import pytest
from surrogate_pilots import RUNGS

from race.simulator import Settings, Worlds, simulate
from surrogate.ensemble import LOCAL_EVERY, SHARES, Ensemble
from surrogate.link import to_value
from surrogate.local import LocalResponses

RHOS = np.linspace(0.15, 0.95, 25)
GRID = Settings.grid(RUNGS, RUNGS.recipe("prm"), rhos=RHOS, budgets=[1e17, 1e19])
PLACE = LOCAL_EVERY - 1


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return Ensemble(Worlds.prior(4 * LOCAL_EVERY, seed=3))


def test_a_response_is_one_bump_in_the_log_of_the_update_ratio() -> None:
    responses = LocalResponses(np.arange(20))
    one = Settings.grid(RUNGS, RUNGS.recipe("sparse"), models=[RUNGS.models[0].name], rhos=RHOS, budgets=[1e18])
    gain = responses.gain(one, "native", np.full(len(one), 1e4))
    assert gain.shape == (20, 25)
    assert np.all((gain >= 0) & (gain < 1))
    log_gain, at = np.log(gain), np.log(one.a)
    curvature = np.diff(np.diff(log_gain, axis=1) / np.diff(at), axis=1) / (at[2:] - at[:-2])
    assert np.allclose(curvature, curvature[:, :1], rtol=1e-4)  # a parabola in ln a, and nothing else
    assert np.all(curvature < 0)
    more = responses.gain(one, "native", np.full(len(one), 1e5))
    assert np.all(more > gain)


def test_a_world_keeps_its_response_whatever_the_ensemble() -> None:
    few, many = LocalResponses(np.array([7, 15])), LocalResponses(np.array([3, 7, 15, 200]))
    samples = GRID.steps * GRID.samples
    assert np.array_equal(few.gain(GRID, "judge", samples), many.gain(GRID, "judge", samples)[1:3])
    assert len(LocalResponses(np.empty(0, dtype=np.intp))) == 0


def test_base_models_are_the_simulators(ensemble: Ensemble) -> None:
    nothing = GRID.with_budget(1.0)
    expected = simulate(ensemble.worlds, nothing, targets=("native",))["native"]
    assert np.allclose(to_value(ensemble.base(GRID, "native")), expected, atol=1e-6)


def test_curves_end_where_runs_of_that_budget_do(ensemble: Ensemble) -> None:
    along = ensemble.along(GRID, ["native"])["native"]
    assert along.shape == (len(ensemble.worlds), len(GRID), len(SHARES))
    assert np.allclose(along[:, :, -1], ensemble.at(GRID, "native"), atol=1e-6)
    assert np.allclose(along[PLACE, :, 0], ensemble.base(GRID, "native")[PLACE], atol=1e-6)


def test_a_small_ensemble_is_the_simulator_alone() -> None:
    few = Ensemble(Worlds.prior(PLACE, seed=1))
    expected = simulate(few.worlds, GRID, targets=("native",))["native"]
    assert np.allclose(to_value(few.at(GRID, "native")), expected)
