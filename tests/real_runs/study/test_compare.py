"""Runs done again: equal in every bit, or what differs; and a study from its runs to a packed file and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from race.cli.app import app
from race.packed import Pack, packaged_study, read_pack
from race.records import PilotRecord
from race.store import Store
from real_runs.study import Rates, read_study, study_runs
from real_runs.study.compare import compare, differences

EXAMPLE = Path(__file__).parents[3] / "examples" / "nano_study" / "study.toml"


@pytest.fixture(scope="module")
def shipped() -> Pack:
    return packaged_study("nano-study")


@pytest.fixture(scope="module")
def one(shipped: Pack) -> PilotRecord:
    return next(r for r in shipped.records if r.id.startswith("nano-s_sparse_") and r.health.status == "ok")


def again(record: PilotRecord, **provenance: object) -> PilotRecord:
    """As another process on another machine writes it."""
    own = {"run_id": "other", "executor": {"host": "elsewhere", "attempts": 2}, "attempts": 2, "processes": 3}
    return replace(record, seconds={"search": 9.0}, provenance={**record.provenance, **own, **provenance})


def test_a_run_done_again_is_equal_whoever_did_it(shipped: Pack, one: PilotRecord) -> None:
    assert differences(again(one), one) == []
    assert compare({one.id: again(one)}, shipped).equal == (one.id,)


def test_every_bit_counts(shipped: Pack, one: PilotRecord) -> None:
    curve = one.curves["pass@1"]
    moved = replace(curve, value=(*curve.value[:-1], curve.value[-1] + 2**-40))
    other = again(replace(one, curves={**one.curves, "pass@1": moved}), versions={"torch": "1.0"})
    lines = differences(other, one)
    assert len(lines) == 1
    assert lines[0].startswith(f"curves.pass@1.value[{len(curve) - 1}]: ")
    found = compare({one.id: other, "new": replace(one, id="new")}, shipped)
    assert list(found.different) == [one.id]
    assert found.unknown == ("new",)
    assert found.versions["torch"][0] == "1.0"
    assert found.equal == ()


@pytest.mark.parametrize("what", ["flops", "steps", "spec", "options"])
def test_what_the_setting_decides_is_compared(one: PilotRecord, what: str) -> None:
    changed: Mapping[str, PilotRecord] = {
        "flops": replace(one, eval_flops=one.eval_flops + 1),
        "steps": replace(one, steps=one.steps + 1),
        "spec": replace(one, spec=replace(one.spec, seed=7)),
        "options": again(one, options={**one.provenance["options"], "threads": 2}),
    }
    assert len(differences(changed[what], one)) == 1


def test_a_study_is_packed_and_checked_against_itself(tmp_path: Path) -> None:
    runner, out, file = CliRunner(), tmp_path / "out", tmp_path / "mine.jsonl.gz"
    go = ["study", "run", str(EXAMPLE), "--executor", "simulator:own-0", "--rates", "nano-study", "--stage", "rank"]
    assert runner.invoke(app, [*go, "--out", str(out)]).exit_code == 0
    said = json.loads(runner.invoke(app, ["study", "pack", str(out), "--to", str(file), "--json"]).stdout)
    assert said["name"] == "nano-study"
    assert said["stages"]["rank"] == said["records"] == 40
    packed = read_pack(file)
    assert packed.rates == packaged_study("nano-study").rates
    kept = {r.id: r for r in Store(out / "records").records().records}
    assert sum(r.flops.total for r in packed.records) == sum(r.flops.total for r in kept.values())
    assert {r.id: r.curves for r in packed.records} == {name: r.curves for name, r in kept.items()}
    pack = ["study", "pack", str(out), "--to", str(tmp_path / "part.jsonl.gz"), "--json", "--stage"]
    assert json.loads(runner.invoke(app, [*pack, "rank"]).stdout)["records"] == 40
    refused = runner.invoke(app, [*pack, "rank", "--stage", "ranks"])
    assert str(refused.exception) == "stage: found ranks; the records have rank"
    check = ["study", "check", str(out), "--against", str(file), "--json"]
    done = runner.invoke(app, check)
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)["equal"]) == 40
    Store(out / "records").add(replace(next(iter(kept.values())), id="another"))
    assert json.loads(runner.invoke(app, check).stdout)["unknown"] == ["another"]
    wrong = runner.invoke(app, ["study", "check", str(out), "--against", "nano-study"])
    assert wrong.exit_code == 1  # simulated runs are not the real ones of those names


def test_the_packaged_rates_name_the_tuned_runs(shipped: Pack) -> None:
    assert shipped.rates is not None
    runs = {run.id: run for run in study_runs(read_study(EXAMPLE), Rates.from_dict(shipped.rates))}
    kept = {r.id: r for r in shipped.records if "tuning" not in r.provenance["stages"]}
    for name, record in kept.items():
        assert runs[name].spec == record.spec


@pytest.mark.slow
def test_a_real_run_of_the_packaged_study_comes_out_again(shipped: Pack, one: PilotRecord, tmp_path: Path) -> None:
    runner = CliRunner()
    go = ["study", "run", str(EXAMPLE), "--rates", "nano-study", "--only", one.id, "--out", str(tmp_path)]
    assert runner.invoke(app, go).exit_code == 0
    found = json.loads(runner.invoke(app, ["study", "check", str(tmp_path), "--json"]).stdout)
    versions = {r.provenance["versions"]["torch"] for r in Store(tmp_path / "records").records().records}
    if versions != {one.provenance["versions"]["torch"]}:
        pytest.skip("another torch rounds otherwise")
    assert found["equal"] == [one.id], found["different"]
