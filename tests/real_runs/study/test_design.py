"""Study files and what they unfold into."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from race.allocation import Allocation
from race.errors import CannotDo, InvalidInput
from race.hardware import hardware_cost
from race.packed import packaged_study
from race.records import Curve, Health, PilotRecord
from real_runs.assemble import Setup
from real_runs.config import RunOptions
from real_runs.data.hub import NAMED
from real_runs.executors import build_executor
from real_runs.study import Rates, forecast, read_study, study_runs, tuned_rates, tuning_runs
from real_runs.study.cost import evaluation
from real_runs.study.file import study_from_dict

EXAMPLES = Path(__file__).parents[3] / "examples"
TEXT = """
schema = "race.study/1"
name = "small"
ladder = "nano"
targets = ["native", "pass@1"]
[tuning]
reward = "sparse"
target = "pass@1"
update_ratios = [0.5, 2]
learning_rates = [0.5, 1]
budgets = ["1e12"]
seeds = [100, 101]
[[stage]]
name = "A"
rewards = ["sparse", "prm"]
rho = [0.3, 0.6]
budgets = ["1e12"]
seeds = [0, 1]
learning_rate = "tuned"
[[stage]]
name = "B"
models = ["nano-s"]
rewards = ["sparse"]
rho = [0.6]
budgets = ["1e12", "2e12"]
seeds = [0]
learning_rate = "tuned"
"""


def small(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(tomllib.loads(TEXT)), **changes}


def ended(run: Any, value: float, status: str = "ok") -> PilotRecord:
    curve = Curve((0, run.plan.steps), (0, run.plan.flops.total), (0.2, value), (0.0, 0.0))
    return PilotRecord(
        run.spec,
        run.plan.flops,
        {"pass@1": curve},
        "real",
        Health(status, "" if status == "ok" else "why"),
        id=run.id,
    )


@pytest.mark.parametrize("name", ["nano_study", "qwen_study"])
def test_examples_are_valid_and_priced_run_by_run(name: str) -> None:
    study = read_study(EXAMPLES / name / "study.toml")
    runs = [*tuning_runs(study), *study_runs(study)]
    assert len(runs) >= 200
    cost = forecast(study, runs, lambda flops: hardware_cost(flops, "H100-SXM"))
    nothing = Allocation(0, 0, 0)
    assert cost.total.flops == sum((run.plan.flops for run in runs), start=nothing)
    for run, bill in zip(runs, cost.per_run, strict=True):
        assert run.plan.flops.total <= run.spec.budget
        assert bill.hardware is not None
        assert 0 < bill.hardware.total_gpu_hours.lo < bill.hardware.total_gpu_hours.hi
    # Every run is in the sum of one stage, also those that several stages look at.
    assert sum(bill.runs for bill in cost.stages.values()) == len(runs)
    assert sum((bill.flops for bill in cost.stages.values()), start=nothing) == cost.total.flops
    assert sum((bill.evaluation for bill in cost.stages.values()), start=nothing) == cost.total.evaluation


@pytest.mark.parametrize("name", ["nano_study", "qwen_study"])
def test_what_examples_tell_the_runner_is_understood(name: str) -> None:
    study = read_study(EXAMPLES / name / "study.toml")
    told = dict(study.run)
    known_to_cli = {"monitor", "options"}
    RunOptions(**told["options"]).check_with(study.ladder.recipe("prm", **study.recipe))
    for rung in study.ladder.models:
        setup = Setup(rung.name, **{key: value for key, value in told.items() if key not in known_to_cli})
        for source in (setup.data.get("train"), *setup.data.get("benchmarks", {}).values()):
            assert source is None or source in NAMED
    benchmarks = {target.partition(":")[2] for target in study.targets if ":" in target}
    assert name == "nano_study" or benchmarks == set(told["data"]["benchmarks"])


def test_the_qwen_study_runs_on_the_gpus_of_its_executor_file() -> None:
    study = read_study(EXAMPLES / "qwen_study" / "study.toml")
    assert build_executor(str(EXAMPLES / "qwen_study" / "gpus.toml"), config=study.run).slots == 8


def test_evaluation_is_forecast_as_real_runs_meter_it() -> None:
    study = read_study(EXAMPLES / "nano_study" / "study.toml")
    shipped = packaged_study("nano-study")
    assert shipped.rates is not None
    runs = {run.id: run for run in (*tuning_runs(study), *study_runs(study, Rates.from_dict(shipped.rates)))}
    metered = {record.id: record.eval_flops for record in shipped.records if record.health.status == "ok"}
    # One run may write shorter or longer than the mean the forecast takes; together they are near it.
    assert len(metered) >= 60
    assert sum(metered.values()) == pytest.approx(sum(evaluation(study, runs[name]).total for name in metered), rel=0.1)


def test_a_setting_of_two_stages_is_one_run() -> None:
    study = study_from_dict(small())
    runs = study_runs(study)
    assert len(runs) == 3 * 2 * 2 * 2 + 1
    assert [
        run.stages for run in runs if run.id.startswith("nano-s_sparse_rho0p6_1e12") and run.spec.seed == 0
    ] == [("A", "B")]
    assert len({run.id for run in runs}) == len(runs)


@given(
    rhos=st.lists(st.floats(0.35, 0.85).map(lambda x: round(x, 3)), min_size=1, max_size=3, unique=True),
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=3, unique=True),
)
@settings(max_examples=25, deadline=None)
def test_runs_are_the_whole_product_within_budget(rhos: list[float], seeds: list[int]) -> None:
    stage = {"name": "A", "rewards": ["sparse", "dense"], "rho": rhos, "budgets": ["2e12"], "seeds": seeds}
    study = study_from_dict(small(stage=[stage]))
    runs = study_runs(study)
    assert len({(r.spec.model, r.spec.reward, r.spec.rho, r.spec.seed) for r in runs}) == 3 * 2 * len(
        rhos
    ) * len(seeds)
    for run in runs:
        assert run.plan.flops.total <= run.spec.budget
        # One step trains on a whole number of 64 samples.
        assert abs(run.plan.step.rho - run.spec.rho) < 0.02


def test_tuning_picks_the_best_mean_and_rates_are_interpolated_in_logs() -> None:
    study = study_from_dict(small())
    runs = tuning_runs(study)
    # At a = 0.5 the rate 1 wins by its mean though 0.5 has the best single seed; at a = 2 it broke.
    table = {(0.5, 0.5): (0.9, 0.1), (0.5, 1): (0.6, 0.6), (2, 0.5): (0.5, 0.5), (2, 1): (0.99, None)}
    records = {}
    for run in runs:
        value = table[run.spec.recipe.update_ratio, run.spec.recipe.learning_rate][run.spec.seed - 100]
        records[run.id] = ended(run, 0.9, "failed") if value is None else ended(run, value)
    rates = tuned_rates(study, runs, records)
    assert rates.table["nano-m"] == {0.5: 1, 2: 0.5}
    assert rates.at("nano-m", 0.1) == 1
    assert rates.at("nano-m", 1) == pytest.approx(0.7071, abs=1e-4)
    assert rates.at("nano-m", 16) == 0.5
    assert Rates.from_dict(rates.to_dict()) == rates
    tuned = study_runs(study, rates)
    assert {run.spec.recipe.learning_rate for run in tuned} != {1.0}
    for run in tuned:
        assert run.spec.recipe.learning_rate == rates.at(run.spec.model, run.spec.recipe.update_ratio)
    records.popitem()
    with pytest.raises(CannotDo, match="1 tuning run not there yet"):
        tuned_rates(study, runs, records)


def _changed(path: str, value: Any) -> dict[str, Any]:
    data = small()
    *parents, last = path.split(".")
    at: Any = data
    for key in parents:
        at = at[int(key)] if key.isdigit() else at[key]
    at[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("schema", "race.study/2", "study.schema"),
        ("name", "a b", "study.name"),
        ("ladder", "nano-s", "ladder"),
        ("targets", [], "study.targets"),
        ("targets", ["native"], "tuning.target"),
        ("stage", [], "study.stage"),
        ("stage.0.name", "B", "each name once"),
        ("stage.0.rewards", ["spars"], "spars"),
        ("stage.0.rho", [1.2], r"stage\[0\].rho"),
        ("stage.0.rho", [0.3, 0.3], "each entry once"),
        ("stage.0.seeds", [True], r"stage\[0\].seeds"),
        ("stage.0.models", ["nano-xl"], "nano-xl"),
        ("stage.0.budget", ["1e12"], "unknown field 'budget'"),
        ("stage.0.budgets", ["lots"], "budgets"),
        ("stage.0.learning_rate", "best", "learning_rate"),
        ("recipe", {"lr": 1}, "lr"),
        ("recipe", {"update_ratio": 1}, "stages vary it"),
        ("tuning.learning_rates", [0], "learning_rates"),
    ],
)
def test_bad_files_name_the_field(path: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        study_from_dict(_changed(path, value))


def test_settings_that_cannot_be_run_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"stage A, nano-s, prm: rho: found 0\.98"):
        study_runs(study_from_dict(_changed("stage.0.rho", [0.98])))
    with pytest.raises(InvalidInput, match=r"stage A, nano-[ml], sparse: budget"):
        study_runs(study_from_dict(_changed("stage.0.budgets", ["1e10"])))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InvalidInput, match="not TOML"):
        read_study(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"nano-s": {"1": {"best": -1}}}', r"^rates\.nano-s\.1\.best"),
        ('{"nano-s": {"1": {}}}', r"^rates\.nano-s\.1"),
        ("[]", "^rates: allowed is an object by model"),
        ("{", r"^rates: .*rates\.json is not JSON"),
    ],
)
def test_rates_that_are_none_are_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "rates.json"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        Rates.read(file)
    with pytest.raises(InvalidInput, match="cannot read"):
        Rates.read(tmp_path / "none.json")


def test_rates_are_read_as_they_were_written(tmp_path: Path) -> None:
    rates = Rates({"nano-s": {0.25: 0.5, 4.0: 1.0}}, {"nano-s": {0.25: {0.5: 0.4, 1.0: 0.3}, 4.0: {1.0: 0.2}}})
    file = tmp_path / "rates.json"
    file.write_text(json.dumps(rates.to_dict()))
    assert Rates.read(file) == rates
