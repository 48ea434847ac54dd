import numpy as np
import pytest
from surrogate_pilots import RUNGS, record, spec

from race.records import Health
from race.simulator import Settings
from surrogate import Surrogate
from surrogate.risk import collapse_risk

GRID = Settings.grid(RUNGS, RUNGS.recipe("prm"), rhos=[0.2, 0.8], budgets=[1e18])


def fit(collapsed: int, healthy: int, status: str = "collapsed") -> Surrogate:
    sick = Health(status, "reward fell")  # type: ignore[arg-type]
    records = [record(spec("prm", seed=i), 0.4, health=sick) for i in range(collapsed)]
    records += [record(spec("prm", seed=1000 + i), 0.4) for i in range(healthy)]
    return Surrogate.fit(records, ladder=RUNGS, recipe=RUNGS.recipe("prm"))


def test_without_runs_the_risk_is_close_to_the_simulators() -> None:
    prior = fit(0, 0)
    simulated = prior.ensemble.collapse(GRID).mean(axis=0)
    risk = prior.collapse_risk(GRID)
    assert risk.shape == (len(GRID),)
    assert np.all((risk > 0) & (risk < 1))
    assert np.all(np.abs(np.log(risk / simulated)) < 2)


def test_collapses_raise_the_risk_and_healthy_runs_lower_it() -> None:
    some, none, prior = (fit(*counts).collapse_risk(GRID) for counts in ((6, 2), (0, 12), (0, 0)))
    assert np.all(none < prior)
    assert np.all(prior < some)


def test_a_hundred_collapses_are_believed_over_the_simulator() -> None:
    at = Settings.build([(RUNGS.models[0], spec("prm").recipe, spec("prm").budget)])
    assert fit(100, 0).collapse_risk(at)[0] > 0.9


@pytest.mark.parametrize(("status", "moves"), [("diverged", True), ("failed", False)])
def test_what_counts_as_a_collapse(status: str, moves: bool) -> None:
    before, after = fit(0, 3).collapse_risk(GRID), fit(8, 3, status).collapse_risk(GRID)
    assert np.allclose(before, after) is not moves


def test_the_offset_finds_a_common_rate() -> None:
    """One world that says 1 % and runs that collapse half of the time."""
    seen = np.full((1, 200), 0.01)
    outcome = np.tile([0.0, 1.0], 100)
    assert collapse_risk(seen, outcome, np.array([[0.01]]))[0] == pytest.approx(0.5, abs=0.05)
