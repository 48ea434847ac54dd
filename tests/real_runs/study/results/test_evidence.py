"""Records by stage, runs cut short, rates restated, and whether records are whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from race.errors import InvalidInput
from race.records import Health, PilotRecord
from real_runs.study import Rates, Study
from real_runs.study.results import integrity, tables
from real_runs.study.results.evidence import StudyRecords, cut, points_of, relative, slice_key
from real_runs.study.results.response import responses
from tests.real_runs.study.results.made import TEXT, made_records, made_study


def test_every_stage_has_the_runs_that_were_planned(evidence: StudyRecords) -> None:
    assert evidence.planned() == {"tuning": 12, "main": 60, "fixed": 20, "small": 5, "rank": 5}
    assert {name: len(evidence.stage(name)) for name in evidence.planned()} == evidence.planned()
    assert evidence.foreign == ()
    assert evidence.failed == ()
    assert len(evidence.tuned) == 70
    assert evidence.rates is not None


LATER = """
[[stage]]
name = "more"
models = ["nano-m"]
rewards = ["sparse", "prm"]
rho = [0.3, 0.45, 0.6, 0.75, 0.85]
budgets = ["4e11"]
seeds = [3, 4, 5]
learning_rate = "tuned"
later = true
"""


def test_runs_that_were_decided_on_later_change_nothing_but_the_results_with_them(
    evidence: StudyRecords,
) -> None:
    study = made_study(TEXT + LATER)
    assert evidence.later == []
    found = StudyRecords.sort(study, made_records(study))
    assert {r.id for r in found.tuned} == {r.id for r in evidence.tuned}
    assert len(found.later) == 30
    planned, more = (responses(runs, ["native"]) for runs in (found.tuned, [*found.tuned, *found.later]))
    key = next(k for k in planned if (k.model, k.reward) == ("nano-m", "sparse"))
    assert [len(r) for r in planned[key].runs] == [3] * 5
    assert [len(r) for r in more[key].runs] == [6] * 5
    with pytest.raises(InvalidInput, match=r"later: found 'yes'"):
        made_study(TEXT + LATER.replace("later = true", 'later = "yes"'))


def test_what_is_missing_is_counted_and_rates_wait_for_tuning(
    study: Study, records: list[PilotRecord]
) -> None:
    some = [r for r in records if r.spec.seed not in (2, 100)]
    found = StudyRecords.sort(study, some)
    assert found.rates is None
    checked = integrity.check(found)
    assert checked.planned["main"] - sum(checked.statuses["main"].values()) == 20
    assert "tuning" not in checked.statuses


def test_rates_that_the_stages_used_stay_when_tuning_runs_say_otherwise(
    study: Study, records: list[PilotRecord], evidence: StudyRecords
) -> None:
    assert evidence.rates is not None
    assert evidence.chosen == evidence.rates
    used = Rates({m: dict.fromkeys(by, 0.125) for m, by in evidence.rates.table.items()}, evidence.rates.scores)
    found = StudyRecords.sort(study, records, rates=used)
    assert found.rates is used
    assert found.chosen == evidence.rates
    same, other = (tables.rates(e.rates.to_dict(), e.chosen.to_dict()) for e in (evidence, found))  # type: ignore[union-attr]
    assert "tuned again" not in same
    assert "tuned again" in other
    assert other.count("| 0.125 |") == 6  # three models, two update ratios


def test_a_try_that_failed_is_no_run_and_its_repeat_is(study: Study, records: list[PilotRecord]) -> None:
    run = records[-1]
    failed = replace(run, health=Health("failed", "out of memory"), curves={})
    again = replace(run, id=f"{run.id}_try2")
    found = StudyRecords.sort(study, [failed, again])
    assert list(found.finished) == [run.id]
    assert found.failed == (failed,)


def test_a_run_cut_short_is_a_run_of_a_smaller_budget(evidence: StudyRecords) -> None:
    record = evidence.stage("main")[0]
    third = points_of(record)[1]
    short = cut(record, third)
    assert short is not None
    assert short.flops.total == short.spec.budget == int(third)
    assert short.flops.rho == pytest.approx(record.flops.rho, abs=1e-6)
    assert all(len(c) == 3 and c.flops[-1] == third for c in short.curves.values())
    assert short.steps == record.curves["native"].step[2]
    assert short.id != record.id
    assert cut(record, points_of(record)[0] / 2) is None
    assert cut(record, 2 * record.spec.budget) is record


def test_health_of_a_cut_run_is_what_was_seen_until_then(evidence: StudyRecords) -> None:
    record = evidence.stage("main")[0]
    curve = record.curves["native"]
    fallen = replace(curve, value=(*curve.value[:-1], 0.01))
    late = replace(record, curves={**record.curves, "native": fallen}, health=Health("collapsed", "fell"))
    assert cut(late, points_of(late)[2]).health.status == "ok"  # type: ignore[union-attr]
    early = replace(curve, value=(curve.value[0], curve.value[1], 0.01, *curve.value[3:]))
    assert cut(replace(record, curves={"native": early}), curve.flops[2]).health.status == "collapsed"  # type: ignore[union-attr]


def test_tuned_rates_are_one_times_the_tuned_rate(evidence: StudyRecords) -> None:
    assert {relative(r, evidence.rates).spec.recipe.learning_rate for r in evidence.tuned} == {1.0}
    assert evidence.rates is not None
    for record in evidence.stage("fixed"):
        a = record.spec.recipe.update_ratio
        tuned = evidence.rates.at(record.spec.model, a)
        assert relative(record, evidence.rates).spec.recipe.learning_rate == pytest.approx(
            1 / tuned, rel=1e-3
        )
    assert relative(evidence.tuned[0], None) is evidence.tuned[0]


def _ledger(folder: Path, record: PilotRecord, *, off: int = 0) -> None:
    path = folder / record.id / "run" / "ledger.jsonl"
    path.parent.mkdir(parents=True)
    lines = [{"event": "attempt", "attempt": 1, "step": 0}]
    flops = record.flops.to_dict()
    for phase, amount in (
        ("search", flops["search"]),
        ("update", flops["learning"] + off),
        ("reward", flops["reward"]),
        ("eval", record.eval_flops),
    ):
        head = {"attempt": 1, "step": 1, "phase": phase}
        lines.append({"event": "begin", **head, "bound": amount})
        lines.append({"event": "end", **head, "flops": amount, "executed": amount, "seconds": 1.0})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_overruns_open_sums_and_ledgers_that_disagree_are_found(study: Study, tmp_path: Path) -> None:
    records = made_records(study, stages=["small"])
    good, over, open_end, *_ = (r for r in records if "small" in r.provenance["stages"])
    over = replace(over, spec=replace(over.spec, budget=int(over.flops.total) - 1))
    open_end = replace(open_end, flops=open_end.flops * 2, spec=replace(open_end.spec, budget=10**12))
    _ledger(tmp_path, good)
    _ledger(tmp_path, over, off=1)
    found = integrity.check(StudyRecords.sort(study, [good, over, open_end]), tmp_path)
    assert found.overruns == (over.id,)
    assert found.unequal_ends == (open_end.id,)
    assert found.unequal_ledgers == (over.id,)
    assert (found.ledgers, found.without_ledger) == (2, 1)
    assert found.least_used_run == open_end.id
    assert found.spent == good.flops.total + over.flops.total + open_end.flops.total


def test_slices_are_told_apart_by_rank_and_budget(evidence: StudyRecords) -> None:
    keys = {slice_key(r) for r in evidence.tuned if r.spec.model == "nano-s" and r.spec.reward == "sparse"}
    assert {(k.budget, k.rank) for k in keys} == {(4 * 10**11, 8), (4 * 10**11, 2), (13 * 10**10, 8)}
