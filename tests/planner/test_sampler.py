"""The sampler's contract, over every kind of storage, as somebody would use it without the rest of RACE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from planner import NoProposal, RaceSampler, StoppingRule
from planner.trials import distributions
from race.errors import InvalidInput
from race.ladders import Ladder, ladder
from tests.planner.conftest import World, bump_world

optuna.logging.set_verbosity(optuna.logging.WARNING)

Storage = Callable[[Path], Any]
STORAGES: dict[str, Storage] = {
    "memory": lambda path: None,
    "sqlite": lambda path: f"sqlite:///{path}/study.db",
    "journal": lambda path: JournalStorage(JournalFileBackend(str(path / "study.journal"))),
}


def sampler_for(**changes: Any) -> RaceSampler:
    return RaceSampler(ladder("qwen2.5"), **{"budget": "1e19", "reward": "sparse", **changes})


@pytest.fixture(params=sorted(STORAGES))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return STORAGES[request.param](tmp_path)


def study_with(sampler: RaceSampler, storage: Any = None, **more: Any) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=sampler, storage=storage, **more)


def test_plain_optimize_with_records(storage: Any, bump: World) -> None:
    sampler = sampler_for(reward="prm")
    study = study_with(sampler, storage)

    def objective(trial: Trial) -> float:
        return sampler.report(trial, bump(sampler.suggest(trial)))

    study.optimize(objective, n_trials=4)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 4
    assert [set(t.params) for t in study.trials] == [{"model", "rho", "size"}] * 4
    assert sampler.progress(study).finished == 4
    assert study.trials[3].user_attrs["race:why"]["by"] == "gain"


def test_plain_optimize_with_bare_values_and_own_parameters() -> None:
    """Nothing of ours but the sampler: plain suggest calls, a float back, and a parameter of the user's own."""
    sampler = sampler_for()
    study = study_with(sampler)
    axes = distributions(sampler.space)

    def objective(trial: Trial) -> float:
        rho = trial.suggest_float("rho", axes["rho"].low, axes["rho"].high)  # type: ignore[attr-defined]
        trial.suggest_int("model", 0, 2)
        trial.suggest_int("size", 0, 3)
        trial.suggest_float("warmup", 0, 1)
        return 0.5 - (rho - 0.6) ** 2

    study.optimize(objective, n_trials=5)
    progress = sampler.progress(study)
    assert progress.finished == 5
    assert [r.curves["native"].value[-1] for r in progress.records] == [t.value for t in study.trials]
    assert len({t.params["warmup"] for t in study.trials}) == 5


def test_optimize_ends_when_the_pilot_budget_is_spent(bump: World) -> None:
    sampler = sampler_for(sizes=[2 * 10**17, 4 * 10**17])
    study = study_with(sampler)
    study.optimize(lambda trial: sampler.report(trial, bump(sampler.suggest(trial))), n_trials=50)
    assert 3 <= len(study.trials) <= 5
    assert sampler.progress(study).spent <= sampler.space.pilot_budget
    with pytest.raises(NoProposal, match="pilots: none proposed"):
        study.optimize(lambda trial: sampler.report(trial, bump(sampler.suggest(trial))), n_trials=1)
    assert all(t.state.is_finished() for t in study.trials)  # no zombie is left behind


def test_optimize_ends_when_the_rule_is_met(bump: World) -> None:
    sampler = sampler_for(rule=StoppingRule(certainty=0.5, min_pilots=2))
    study = study_with(sampler)
    study.optimize(lambda trial: sampler.report(trial, bump(sampler.suggest(trial))), n_trials=50)
    assert sampler.progress(study).spent < 0.9 * sampler.space.pilot_budget


def test_running_trials_are_conditioned_on(storage: Any, bump: World) -> None:
    sampler = sampler_for()
    study = study_with(sampler, storage)
    study.optimize(lambda trial: sampler.report(trial, bump(sampler.suggest(trial))), n_trials=3)
    specs = [sampler.suggest(study.ask()) for _ in range(3)]
    assert len({(s.model, round(s.rho, 6), s.budget) for s in specs}) == 3


def test_the_space_is_frozen_in_the_study(storage: Any) -> None:
    study = study_with(sampler_for(), storage)
    study.ask()
    study.sampler = sampler_for(budget="2e19")
    with pytest.raises(InvalidInput, match="study: its budget is"):
        study.ask()


