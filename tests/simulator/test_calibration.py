"""The shipped calibration reproduces the published numbers, and what nothing constrains stays wide."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from race.simulator.calibrate import Calibration, calibrate, constrained, main, shipped, table, write
from race.simulator.ensemble import SCHEMA, Worlds, before_calibration, posterior
from race.simulator.parameters import NAMES, PARAMETERS
from race.simulator.sources import SETUP, Family, families, published

FAMILIES = {family.name: family for family in families()}


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """Part of the ensemble: enough for means and intervals, and fast."""
    whole = shipped()
    return Calibration(whole.z[:160], {name: values[:160] for name, values in whole.nuisance.items()})


def residual(family: Family, calibration: Calibration) -> np.ndarray:
    return family.predict(calibration.worlds, calibration.nuisance).mean(axis=0) - family.observed


def rmse(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def test_qwen25_law_within_two_points_over_its_valid_range(calibration: Calibration) -> None:
    off = residual(FAMILIES["law"], calibration).reshape(3, -1)
    assert [rmse(row) < 0.02 for row in off] == [True] * 3
    assert rmse(off) < 0.01


def test_qwen3_curves_within_three_points_from_step_8(calibration: Calibration) -> None:
    step = np.array(published()["qwen3"]["step"])
    off = residual(FAMILIES["qwen3"], calibration).reshape(3, -1)[:, step >= 8]
    assert [rmse(row) < 0.03 for row in off] == [True] * 3


@pytest.mark.parametrize(
    ("name", "limit"),
    [("group_size", 0.02), ("pods", 0.03), ("epochs", 0.06), ("critical_batch", 0.4), ("process_speed", 0.35),
     ("benchmarks", 0.05), ("paper", 0.07)],
)  # fmt: skip
def test_other_numbers_within_their_own_error(calibration: Calibration, name: str, limit: float) -> None:
    assert rmse(residual(FAMILIES[name], calibration)) < limit


def test_most_published_numbers_lie_in_the_posterior_predictive_interval(calibration: Calibration) -> None:
    rng = np.random.default_rng(0)
    inside = []
    for family in FAMILIES.values():
        predicted = family.predict(calibration.worlds, calibration.nuisance)
        predicted = predicted + family.sd * rng.standard_normal(predicted.shape)
        low, high = np.quantile(predicted, (0.05, 0.95), axis=0)
        inside.append((family.observed >= low) & (family.observed <= high))
    assert np.concatenate(inside).mean() > 0.85


def test_parameters_no_number_constrains_stay_as_wide_as_before(calibration: Calibration) -> None:
    _, sd = before_calibration()
    ratio = dict(zip(NAMES, shipped().z.std(axis=0) / sd, strict=True))
    for name in (*SETUP, "format0", "collapse", "seed_sd", "judge_shift", "kl_brake"):
        assert 0.9 < ratio[name] < 1.1, name
    assert ratio["theta0"] < 0.6
    assert ratio["headroom"] < 0.7
    text = constrained(calibration)
    assert all(p.name in text for p in PARAMETERS)


def test_every_parameter_says_where_its_prior_comes_from() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for p in PARAMETERS:
        assert p.sd > 0
        assert p.meaning
        assert p.basis
        assert p.scale == "real" or p.center > 0


def test_draws_keep_mean_and_spread_and_are_new_worlds() -> None:
    draws = Worlds.prior(6000, seed=1).unconstrained()
    z = shipped().z
    assert np.all(np.abs(draws.mean(axis=0) - z.mean(axis=0)) < 0.06 * z.std(axis=0))
    assert np.allclose(draws.std(axis=0), z.std(axis=0), rtol=0.1)
    assert len(np.unique(draws, axis=0)) == 6000
    assert np.array_equal(Worlds.prior(5, seed=7).values, Worlds.prior(5, seed=7).values)
    assert not np.array_equal(Worlds.prior(5, seed=7).values, Worlds.prior(5, seed=8).values)


def test_calibrating_on_one_family_moves_towards_it_and_leaves_the_rest(tmp_path: Path) -> None:
    law = FAMILIES["law"]
    before = calibrate([], members=200, seed=3, every=[law])
    after = calibrate([law], members=200, seed=3)
    assert rmse(residual(law, after)) < 0.5 * rmse(residual(law, before))
    column = NAMES.index("judge_shift")
    assert np.array_equal(before.z[:, column], after.z[:, column])
    write(after, tmp_path / "posterior.json")
    data = json.loads((tmp_path / "posterior.json").read_text())
    assert data["schema"] == SCHEMA
    assert np.allclose(data["members"], after.z, rtol=1e-3)
    assert data["nuisances"] == list(law.nuisances)


@pytest.mark.slow
def test_show_prints_every_published_number(capsys: pytest.CaptureFixture[str]) -> None:
    before = posterior()
    main(["--show"])
    text = capsys.readouterr().out
    for family in FAMILIES.values():
        assert family.source in text
        assert all(label in text for label in family.labels)
    assert posterior() == before


def test_table_states_published_simulated_and_residual(calibration: Calibration) -> None:
    row = table([FAMILIES["law"]], calibration).splitlines()[3]
    cells = row[62:].split()
    observed, simulated, off = float(cells[0]), float(cells[1]), float(cells[-1])
    assert observed == pytest.approx(FAMILIES["law"].observed[0], abs=1e-3)
    assert off == pytest.approx(simulated - observed, abs=2e-3)
