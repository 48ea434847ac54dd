from __future__ import annotations

from dataclasses import replace

import optuna
import pytest

from planner import Planner, RacePruner, RaceSampler, StoppingRule
from planner.pruning import check_running
from race.errors import InvalidInput
from race.ladders import Ladder
from race.records import Curve, PilotRecord, PilotSpec
from tests.planner.conftest import World


def cut(record: PilotRecord, points: int) -> PilotRecord:
    """The record as it was when the run had seen ``points`` evaluations."""
    curve = record.curves["native"]
    part = Curve(curve.step[:points], curve.flops[:points], curve.value[:points], curve.se[:points])
    share = part.flops[-1] / curve.flops[-1]
    flops = replace(
        record.flops,
        search=record.flops.search * share,
        learning=record.flops.learning * share,
        reward=record.flops.reward * share,
    )
    return replace(record, curves={"native": part}, flops=flops, steps=part.step[-1], id=record.id + "-so-far")


@pytest.fixture
def planner(rungs: Ladder, bump: World) -> Planner:
    planner = Planner(rungs, budget="1e19", reward="sparse")
    for _ in range(5):
        spec = planner.ask()
        planner.tell(spec, bump(spec))
    return planner


def test_a_pilot_that_can_still_teach_goes_on(planner: Planner, bump: World) -> None:
    spec = planner.ask()
    # The pilot with the greatest gain per FLOP, a quarter done, still has most of it ahead.
    found = check_running(planner.proposer, planner.progress, spec, cut(bump(spec), 3), worth=0.0)
    assert found is None


def small(planner: Planner) -> PilotSpec:
    """A running pilot of a model that has been seen at this size."""
    seen = planner.progress.records[0].spec
    return replace(seen, seed=seen.seed + 1)


def test_a_pilot_that_cannot_change_the_decision_is_pruned(planner: Planner, bump: World) -> None:
    spec = small(planner)
    so_far = cut(bump(spec), 4)
    found = check_running(planner.proposer, planner.progress.with_running([spec]), spec, so_far, worth=1e9)
    assert found is not None
    assert 0 <= found.ratio < 1e9
    assert "per FLOP" in found.reason


def test_a_pilot_larger_than_any_of_its_model_is_left_to_finish(planner: Planner, bump: World) -> None:
    """It tests the beliefs that it would be pruned by."""
    seen = planner.progress.records[0].spec
    for factor, pruned in ((1, True), (8, False)):
        spec = replace(seen, budget=seen.budget * factor, seed=seen.seed + factor)
        ahead = planner.progress.with_running([spec])
        found = check_running(planner.proposer, ahead, spec, cut(bump(spec), 4), worth=1e9)
        assert (found is not None) == pruned


def test_a_pilot_far_from_the_decision_is_worth_less(planner: Planner, bump: World) -> None:
    """Of two pilots cut at the same point, the one the acquisition likes least is pruned first."""
    cells = planner.proposer.able(planner.remaining)
    found = {}
    # A stride that is no multiple of the update fractions per model and size, so that these differ too.
    for index, cell in enumerate(cells[::11]):
        spec = planner.space.spec(cell, seed=index)
        ahead = planner.progress.with_running([spec])
        prune = check_running(planner.proposer, ahead, spec, cut(bump(spec), 4), worth=1e9)
        if prune is not None:
            found[cell] = prune.ratio
    assert len(found) > 6
    assert min(found.values()) < 0.5 * max(found.values())


def test_nothing_is_pruned_in_its_first_quarter(planner: Planner, bump: World) -> None:
    spec = planner.ask()
    assert check_running(planner.proposer, planner.progress, spec, cut(bump(spec), 2), worth=1e9) is None


def test_pruning_more_is_what_a_larger_threshold_does(planner: Planner, bump: World) -> None:
    spec = small(planner)
    so_far, ahead = cut(bump(spec), 4), planner.progress.with_running([spec])
    pruned = [
        check_running(planner.proposer, ahead, spec, so_far, worth=limit) is not None
        for limit in (0.0, 1e-3, 1.0, 1e9)
    ]
    assert pruned == sorted(pruned)
    assert pruned[0] is False


def test_a_pilot_outside_the_space_is_refused(planner: Planner, bump: World) -> None:
    spec = planner.ask()
    with pytest.raises(InvalidInput, match="outside this plan's space"):
        planner.check(replace(spec, model="Qwen2.5-72B-Instruct"), cut(bump(spec), 4))


def test_the_optuna_pruner(rungs: Ladder, bump: World) -> None:
    # A certainty out of reach: no larger pilots before it counts, which are left to finish.
    rule = StoppingRule(certainty=1.0, min_pilots=10**6)
    sampler = RaceSampler(rungs, budget="1e19", reward="sparse", rule=rule)
    study = optuna.create_study(
        direction="maximize", sampler=sampler, pruner=RacePruner(sampler, worth=1e9)
    )

    def objective(trial: optuna.Trial) -> float:
        spec: PilotSpec = sampler.suggest(trial)
        record = bump(spec)
        curve = record.curves["native"]
        whole = max(1, round(spec.budget / 2e14))
        for flops, value in zip(curve.flops, curve.value, strict=True):
            trial.report(value, max(1, round(whole * flops / spec.budget)))
            if trial.number > 3 and trial.should_prune():
                raise optuna.TrialPruned
        return sampler.report(trial, record)

    study.optimize(objective, n_trials=5)
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 4 + ["PRUNED"]
    assert sampler.progress(study).finished == 5