@pytest.mark.parametrize("directions", [["minimize"], ["maximize", "maximize"]])
def test_only_one_objective_to_maximize(directions: list[str]) -> None:
    study = optuna.create_study(directions=directions, sampler=sampler_for())
    with pytest.raises(InvalidInput, match="one objective to maximize"):
        study.ask()


def test_same_seed_same_trials_whatever_the_process(storage: Any, bump: World) -> None:
    def params(where: Any) -> list[dict[str, Any]]:
        for _ in range(4):
            sampler = sampler_for(seed=9)
            study = study_with(sampler, where, study_name="one", load_if_exists=True) if where else study_memory
            study.sampler = sampler
            study.optimize(lambda trial, s=sampler: s.report(trial, bump(s.suggest(trial))), n_trials=1)
        return [t.params for t in study.trials]

    study_memory = study_with(sampler_for(seed=9))
    assert params(storage) == params(None) if storage else len(params(None)) == 4


def test_fixed_axes_are_kept_and_the_rest_chosen() -> None:
    sampler = sampler_for()
    study = study_with(sampler)
    study.enqueue_trial({"model": 1, "rho": 0.5})
    spec = sampler.suggest(study.ask())
    assert spec.model == sampler.space.models[1].name
    assert spec.rho == pytest.approx(0.5)


def test_any_other_sampler_can_fill_the_space(bump: World) -> None:
    sampler = sampler_for()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(12):
        trial = study.ask()
        spec = sampler.suggest(trial)
        assert sampler.space.runnable(next(
            c for c in [sampler.space.nearest(
                [m.name for m in sampler.space.models].index(spec.model), 0,
                sampler.space.sizes.index(spec.budget), spec.rho)]
        ))  # fmt: skip
        study.tell(trial, sampler.report(trial, bump(spec)))
    assert sampler.progress(study).finished == 12


def test_values_outside_the_unit_interval_are_named_and_charged() -> None:
    """Charged, or a study without ``n_trials`` would run pilots that teach nothing for ever."""
    sampler = sampler_for()
    study = study_with(sampler)

    def objective(trial: Trial) -> float:
        sampler.suggest(trial)
        return -3.0

    with pytest.warns(UserWarning, match=r"trial \d teaches nothing: value: found -3\.0"):
        study.optimize(objective, n_trials=2)
    progress = sampler.progress(study)
    assert progress.finished == 0
    assert progress.spent == sum(pilot.spec.budget for pilot in progress.pilots) > 0
    assert any("value: found -3.0" in note for note in progress.notes)


def test_several_rewards_are_a_category(rungs: Ladder) -> None:
    sampler = sampler_for(reward=("sparse", "prm"), target="judge")
    study = study_with(sampler)
    world = bump_world(rungs)
    study.optimize(lambda trial: sampler.report(trial, world(sampler.suggest(trial))), n_trials=7)
    assert {t.params["reward"] for t in study.trials} == {"sparse", "prm"}


def test_parallel_threads_share_one_sampler(bump: World) -> None:
    sampler = sampler_for()
    study = study_with(sampler)
    study.optimize(lambda trial: sampler.report(trial, bump(sampler.suggest(trial))), n_trials=6, n_jobs=2)
    assert len(study.trials) == 6
    assert sampler.progress(study).finished == 6


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"model": "Qwen2.5-7B-Instruct"}, "enqueued model: found 'Qwen2.5-7B-Instruct'"),
        ({"model": 99}, "enqueued model: found 99"),
        ({"size": -1}, "enqueued size"),
        ({"rho": float("nan")}, "enqueued rho"),
    ],
)
def test_axes_enqueued_with_what_is_none_are_named(fixed: dict[str, Any], message: str, bump: World) -> None:
    sampler = sampler_for()
    study = study_with(sampler)
    study.enqueue_trial(fixed)
    with pytest.raises(InvalidInput, match=message):
        study.optimize(lambda trial: sampler.report(trial, bump(sampler.suggest(trial))), n_trials=1)
    assert [t.state for t in study.trials] == [TrialState.FAIL]
    study.enqueue_trial(fixed)
    with pytest.raises(InvalidInput, match=message):
        study.ask()
    assert study.trials[1].state == TrialState.FAIL
