from __future__ import annotations

import pytest

from planner import Planner, StoppingRule
from planner.decision import Decision
from race.errors import InvalidInput
from race.ladders import ladder


@pytest.fixture(scope="module")
def decision() -> Decision:
    return Planner(ladder("qwen2.5"), budget="1e19", reward="sparse").decide(pilots=0)


def check(rule: StoppingRule, decision: Decision, **changes: float | None) -> str | None:
    state = {"finished": 5, "spent": 4e17, "pilot_budget": 10**18, "smallest": 3e16, **changes}
    stop = rule.check(decision, **state)  # type: ignore[arg-type]
    if stop is not None:
        assert stop.reason
        assert "\n" not in stop.reason
    return None if stop is None else stop.code


def test_goes_on_while_unsure_and_solvent(decision: Decision) -> None:
    assert check(StoppingRule(certainty=1.0), decision) is None


def test_certain_enough_stops_but_never_on_the_prior_alone(decision: Decision) -> None:
    rule = StoppingRule(certainty=0.5, min_pilots=3)
    assert decision.certainty >= 0.5 or len(decision.view.regimes) == 3
    enough = decision.certainty >= 0.5
    assert (check(rule, decision, finished=3) == "regime-certain") == enough
    assert check(rule, decision, finished=2) is None


def test_spent_budget_stops(decision: Decision) -> None:
    rule = StoppingRule(certainty=1.0)
    assert check(rule, decision, spent=1e18 - 2e16) == "budget-spent"
    assert check(rule, decision, spent=1e18 - 3e16) is None
    assert check(rule, decision, smallest=None) == "nothing-fits"


@pytest.mark.parametrize("changes", [{"certainty": 0.2}, {"certainty": 1.1}, {"min_pilots": -1}])
def test_limits_are_checked(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        StoppingRule(**changes)  # type: ignore[arg-type]
