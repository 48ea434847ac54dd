"""Recorded worlds, and how soon methods find a grid's decision in them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from race.errors import CannotDo
from race.ladders import ladder
from real_runs.study.results import replay
from real_runs.study.results.deciding import Decider
from real_runs.study.results.evidence import StudyRecords
from real_runs.study.results.recorded import Grid

BUDGET = 4 * 10**11


@pytest.fixture(scope="module")
def grid(evidence: StudyRecords) -> Grid:
    return Grid.build(evidence.stage("main"), evidence.rates, ladder("nano"), "sparse", BUDGET, "native")


def test_a_grid_decides_for_its_best_mean(grid: Grid) -> None:
    assert len(grid.arms) == 10
    assert grid.flops == pytest.approx(30 * BUDGET, rel=0.03)
    best = grid.arms[grid.decision]
    finals = {i: [r.curves["native"].value[-1] for r in arm.runs] for i, arm in enumerate(grid.arms)}
    assert grid.decision == max(finals, key=lambda i: np.mean(finals[i]))
    # Made with nano-m above nano-s and the top at 0.68.
    assert best.model == "nano-m"
    assert best.rho in (0.6, 0.75)
    assert grid.decision in grid.as_good
    assert {grid.arms[i].model for i in grid.as_good} == {"nano-m"}
    assert grid.regime[grid.decision] == "update-heavy"


def test_every_whole_run_is_handed_out_once_and_charged(grid: Grid) -> None:
    world = grid.start(0)
    seen, spent = set(), 0.0
    while not world.exhausted():
        arm = world.nearest("nano-s", 0.6)
        assert arm is not None
        record = world.run(arm)
        spent += record.flops.total
        seen.add(record.id)
        assert world.spent == spent
    assert len(seen) == 30
    assert spent == grid.flops
    assert world.nearest("nano-s", 0.6) is None


def test_a_run_that_was_stopped_can_be_had_again_larger_and_is_charged_in_full(grid: Grid) -> None:
    world = grid.start(1)
    short = [world.run(0, BUDGET / 3) for _ in range(3)]
    assert len({r.provenance["cut_from"] for r in short}) == 3
    assert all(r.flops.total == pytest.approx(BUDGET / 3, rel=0.1) for r in short)
    assert [world.left(0, size) for size in (BUDGET / 6, BUDGET / 3, BUDGET / 2, None)] == [0, 0, 3, 3]
    half = world.run(0, BUDGET / 2)
    assert half.provenance["cut_from"] == short[0].provenance["cut_from"]
    whole = world.run(0)
    assert whole.id == short[1].provenance["cut_from"]
    assert world.spent == sum(r.flops.total for r in (*short, half, whole))
    assert (world.left(0, BUDGET / 2), world.left(0)) == (1, 2)


def test_the_nearest_arm_gives_way_when_it_is_used_up(grid: Grid) -> None:
    world = grid.start(1)
    arms = [world.nearest("nano-m", 0.61) for _ in range(1)]
    assert (grid.arms[arms[0]].model, grid.arms[arms[0]].rho) == ("nano-m", 0.6)  # type: ignore[index]
    for _ in range(3):
        world.run(arms[0])  # type: ignore[arg-type]
    following = world.nearest("nano-m", 0.61)
    assert following is not None
    assert grid.arms[following].rho in (0.45, 0.75)
    assert grid.snap("nano-m", 0.61) == arms[0]
    assert grid.arms[grid.snap("nano-s", 0.99)].rho == 0.85


def test_shares_count_from_when_the_answer_stays_right(grid: Grid) -> None:
    right = grid.decision
    wrong = next(i for i in range(len(grid.arms)) if i not in grid.as_good)
    steps = [replay.Step(s * grid.flops, arm) for s, arm in ((0.1, right), (0.2, wrong), (0.3, right), (0.55, right))]
    found = replay.shares(grid, steps, 0.6)
    assert found["arm"] == pytest.approx(0.3)
    late = [*steps, replay.Step(0.58 * grid.flops, wrong)]
    assert replay.shares(grid, late, 0.6)["arm"] == np.inf
    # Beyond the horizon nobody looks.
    beyond = [*steps, replay.Step(0.7 * grid.flops, wrong)]
    assert replay.shares(grid, beyond, 0.6)["arm"] == pytest.approx(0.3)


def test_the_planner_is_asked_about_the_runs_of_any_method(grid: Grid) -> None:
    decider = Decider(grid)
    runs = [run for arm in grid.arms for run in arm.runs]
    assert decider.agrees(runs)
    assert decider.whole.model == "nano-m"
    # Without any run of the best model, or with those of its worst arms only, another decision follows.
    assert not decider.agrees([run for run in runs if run.spec.model == "nano-s"][:1])
    cost = grid.flops
    few, all_runs = tuple(runs[:1]), tuple(runs)
    steps = [replay.Step(0.0, 0), replay.Step(0.1 * cost, 0, few), replay.Step(0.3 * cost, 0, all_runs)]
    assert replay.agreed(decider, steps) == 0.375
    assert replay.agreed(decider, [*steps, replay.Step(0.45 * cost, 0, few)]) == np.inf
    assert replay.agreed(decider, []) == np.inf


def test_what_is_lost_is_also_told_in_runs_that_nobody_has_seen(grid: Grid, evidence: StudyRecords) -> None:
    assert grid.fresh is None
    steps = [replay.Step(0.0, 0), replay.Step(0.2 * grid.flops, 3), replay.Step(0.9 * grid.flops, 1)]
    assert replay.lost(grid, steps)["lost_fresh"] is None
    fresh = tuple(np.linspace(0.1, 0.55, len(grid.arms)))
    told = replay.lost(replace(grid, fresh=fresh), steps)
    assert told["lost"] == grid.means.max() - grid.means[3]
    assert told["lost_fresh"] == pytest.approx(0.55 - fresh[3])
    assert replay.lost(grid, []) == {"lost": None, "lost_fresh": None}
    runs = evidence.stage("main")
    seen, unseen = [r for r in runs if r.spec.seed != 2], [r for r in runs if r.spec.seed == 2]
    parts = ladder("nano"), "sparse", BUDGET, "native"
    built = Grid.build(seen, evidence.rates, *parts, later=unseen)
    finals = {(r.spec.model, r.spec.rho): r.curves["native"].value[-1] for r in unseen if r.spec.reward == "sparse"}
    assert built.fresh == tuple(finals[arm.model, arm.rho] for arm in built.arms)
    assert Grid.build(seen, evidence.rates, *parts, later=unseen[:3]).fresh is None


def test_the_whole_grid_ends_at_its_own_decision(grid: Grid) -> None:
    for order in range(3):
        world = grid.start(order)
        steps = list(replay._follow(world, replay.grid_order, 1.0, horizon=1.1))
        assert len(steps) == 30
        assert steps[-1].arm == grid.decision
        assert steps[-1].spent == pytest.approx(grid.flops)
        assert replay.shares(grid, steps, 1.1)["arm"] <= 1


@pytest.mark.parametrize("peer", ["random", "tpe"])
def test_peers_stay_within_the_recorded_runs(grid: Grid, peer: str) -> None:
    world = grid.start(5)
    steps = list(replay._follow(world, replay.PEERS[peer], 1 / 3, horizon=0.6))
    assert 0 < len(steps) <= 30
    assert all(b.spent > a.spent for a, b in pairwise(steps))
    again = grid.start(5)
    assert steps == list(replay._follow(again, replay.PEERS[peer], 1 / 3, horizon=0.6))


def test_the_planner_recommends_before_it_spends_and_is_charged_for_what_it_saw(grid: Grid) -> None:
    world = grid.start(0)
    steps = list(replay.race(world, 0, horizon=0.12))
    assert steps[0].spent == 0
    assert all(b.spent > a.spent for a, b in pairwise(steps))
    # It knows what it may spend, and spends it but for less than its smallest pilot.
    assert 0.12 * grid.flops - BUDGET / 6 < steps[-1].spent == world.spent <= 0.125 * grid.flops
    assert grid.arms[steps[-1].arm].model == "nano-m"
    # The pilots that open a plan look at every model.
    tried = {grid.arms[i].model for i in range(len(grid.arms)) if world.left(i, BUDGET / 6) < 3}
    assert tried == set(grid.models)


def test_a_summary_takes_a_peer_at_its_better_size_and_too_small_a_grid_is_refused(
    grid: Grid, evidence: StudyRecords
) -> None:
    found = replay.replay([grid], orders=2, planner_orders=0, gp_orders=0)
    assert {r["method"] for r in found["rows"]} == {"grid", "random", "tpe"}
    for row in found["rows"]:
        assert row["replays"] == 2
        assert row["decision"] is None  # the planner was not asked
        assert row["arm_as_good_by_half"][0] >= row["arm_by_half"][0]
        mine = [r for r in found["runs"] if r["method"] == row["method"] and r["size"] == row["size"]]
        assert row["arm"] == min(r["arm"] for r in mine)
    with pytest.raises(CannotDo, match="no grid"):
        Grid.build(evidence.stage("fixed")[:3], evidence.rates, ladder("nano"), "sparse", BUDGET, "native")
