"""The loop from outside: ask, tell, decide, resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import NoProposal, Planner, StoppingRule
from race.allocation import Allocation
from race.errors import CannotDo, InvalidInput
from race.ladders import Ladder
from race.records import Health, PilotRecord, PilotSpec
from race.simulator import Worlds, run_world
from race.store import Store
from tests.planner.conftest import World, bump_world

NEVER = StoppingRule(certainty=1.0, min_pilots=10**6)


def steps(planner: Planner, world: World, count: int) -> list[PilotSpec]:
    asked = []
    for _ in range(count):
        spec = planner.ask()
        planner.tell(spec, world(spec))
        asked.append(spec)
    return asked


def test_the_first_pilots_are_the_grid_and_then_gain_takes_over(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="prm")
    asked = steps(planner, bump, 5)
    assert {s.model for s in asked[:3]} == {m.name for m in rungs.models}
    why = [t.user_attrs["race:why"]["by"] for t in planner.study.trials]
    assert why == ["grid"] * 3 + ["gain"] * 2


def test_never_more_than_the_pilot_budget(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="prm", rule=NEVER)
    planner.run(bump)
    assert 0 < planner.progress.spent <= planner.space.pilot_budget
    assert planner.progress.finished >= 4
    with pytest.raises(NoProposal, match="pilot FLOPs is left"):
        planner.ask()
    assert not planner.progress.pending


def test_running_pilots_reserve_their_budget(rungs: Ladder) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    specs = planner.next_pilots(100)
    assert len(specs) >= 4
    assert [planner.ask() for _ in specs] == specs
    with pytest.raises(NoProposal, match="running pilots hold a part"):
        planner.ask()
    assert sum(s.budget for s in specs) <= planner.space.pilot_budget
    assert planner.remaining == planner.space.pilot_budget - sum(s.budget for s in specs)


def test_two_pending_proposals_differ(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    steps(planner, bump, 4)
    a, b = planner.ask(), planner.ask()
    assert (a.model, a.rho, a.budget) != (b.model, b.rho, b.budget)
    assert a.seed != b.seed


def test_what_a_running_pilot_will_tell_is_not_bought_twice(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="prm")
    steps(planner, bump, 3)
    cell = planner.proposer.propose(planner.progress).cell
    same = {"model": cell.model, "size": 0, "rho": cell.rho}
    alone = planner.proposer.propose(planner.progress, fixed=same)
    running = planner.progress.with_running([planner.space.spec(replace(cell, size=0), seed=i) for i in range(4)])
    beside = planner.proposer.propose(running, fixed=same)
    assert alone.cell == beside.cell
    assert alone.gain is not None
    assert beside.gain is not None
    assert beside.gain < 0.9 * alone.gain


def test_next_pilots_are_what_ask_would_give(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    steps(planner, bump, 3)
    shown = planner.next_pilots(3)
    assert [planner.ask() for _ in range(3)] == shown


@pytest.mark.parametrize("where", ["plan.db", "plan.journal"])
def test_resuming_equals_going_on(rungs: Ladder, bump: World, tmp_path: Path, where: str) -> None:
    def fresh(storage: str | None) -> Planner:
        return Planner(rungs, budget="1e19", reward="prm", storage=storage, seed=5)

    undisturbed = fresh(None)
    expected = steps(undisturbed, bump, 6)
    storage = str(tmp_path / where)
    got = []
    for _ in range(6):  # a new process every time, as far as the planner can tell
        got += steps(fresh(storage), bump, 1)
    assert got == expected
    assert fresh(storage).decide().to_dict() == undisturbed.decide().to_dict()


def test_a_pilot_asked_by_one_planner_is_told_to_another(rungs: Ladder, bump: World, tmp_path: Path) -> None:
    def fresh() -> Planner:
        return Planner(rungs, budget="1e19", reward="sparse", storage=f"sqlite:///{tmp_path}/plan.db")

    spec = fresh().ask()
    later = fresh()
    assert later.progress.pending == (spec,)
    later.tell(spec, bump(spec))
    assert fresh().progress.finished == 1
    assert fresh().progress.pending == ()


def test_a_study_started_with_another_space_is_refused(rungs: Ladder, tmp_path: Path) -> None:
    storage = str(tmp_path / "plan.db")
    Planner(rungs, budget="1e19", reward="sparse", storage=storage)
    with pytest.raises(InvalidInput, match="study: its budget is"):
        Planner(rungs, budget="2e19", reward="sparse", storage=storage)
    with pytest.raises(InvalidInput, match="study: its recipes is"):
        Planner(rungs, budget="1e19", reward="dense", storage=storage)
    Planner(rungs, budget="2e19", reward="sparse", storage=storage, study_name="another")


def test_storage_that_cannot_be_opened_is_one_line(rungs: Ladder, tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match=r"storage: .* cannot be opened") as caught:
        Planner(rungs, budget="1e19", reward="sparse", storage=str(tmp_path / "no" / "such" / "plan.db"))
    assert "\n" not in str(caught.value)


def test_telling_twice_changes_nothing(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    spec = planner.ask()
    record = bump(spec)
    planner.tell(spec, record)
    planner.tell(spec, record)
    assert planner.progress.finished == 1
    assert len(planner.study.trials) == 1


def test_a_late_result_of_a_pilot_given_up_is_kept_and_charged_once(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    spec = planner.ask()
    planner.give_up(spec, "runner lost")
    assert planner.progress.spent == spec.budget
    assert planner.progress.pending == ()
    assert planner.study.trials[0].user_attrs["race:note"] == "runner lost"
    record = bump(spec)
    planner.tell(spec, record)
    assert planner.progress.records == (record,)
    assert planner.progress.spent == pytest.approx(record.flops.total)
    with pytest.raises(InvalidInput, match="no running pilot"):
        planner.give_up(spec, "again")


def test_a_pilot_never_asked_for_is_kept(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    foreign = replace(planner.next_pilots(1)[0], seed=99)
    planner.tell(foreign, bump(foreign))
    assert planner.progress.finished == 1
    assert planner.decide().evidence["real"] == 1


def test_a_failed_run_costs_what_it_spent(rungs: Ladder) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    spec = planner.ask()
    failed = PilotRecord(
        spec=spec,
        flops=Allocation(1e15, 2e15, 0),
        curves={},
        evidence="real",
        health=Health("failed", "out of memory"),
    )
    planner.tell(spec, failed)
    assert planner.progress.spent == 3e15
    assert planner.progress.finished == 1
    decision = planner.decide()
    assert decision.prior_only
    assert any("failed" in note for note in decision.notes)
    planner.ask()


def test_a_pruned_run_is_data(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    spec = planner.ask()
    full = bump(spec)
    planner.tell(spec, replace(full, health=Health(flags=("pruned",))))
    trial = planner.study.trials[0]
    assert trial.state.name == "PRUNED"
    assert trial.value == full.curves["native"].value[-1]
    assert planner.decide().evidence["real"] == 1


def test_a_record_of_another_pilot_is_refused(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    spec, other = planner.ask(), planner.ask()
    assert spec.model != other.model
    with pytest.raises(InvalidInput, match="record: found"):
        planner.tell(spec, bump(other))


def test_a_torn_record_in_the_study_is_named_and_skipped(rungs: Ladder, bump: World, tmp_path: Path) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse", storage=str(tmp_path / "plan.db"))
    steps(planner, bump, 2)
    trial = planner.study.ask()
    trial.set_user_attr("race:spec", {"model": 3})
    again = Planner(rungs, budget="1e19", reward="sparse", storage=str(tmp_path / "plan.db"))
    assert again.progress.finished == 2
    assert any("trial 2 of the study is skipped" in note for note in again.decide().notes)


def test_evidence_informs_and_costs_nothing(rungs: Ladder, bump: World) -> None:
    first = Planner(rungs, budget="1e19", reward="prm")
    steps(first, bump, 4)
    records = first.progress.records
    second = Planner(rungs, budget="1e19", reward="prm", records=records)
    assert second.remaining == second.space.pilot_budget
    assert second.decide(pilots=0).to_dict()["regime"] == first.decide(pilots=0).to_dict()["regime"]
    # The grid has been run already, so the acquisition starts at once.
    second.ask()
    assert second.study.trials[0].user_attrs["race:why"]["by"] == "gain"


def test_a_small_budget_pilots_nothing_and_says_why(rungs: Ladder) -> None:
    planner = Planner(rungs, budget="2e15", reward="prm")
    decision = planner.decide()
    assert decision.pilots == ()
    assert any("pilots: none proposed" in note for note in decision.notes)
    stop = planner.stopped()
    assert stop is not None
    assert stop.code == "nothing-fits"
    with pytest.raises(NoProposal, match="no size up to"):
        planner.ask()


def test_a_budget_below_one_step_of_everything(rungs: Ladder) -> None:
    with pytest.raises(CannotDo, match="below one step"):
        Planner(rungs, budget="1e12", reward="prm").decide()


def test_costs_move_the_proposals(rungs: Ladder) -> None:
    """A reward model's size is in the cost table only; a planner blind to it would propose the same pilots."""

    def plan(reward_model: str) -> list[tuple[str, float, int]]:
        recipe = rungs.recipe("prm", reward_model=reward_model)
        planner = Planner(rungs, budget="3e18", reward="prm", recipe=recipe, start=0, seed=1)
        for _ in range(3):
            spec = planner.ask()
            planner.tell(spec, run_world(Worlds.prior(1, seed=3), spec))
        return [(s.model, s.rho, s.budget) for s in planner.next_pilots(3)]

    assert plan("Qwen2.5-Math-PRM-7B") != plan("qwen2.5-prm-1.5b")


