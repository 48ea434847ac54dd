"""The posterior widens where it does not foretell what it was not shown, and is left alone where it does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from surrogate_pilots import RUNGS, record, spec

from race.errors import InvalidInput
from race.records import PilotRecord
from race.simulator import Settings
from race.simulator.worlds import own_worlds
from surrogate import Surrogate
from surrogate.calibration import (
    BELIEVED,
    MAX_SPREAD,
    errors_left_out,
    settings_of,
    spread_factor,
    spread_note,
)
from surrogate.left_out import LeftOut
from surrogate.optimum import optimum
from surrogate.posterior import Component

RECIPE = RUNGS.recipe("sparse")


def fit(records: list[PilotRecord]) -> Surrogate:
    return Surrogate.fit(records, ladder=RUNGS, recipe=RECIPE)


def scattered(seeds: int = 1) -> list[PilotRecord]:
    """Settings whose ends no smooth response explains, each with as many seeds that agree with each other."""
    ends = [0.15, 0.85, 0.2, 0.9, 0.1, 0.8, 0.25, 0.9]
    return [
        record(
            spec(model=i % 3, rho=0.3 + 0.07 * i, budget=4e17, seed=10 * i + s),
            lambda share, end=end: 0.3 + (end - 0.3) * share,
        )
        for i, end in enumerate(ends)
        for s in range(seeds)
    ]


def test_worlds_of_the_prior_are_left_nearly_alone() -> None:
    found = []
    for number, world in enumerate(own_worlds(8)):
        rng = np.random.default_rng(number)
        records = [
            world(spec(model=i % 3, rho=float(rng.uniform(0.2, 0.9)), budget=4e17, seed=i)) for i in range(9)
        ]
        found.append(fit(records).spread)
    assert min(found) >= 1
    assert np.mean(found) < 1.15
    assert max(found) < 1.5


def test_pilots_that_contradict_each_other_widen_everything() -> None:
    fitted = fit(scattered())
    assert 1.2 < fitted.spread <= MAX_SPREAD
    assert any(f"widened {fitted.spread:.1f} times" in note for note in fitted.notes)
    state = fitted.state
    plain = replace(fitted, state=replace(state, posterior=replace(state.posterior, spread=1.0)))
    asked = Settings.grid(RUNGS, RECIPE, rhos=[0.3, 0.7], budgets=[1e19])
    points = fitted.points(asked, "native")
    mean, covariance = state.posterior.moments(points)
    before = plain.state.posterior.moments(points)
    assert np.allclose(mean, before[0])
    assert np.allclose(covariance, fitted.spread**2 * before[1])
    wide, narrow = (s.state.posterior.draws(points, 400, np.random.default_rng(1)) for s in (fitted, plain))
    assert np.allclose(wide - mean, fitted.spread * (narrow - mean))
    assert np.all(fitted.predict(asked, "native").sd > plain.predict(asked, "native").sd)
    assert fitted.run_variance == pytest.approx(fitted.spread**2 * plain.run_variance)
    sure, surer = (max(m.probability for m in optimum(s, budget=1e19).models) for s in (fitted, plain))
    assert sure < surer


def test_seeds_of_one_setting_do_not_vouch_for_the_fit() -> None:
    """Each setting is left out with all its seeds, so copies of a run do not make the errors smaller."""
    fitted = fit(scattered(seeds=3))
    data = fitted.state.data
    groups = settings_of(data)
    assert len(groups) == 8
    assert sorted(np.concatenate(groups)) == list(range(len(data)))
    assert fitted.spread > 1.2


def test_a_setting_left_out_is_a_fit_without_it() -> None:
    fitted = fit(scattered(seeds=2))
    state = fitted.state
    data = state.data
    group = settings_of(data)[3]
    rest = np.setdiff1d(np.arange(len(data)), group)
    whole = state.posterior.components[0]
    kept = state.inflation[np.unique(data.run[rest])]
    part = Component(data[rest], whole.theta, whole.bandwidth, state.variance[rest], kept)
    told = LeftOut(whole).predict(group)
    assert told.evidence == pytest.approx(part.evidence)
    assert np.allclose(told.means[part.worlds], part.means(data[group]), atol=1e-6)


def test_few_pilots_change_little_and_one_nothing() -> None:
    records = scattered()
    assert fit(records[:1]).spread == 1
    two = fit(records[:2])
    assert two.spread <= ((BELIEVED + 2 * 9) / (BELIEVED + 2)) ** 0.5
    assert fit([]).spread == 1


def test_the_factor_is_the_formula() -> None:
    state = fit(scattered()).state
    found = errors_left_out(state.posterior.components, state.posterior.weights, state.data)
    expected = np.sqrt(max(1.0, (5 + np.minimum(found, 9).sum()) / (5 + len(found))))
    assert spread_factor(state.posterior.components, state.posterior.weights, state.data) == pytest.approx(expected)
    assert spread_note(1.0) is None


def test_running_pilots_keep_the_widening() -> None:
    fitted = fit(scattered())
    ahead = fitted.condition(Settings.grid(RUNGS, RECIPE, rhos=[0.5], budgets=[4e17]))
    assert ahead.spread == fitted.spread


def test_a_fresh_run_may_be_as_odd_as_those_that_were_doubted() -> None:
    fitted = fit(scattered())
    runs = len(fitted.state.inflation)
    trusted = replace(fitted, state=replace(fitted.state, inflation=np.ones(runs)))
    doubted = replace(fitted, state=replace(fitted.state, inflation=np.array([16.0] + [1.0] * (runs - 1))))
    assert doubted.run_variance == pytest.approx(trusted.run_variance * (16 + runs - 1) / runs)


def test_it_is_saved_and_checked(tmp_path: Path) -> None:
    fitted = fit(scattered())
    fitted.save(tmp_path / "kept")
    assert Surrogate.load(tmp_path / "kept").spread == fitted.spread
    text = (tmp_path / "kept" / "surrogate.json").read_text()
    for damaged in ('"spread": 0.5', '"spread": 1e9', '"spread": "wide"', '"spread": true', '"spread": NaN'):
        (tmp_path / "kept" / "surrogate.json").write_text(text.replace(f'"spread": {fitted.spread}', damaged))
        with pytest.raises(InvalidInput, match=r"spread"):
            Surrogate.load(tmp_path / "kept")
