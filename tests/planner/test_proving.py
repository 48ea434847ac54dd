"""A regime does not count as certain before the models in the race have been seen at a larger size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import PilotSpace, Planner, StoppingRule
from planner.decision import Decision
from planner.progress import Pilot, PilotState, Progress
from planner.proving import IN_THE_RACE, in_the_race, missing_proof, proof_running
from planner.space import Cell
from race.ladders import Ladder
from tests.planner.conftest import World

SURE = StoppingRule(certainty=0.5, min_pilots=1)


@pytest.fixture(scope="module")
def decision(rungs: Ladder) -> Decision:
    return Planner(rungs, budget="1e19", reward="sparse").decide(pilots=0)


def racing(decision: Decision, **models: float) -> Decision:
    """The decision with other probabilities of the models: small, middle, large."""
    names = list(decision.view.models)
    found = dict(zip(names, (models.get(k, 0.0) for k in ("small", "middle", "large")), strict=True))
    return replace(decision, view=replace(decision.view, models=found))


def progress(space: PilotSpace, *sizes: tuple[int, int], state: PilotState = "lost") -> Progress:
    """Pilots of (model, size index)."""
    specs = [space.spec(Cell(model, 0, size, 0.6), seed=i) for i, (model, size) in enumerate(sizes)]
    return Progress(tuple(Pilot(i, spec, state) for i, spec in enumerate(specs)))


def able(model: str, reward: str, size: int) -> bool:
    return True


def test_who_is_in_the_race(decision: Decision) -> None:
    found = in_the_race(racing(decision, small=0.94, middle=IN_THE_RACE, large=IN_THE_RACE / 2))
    names = list(decision.view.models)
    assert list(found) == names[:2]
    assert found[names[0]] == decision.view.best_of[names[0]]


@pytest.mark.parametrize(
    ("models", "size", "model"),
    [
        ({"small": 0.99}, 3, 0),  # one alone: half of the pilot budget
        ({"small": 0.9, "large": 0.1}, 2, 0),  # two share that half
        ({"small": 0.5, "middle": 0.3, "large": 0.2}, 1, 0),  # an eighth each
    ],
)
def test_the_size_is_what_half_of_the_pilot_budget_pays_for_all(
    space: PilotSpace, decision: Decision, models: dict[str, float], size: int, model: int
) -> None:
    proof = missing_proof(space, racing(decision, **models), progress(space, (0, 0), (1, 0), (2, 0)), able)
    assert proof is not None
    assert (proof.model, proof.size) == (space.models[model].name, size)


def test_whoever_has_been_seen_least_is_next_and_each_once(space: PilotSpace, decision: Decision) -> None:
    two = racing(decision, small=0.9, large=0.1)
    proof = missing_proof(space, two, progress(space, (0, 2), (2, 0)), able)
    assert proof is not None
    assert proof.model == space.models[2].name
    # A pilot that was bought and lost counts as bought, or a model that cannot be run would eat the budget.
    assert missing_proof(space, two, progress(space, (0, 2), (2, 2)), able) is None


def test_what_cannot_be_run_or_paid_for_is_not_asked_for(space: PilotSpace, decision: Decision) -> None:
    one = racing(decision, small=0.99)
    assert missing_proof(space, one, progress(space, (0, 0)), lambda *_: False) is None
    proof = missing_proof(space, one, progress(space, (1, 3), (2, 2), (0, 0)), able)
    assert proof is not None
    assert proof.size == 1
    assert missing_proof(space, one, progress(space, (1, 3), (2, 3)), able) is None


def test_a_larger_pilot_that_runs_is_waited_for(space: PilotSpace, decision: Decision) -> None:
    one = racing(decision, small=0.99)
    ended = progress(space, (0, 0)).pilots
    out = Pilot(1, space.spec(Cell(0, 0, 2, 0.6), seed=9), "running")
    other = replace(out, spec=space.spec(Cell(1, 0, 2, 0.6), seed=9))
    assert proof_running(space, one, Progress((*ended, out)))
    assert not proof_running(space, one, Progress((*ended, other)))
    assert not proof_running(space, one, Progress((*ended, replace(out, state="lost"))))


def test_a_plan_is_not_certain_before_that(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse", rule=SURE)
    planner.run(bump)
    stop = planner.stopped()
    assert stop is not None
    assert stop.code == "regime-certain"
    seen = dict.fromkeys(planner.decide(pilots=0).view.models, 0)
    for record in planner.progress.records:
        seen[record.spec.model] = max(seen[record.spec.model], record.spec.budget)
    for model in in_the_race(planner.decide(pilots=0)):
        assert seen[model] > planner.space.sizes[0]
    whys = [t.user_attrs["race:why"]["by"] for t in planner.study.trials]
    assert "proof" in whys
    assert planner.progress.spent <= planner.space.pilot_budget


def test_evidence_of_large_runs_is_proof_enough(rungs: Ladder, bump: World) -> None:
    space = PilotSpace.build(rungs, budget="1e19", reward="sparse")
    records = [bump(space.spec(Cell(model, 0, 3, 0.6), seed=model)) for model in range(3)]
    planner = Planner(rungs, budget="1e19", reward="sparse", rule=replace(SURE, min_pilots=0), records=records)
    stop = planner.stopped()
    assert stop is not None
    assert stop.code == "regime-certain"


def test_a_decision_far_from_its_pilots_says_so(rungs: Ladder, bump: World) -> None:
    space = PilotSpace.build(rungs, budget="1e19", reward="sparse")
    small = [bump(space.spec(Cell(model, 0, 0, 0.6), seed=model)) for model in range(3)]
    large = [bump(replace(s.spec, budget=2 * 10**18, seed=7)) for s in small]

    def note(records: list[object]) -> tuple[float, list[str]]:
        decision = Planner(rungs, budget="1e19", reward="sparse", records=records).decide(pilots=0)  # type: ignore[arg-type]
        said = decision.to_dict()
        return said["recommendation"]["largest_run"], [n for n in said["notes"] if "in evidence" in n]

    far, said = note([*small])
    assert far == pytest.approx(6.25e16, rel=1e-6)
    assert len(said) == 1
    assert "1/160 of the budget" in said[0]
    near, said = note([*small, *large])
    assert near == pytest.approx(2e18, rel=1e-6)
    assert said == []
    assert note([]) == (0.0, [])  # the prior says already that nothing is measured


def test_all_targets_have_to_be_certain(decision: Decision) -> None:
    unsure = replace(decision.view, regimes={"update-heavy": 0.6, "search-heavy": 0.4, "reward-heavy": 0.0})
    sure = replace(decision.view, regimes={"update-heavy": 0.95, "search-heavy": 0.05, "reward-heavy": 0.0})
    assert replace(decision, view=sure, others=()).certain(0.9)
    assert not replace(decision, view=sure, others=(replace(unsure, regime="update-heavy"),)).certain(0.9)
