"""Settings left out, in closed form and by fitting again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from race.ladders import ladder
from race.records import Curve, Health
from real_runs.study.results import calibration
from real_runs.study.results.evidence import StudyRecords, relative


@pytest.fixture(scope="module")
def runs(evidence: StudyRecords) -> list:
    return [relative(r, evidence.rates) for r in evidence.stage("main") if r.spec.reward == "sparse"]


def test_closed_form_agrees_with_fitting_again(runs: list) -> None:
    rungs = ladder("nano")
    closed = {f.record: f for f in calibration.leave_one_setting_out(runs, rungs, "pass@1")}
    assert len(closed) == 30
    some = sorted({f.setting for f in closed.values()})[2:9:3]
    again = calibration.refitted(runs, rungs, "pass@1", some)
    assert {f.record for f in again} == {f.record for f in closed.values() if f.setting in some}
    for f in again:
        one = closed[f.record]
        assert f.mean == pytest.approx(one.mean, abs=0.035)
        assert f.hi - f.lo == pytest.approx(one.hi - one.lo, rel=0.35)
        assert one.covered == (one.lo <= one.measured <= one.hi)


def test_intervals_of_runs_cover_about_as_often_as_they_say(runs: list) -> None:
    found = calibration.leave_one_setting_out(runs, ladder("nano"), "pass@1")
    told = calibration.summary(found)
    assert told["settings"] == 10
    assert told["coverage"][0] >= 0.8
    assert told["rmse"] < told["spread"]
    # Made with a latent noise of 0.06 between seeds, and evaluation noise on top.
    assert 0.04 < told["seed_sd"] < 0.12
    assert abs(told["z_mean"]) < 0.6


def test_a_setting_out_of_line_is_missed_and_named(runs: list) -> None:
    def moved(record):
        if (record.spec.model, record.spec.rho) != ("nano-s", 0.6):
            return record
        curve = record.curves["pass@1"]
        low = tuple(max(v - 0.35 * f / curve.flops[-1], 0.01) for v, f in zip(curve.value, curve.flops, strict=True))
        return replace(record, curves={"pass@1": Curve(curve.step, curve.flops, low, curve.se)})

    found = calibration.leave_one_setting_out([moved(r) for r in runs], ladder("nano"), "pass@1")
    assert not any(f.covered for f in found if f.setting[1:3] == ("nano-s", 0.6))
    worst = calibration.furthest(found)[0]
    assert (worst["model"], worst["rho"]) == ("nano-s", 0.6)
    assert worst["predicted"] > worst["measured"] + 0.15
    rows = {(r["axis"], r["value"]): r for r in calibration.anatomy(found)}
    assert rows["rho", 0.6]["coverage"][0] < rows["rho", 0.3]["coverage"][0]
    assert rows["model", "nano-m"]["runs"] == 15


def test_collapsed_runs_are_not_scored_and_too_little_is_nothing(runs: list) -> None:
    rungs = ladder("nano")
    hurt = [replace(r, health=Health("collapsed", "made so")) if r.spec.rho == 0.85 else r for r in runs]
    out = calibration.calibration({"as made": hurt}, rungs, ["pass@1"])
    assert out["not_scored"] == 6
    assert out["rows"][0]["runs"] == 24
    assert {f["rho"] for f in out["forecasts"]} == {0.3, 0.45, 0.6, 0.75}
    assert calibration.leave_one_setting_out([], rungs, "pass@1") == []
    assert calibration.leave_one_setting_out(runs[:1], rungs, "pass@1") == []
    assert calibration.summary([]) == {"runs": 0}


def test_a_fit_that_doubts_a_left_out_run_may_not_widen_its_own_interval(runs: list) -> None:
    """One wild seed: its noise is inflated in the fit, and its siblings' intervals must not be."""
    wild = runs[0]
    curve = wild.curves["pass@1"]
    up = replace(wild, curves={"pass@1": replace(curve, value=(curve.value[0], *([0.98] * (len(curve) - 1))))})
    found = {f.record: f for f in calibration.leave_one_setting_out([up, *runs[1:]], ladder("nano"), "pass@1")}
    siblings = [f for f in found.values() if f.setting == found[up.id].setting and f.record != up.id]
    widths = np.array([f.hi - f.lo for f in siblings])
    assert found[up.id].hi - found[up.id].lo == pytest.approx(widths.mean(), rel=0.15)
    assert not found[up.id].covered
