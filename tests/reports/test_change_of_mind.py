"""Which pilot would flip a decision: sure ones are not flipped, close ones are, and the threshold is the right way."""

from __future__ import annotations

import numpy as np
import pytest
from report_records import BUDGET, RUNGS

from planner.change_of_mind import MARGIN, OUTCOMES, MindChanger, _best, _changer, change_of_mind
from planner.space import Cell, PilotSpace
from surrogate import Surrogate

SPACE = PilotSpace.build(RUNGS, budget=BUDGET, reward="sparse")
NAMES = [("small", "update-heavy"), ("large", "update-heavy")]


def changer(lead: float, swing: float, *, healthy: float = 1.0) -> MindChanger:
    """A decision ahead by ``lead`` whose rival gains ``swing`` per unit of the pilot's outcome."""
    from planner.change_of_mind import _Z

    tops = np.array([np.full(OUTCOMES, 0.5), 0.5 - lead + swing * _Z])
    return _changer(SPACE, Cell(0, 0, 0, 0.5), tops, 0, NAMES, 0.0, 1.0, healthy)


@pytest.mark.parametrize(("lead", "swing"), [(0.02, 0.05), (0.0, 0.05), (0.05, 0.03), (0.02, -0.05)])
def test_the_probability_is_that_of_the_rival_ahead_by_the_margin(lead: float, swing: float) -> None:
    from statistics import NormalDist

    found = changer(lead, swing)
    needed = (lead + MARGIN) / abs(swing)
    assert found.probability == pytest.approx(1 - NormalDist().cdf(needed), abs=1.5 / OUTCOMES)
    assert found.to == NAMES[1]
    assert found.above is (swing > 0)
    assert (found.threshold > found.expected) is (swing > 0)


def test_no_flip_and_a_pilot_that_collapses() -> None:
    never = changer(0.5, 0.01)
    assert (never.probability, never.threshold, never.to) == (0, None, NAMES[0])
    assert changer(0.0, 0.05, healthy=0.5).probability == pytest.approx(changer(0.0, 0.05).probability / 2)


def test_the_prior_can_be_moved_and_each_model_and_size_comes_once() -> None:
    prior = Surrogate.fit([], ladder=RUNGS, recipe=RUNGS.recipe("sparse"))
    found = change_of_mind(prior, SPACE, count=50)
    keys = [(one.model, one.reward, one.budget) for one in found]
    assert len(keys) == len(set(keys))
    assert all(one.budget <= SPACE.pilot_budget for one in found)
    assert found[0].probability >= found[-1].probability
    assert _best(found, 3) == found[:3]


def test_a_pilot_budget_that_pays_for_nothing() -> None:
    prior = Surrogate.fit([], ladder=RUNGS, recipe=RUNGS.recipe("prm"))
    assert change_of_mind(prior, PilotSpace.build(RUNGS, budget=BUDGET, reward="prm", pilot_budget=10**10)) == []
