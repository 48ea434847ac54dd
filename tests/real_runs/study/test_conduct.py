"""Studies carried out: once each, resumable, with failures as data."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from race.allocation import Allocation
from race.cli.app import app
from race.errors import CannotDo, InvalidInput
from race.records import Health, PilotRecord, PilotSpec
from race.store import Store
from real_runs.executors.simulated import SimulatorExecutor, named_world
from real_runs.folder import RunFolder
from real_runs.study import conduct, read_study, study_runs, tuning_runs
from real_runs.study.file import Study, study_from_dict

TEXT = """
schema = "race.study/1"
name = "small"
ladder = "qwen2.5"
targets = ["native", "pass@1"]
[tuning]
models = ["Qwen2.5-1.5B-Instruct"]
reward = "sparse"
target = "pass@1"
update_ratios = [1]
learning_rates = [0.5, 1]
budgets = ["1e17"]
seeds = [100]
[[stage]]
name = "A"
models = ["Qwen2.5-1.5B-Instruct"]
rewards = ["sparse"]
rho = [0.3, 0.6]
budgets = ["1e17"]
seeds = [0, 1]
learning_rate = "tuned"
[[stage]]
name = "B"
models = ["Qwen2.5-3B-Instruct"]
rewards = ["prm"]
rho = [0.3]
budgets = ["1e17"]
seeds = [0]
"""
A = "Qwen2p5-1p5B-Instruct_sparse_rho0p3_1e17_r16"


@pytest.fixture
def study() -> Study:
    return study_from_dict(tomllib.loads(TEXT))


class Counting:
    """A simulated world that remembers what it was asked."""

    def __init__(self, then: Callable[[PilotSpec, int], PilotRecord | None] = lambda spec, n: None) -> None:
        self.world, self.asked, self.then = named_world("own-0"), [], then

    def __call__(self, spec: PilotSpec) -> PilotRecord:
        self.asked.append(spec)
        return self.then(spec, self.asked.count(spec)) or self.world(spec)


def go(study: Study, world: Any, out: Path, **options: Any) -> Any:
    with SimulatorExecutor(world, slots=2) as executor:
        return conduct(study, executor, out, **options)


def broken(spec: PilotSpec) -> PilotRecord:
    return PilotRecord(spec, Allocation(1, 2, 3), {}, "simulated", Health("failed", "the node went away"))


def test_every_run_once_and_a_second_call_runs_nothing(study: Study, tmp_path: Path) -> None:
    world = Counting()
    result = go(study, world, tmp_path)
    rates = result.rates
    expected = [*tuning_runs(study), *study_runs(study, rates)]
    assert [run.id for run in result.runs] == [run.id for run in expected]
    assert len(world.asked) == len(expected) == 7
    assert set(result.records) == {run.id for run in expected}
    assert result.given_up == {}
    for run in expected:
        record = result.records[run.id]
        assert record.spec == run.spec
        assert record.provenance["study"] == "small"
        assert record.provenance["stages"] == list(run.stages)
    assert json.loads((tmp_path / "rates.json").read_text()) == rates.to_dict()
    again = go(study, world, tmp_path)
    assert len(world.asked) == 7
    assert again == result


def test_an_interruption_loses_nothing(study: Study, tmp_path: Path) -> None:
    def interrupt(spec: PilotSpec, _: int) -> None:
        if spec.rho == 0.6:
            raise KeyboardInterrupt

    world = Counting(interrupt)
    with pytest.raises(KeyboardInterrupt):
        go(study, world, tmp_path)
    kept = {r.id for r in Store(tmp_path / "records").records().records}
    world.then = lambda spec, n: None
    before = len(world.asked)
    result = go(study, world, tmp_path)
    assert kept < set(result.records)
    assert len(world.asked) - before == len(result.records) - len(kept)
    assert result.records.keys() == go(study, Counting(), tmp_path / "other").records.keys()


def test_failures_are_tried_again_then_given_up_and_the_rest_goes_on(study: Study, tmp_path: Path) -> None:
    def sometimes(spec: PilotSpec, count: int) -> PilotRecord | None:
        if spec.recipe.reward == "prm" or (spec.seed == 1 and count == 1):
            return broken(spec)
        return None

    result = go(study, Counting(sometimes), tmp_path)
    assert len(result.records) == 6
    assert list(result.given_up.values()) == ["the node went away"]
    store = Store(tmp_path / "records").records().records
    failed = [r for r in store if r.health.status == "failed"]
    # Two tries of the one that never works, the first of each of the two that then did; all keep their FLOPs.
    assert len(failed) == 4
    assert all(r.flops.total == 6 for r in failed)
    assert len(go(study, Counting(), tmp_path).records) == 6
    assert len(go(study, Counting(), tmp_path, tries=3).records) == 7


def test_stages_and_single_runs(study: Study, tmp_path: Path) -> None:
    assert [r.stages for r in go(study, Counting(), tmp_path / "b", stages=["B"]).runs] == [("B",)]
    with pytest.raises(CannotDo, match="2 tuning runs not there yet"):
        go(study, Counting(), tmp_path / "a", stages=["A"])
    rates = go(study, Counting(), tmp_path / "t", stages=["tuning"]).rates
    result = go(study, Counting(), tmp_path / "a", stages=["A"], rates=rates)
    assert {r.stages for r in result.runs} == {("A",)}
    name = next(run.id for run in result.runs if run.id.startswith(A))
    single = go(study, Counting(), tmp_path / "one", only=[name], rates=rates)
    assert [run.id for run in single.runs] == [name]
    ends = [r.records[name].curves["native"] for r in (single, result)]
    assert ends[0] == ends[1]
    with pytest.raises(InvalidInput, match="no run of this study"):
        go(study, Counting(), tmp_path / "one", only=["nothing"])
    with pytest.raises(InvalidInput, match="stage: found 'C'"):
        go(study, Counting(), tmp_path / "one", stages=["C"])


def test_a_store_of_another_study_is_not_mixed_in(study: Study, tmp_path: Path) -> None:
    go(study, Counting(), tmp_path, stages=["B"])
    other = tomllib.loads(TEXT)
    other["targets"] = ["native", "pass@1", "judge"]
    with pytest.raises(InvalidInput, match="of another setting"):
        go(study_from_dict(other), Counting(), tmp_path, stages=["B"])


def test_two_processes_do_not_work_in_one_folder(study: Study, tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked(), pytest.raises(CannotDo, match="another process"):
        go(study, Counting(), tmp_path)


def test_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    runner = CliRunner()
    found = runner.invoke(app, ["study", "cost", str(file), "--gpu", "H100-SXM", "--json"])
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    study = read_study(file)
    runs = [*tuning_runs(study), *study_runs(study)]
    assert [item["id"] for item in data["runs"]] == [run.id for run in runs]
    assert data["flops"]["search"] == sum(run.plan.flops.search for run in runs)
    assert data["cost"]["gpu_hours"]["lo"] < data["cost"]["gpu_hours"]["hi"]
    found = runner.invoke(
        app,
        [
            "study",
            "run",
            str(file),
            "--out",
            str(tmp_path / "out"),
            "--executor",
            "simulator:own-0",
            "--json",
        ],
    )
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["records"] == data["runs"] == 7
    assert data["over_budget"] == []
    assert runner.invoke(app, ["study", "cost", str(file)]).exit_code == 0
