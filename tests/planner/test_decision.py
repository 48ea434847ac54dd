from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Planner
from planner.sizing import MIN_SPENT
from planner.slices import BudgetSlice, regime_probabilities
from planner.space import PilotSpace
from race.allocation import regime_of
from race.ladders import Ladder, ladder
from tests.planner.conftest import World

RUNGS = ladder("qwen2.5")


def test_the_keys_that_stay(rungs: Ladder) -> None:
    data = Planner(rungs, budget="1e19", reward="prm").decide().to_dict()
    assert {"budget", "reward", "target", "evidence", "regime", "recommendation", "pilots"} <= set(data)
    assert set(data["evidence"]) == {"real", "imported", "simulated"}
    assert set(data["regime"]) == {"label", "probabilities"}
    advice = data["recommendation"]
    assert {"model", "rho", "update_ratio", "shares", "recipe", "flops", "value"} <= set(advice)
    assert set(advice["rho"]) == set(advice["value"]) == {"mean", "lo", "hi"}
    assert set(advice["shares"]) == {"search", "learning", "reward"}
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_with_no_evidence_it_is_the_prior_and_says_so(rungs: Ladder) -> None:
    decision = Planner(rungs, budget="1e19", reward="prm").decide()
    assert decision.prior_only
    assert sum(decision.evidence.values()) == 0
    assert any("prior" in note for note in decision.notes)
    assert decision.rho.hi - decision.rho.lo > 0.3
    assert decision.view.value.hi - decision.view.value.lo > 0.1


def test_evidence_ends_the_prior_only_answer_and_narrows_it(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    before = planner.decide(pilots=0)
    for _ in range(6):
        spec = planner.ask()
        planner.tell(spec, bump(spec))
    after = planner.decide(pilots=0)
    assert not after.prior_only
    assert not any("nothing is measured" in note for note in after.notes)
    assert after.view.value.hi - after.view.value.lo < before.view.value.hi - before.view.value.lo


@given(
    exponent=st.floats(15.5, 22),
    reward=st.sampled_from(["sparse", "structured", "dense", "proxy-prm", "prm"]),
    target=st.sampled_from(["native", "judge", "pass@1"]),
)
@settings(max_examples=15, deadline=None)
def test_probabilities_intervals_and_budget(exponent: float, reward: str, target: str) -> None:
    decision = Planner(RUNGS, budget=10**exponent, reward=reward, target=target).decide(pilots=1)
    assert sum(decision.view.regimes.values()) == pytest.approx(1)
    assert sum(decision.view.models.values()) == pytest.approx(1)
    assert decision.certainty == max(decision.view.regimes.values())
    for interval in (decision.rho, decision.view.value):
        assert 0 <= interval.lo <= interval.mean <= interval.hi <= 1
    advice = decision.to_dict()["recommendation"]
    assert advice["rho"]["mean"] == pytest.approx(advice["shares"]["learning"])
    flops = decision.sized.plan.flops.total
    assert MIN_SPENT * decision.budget <= flops <= decision.budget
    assert sum(decision.to_dict()["recommendation"]["shares"].values()) == pytest.approx(1)


def test_a_model_whose_step_does_not_fit_is_left_out_with_a_note(rungs: Ladder) -> None:
    decision = Planner(rungs, budget="2.5e14", reward="sparse").decide()
    assert decision.model != rungs.models[2].name
    assert decision.view.models[rungs.models[2].name] == 0
    assert any(rungs.models[2].name in note and "left out" in note for note in decision.notes)


def test_several_targets_are_all_reported_and_disagreement_is_said(rungs: Ladder) -> None:
    planner = Planner(rungs, budget="1e19", reward="prm", target=("native", "pass@1", "judge"))
    decision = planner.decide()
    assert list(decision.to_dict()["targets"]) == ["native", "pass@1", "judge"]
    differ = {(v.model, v.regime) for v in (decision.view, *decision.others)}
    assert any("targets disagree" in note for note in decision.notes) == (len(differ) > 1)
    assert planner.next_pilots(1)[0].targets == ("native", "pass@1", "judge")


def test_choosing_a_reward_system(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward=("sparse", "prm"), target="judge")
    for _ in range(3):
        spec = planner.ask()
        planner.tell(spec, bump(spec))
    decision = planner.decide()
    assert decision.reward in ("sparse", "prm")
    assert decision.sized.plan.recipe.reward == decision.reward
    assert {s.reward for s in planner.progress.pending + tuple(p.spec for p in planner.progress.pilots)} == {
        "sparse", "prm"}  # fmt: skip


@given(seed=st.integers(0, 500), reward=st.sampled_from(["sparse", "prm"]))
@settings(max_examples=25, deadline=None)
def test_each_draw_is_read_like_a_landscape(seed: int, reward: str) -> None:
    """Planted optima are found: model, rho between grid points, and the regime of the shares there."""
    space = PilotSpace.build(RUNGS, budget="1e19", reward=reward)
    on = BudgetSlice.build(space)
    rng = np.random.default_rng(seed)
    model = int(rng.integers(3))
    low, high = np.log(space.rho_range(model, 0)) - np.log1p(-np.array(space.rho_range(model, 0)))
    at = rng.uniform(low + 0.3, high - 0.3)
    logit = np.log(on.rhos / (1 - on.rhos))
    value = 0.5 - 0.02 * (logit - at) ** 2 - 0.1 * (np.arange(3)[:, None] != model)
    found = on.optima(value.reshape(1, -1))
    rho = 1 / (1 + np.exp(-at))
    assert found.line[0] == model
    assert found.rho[0] == pytest.approx(rho, abs=1e-6)
    assert found.value[0] == pytest.approx(0.5, abs=1e-9)
    sigma, learning, phi = space.costs[0][model].shares(space.costs[0][model].update_ratio(rho))
    assert regime_probabilities(found)[regime_of(float(learning), float(sigma), float(phi))] == 1.0