def test_same_seed_same_plan_and_seeds_come_from_trial_numbers(rungs: Ladder, bump: World) -> None:
    a, b = (steps(Planner(rungs, budget="1e19", reward="sparse", seed=3), bump, 5) for _ in range(2))
    assert a == b
    assert len({s.seed for s in a}) == 5


def test_run_stops_with_a_reason_and_decides_on_what_it_saw(rungs: Ladder, bump: World) -> None:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    decision = planner.run(bump)
    stop = planner.stopped()
    assert stop is not None
    assert stop.code in ("regime-certain", "budget-spent")
    assert decision.evidence["real"] == planner.progress.finished > 0
    assert decision.regime == "update-heavy"  # the bump is at rho = 0.6


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"seed": -1}, "seed: found -1"), ({"seed": "a"}, "seed: found 'a'"), ({"start": -1}, "start: found -1")],
)
def test_a_seed_and_a_start_are_whole_numbers(rungs: Ladder, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Planner(rungs, budget="1e19", reward="sparse", **changes)


@pytest.mark.parametrize("records", [Store("."), Store(".").records, [1], None, "abc"])
def test_evidence_that_is_no_record_is_named(rungs: Ladder, records: Any) -> None:
    with pytest.raises(InvalidInput, match=r"records: found .*Store\(path\)"):
        Planner(rungs, budget="1e19", reward="sparse", records=records)


@pytest.mark.parametrize("outcome", [None, 0.5])
def test_a_world_that_returns_no_record_is_named(rungs: Ladder, outcome: Any) -> None:
    with pytest.raises(InvalidInput, match="record: found"):
        Planner(rungs, budget="1e19", reward="sparse").run(lambda spec: outcome)


def test_a_pilot_is_chosen_for_all_targets(rungs: Ladder, bump: World) -> None:
    """A second target whose optimum lies elsewhere moves the choice, whichever of the two comes first."""
    elsewhere = bump_world(rungs, best=0.2, gain=0.5)
    both = Planner(rungs, budget="1e19", reward="prm", target=["native", "judge"], rule=NEVER)
    for _ in range(3):
        spec = both.ask()
        record = bump(spec)
        judged = {"native": record.curves["native"], "judge": elsewhere(spec).curves["judge"]}
        both.tell(spec, replace(record, curves=judged))
    chosen = {}
    for targets in (["native"], ["judge"], ["native", "judge"], ["judge", "native"]):
        planner = Planner(
            rungs, budget="1e19", reward="prm", target=targets, rule=NEVER, records=both.progress.records
        )
        chosen[tuple(targets)] = planner.proposer.propose(planner.progress).cell
    assert chosen["native", "judge"] == chosen["judge", "native"]
    assert chosen["native",] != chosen["judge",]
