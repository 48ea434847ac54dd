"""Pilots from recorded runs, and regimes decided from them."""

from __future__ import annotations

import pytest

from race.ladders import ladder
from real_runs.study.results.evidence import StudyRecords, slice_key
from real_runs.study.results.prior import BASES, against_prior
from real_runs.study.results.regimes import OTHER, OWN, leave_one_rank_out, same_regime, splits
from real_runs.study.results.response import responses

MAIN, SMALL = 4 * 10**11, 13 * 10**10


def sparse(evidence: StudyRecords) -> list:
    return [r for r in evidence.tuned if r.spec.reward == "sparse" and slice_key(r).rank == 8]


def test_pilots_share_no_run_with_the_truth(evidence: StudyRecords) -> None:
    for budget in (MAIN, SMALL):
        for split in splits(sparse(evidence), budget):
            names = {r.provenance.get("cut_from", r.id) for r in split.pilots}
            assert not names & {r.id for r in split.held}
            settings = [(r.spec.model, r.spec.rho) for r in split.pilots]
            assert len(settings) == len(set(settings))


def test_pilots_are_a_tenth_where_another_budget_has_one_and_a_sixth_otherwise(evidence: StudyRecords) -> None:
    found = splits(sparse(evidence), MAIN)
    assert len(found) == 3
    assert found[0].sources == {"nano-s": OTHER, "nano-m": OWN}
    for split in found:
        for pilot in split.pilots:
            share = pilot.spec.budget / MAIN
            # A third of the small budget is 0.11 of the main one; steps are whole, so not to the digit.
            expected = 1.3 / 12 if pilot.spec.model == "nano-s" else 1 / 6
            assert share == pytest.approx(expected, abs=0.03)
        assert len([r for r in split.held if r.spec.model == "nano-s"]) == 15
        assert len([r for r in split.held if r.spec.model == "nano-m"]) == 10
    # One seed at the small budget leaves no truth but itself, and the main budget has nothing that small.
    assert splits([r for r in sparse(evidence) if r.spec.budget == SMALL], SMALL) == []


def test_regimes_that_were_made_are_named(evidence: StudyRecords) -> None:
    runs = [r for r in evidence.tuned if r.spec.budget == MAIN]
    found = same_regime(runs, evidence.rates, ladder("nano"), ["native"])
    assert {(t["reward"], t["model"]) for t in found["trials"]} == {
        (reward, model) for reward in ("sparse", "prm") for model in ("nano-s", "nano-m", "all")
    }
    for trial in found["trials"]:
        # Tops were made at 0.68 and 0.36.
        assert (trial["truth"] == "update-heavy") == (trial["reward"] == "sparse")
        assert sum(trial["truth_probabilities"].values()) == pytest.approx(1)
        assert trial["right"]["always update-heavy"] == (trial["reward"] == "sparse")
    by = {(r["scope"], r["method"]): r for r in found["rates"]}
    assert by["per model", "always update-heavy"]["right"][0] == 0.5
    assert by["per model", "race"]["trials"] == 12
    assert by["per model", "race"]["as_good"][0] >= by["per model", "race"]["right"][0]
    assert by["per model", "race"]["as_good"][0] > 0.5


def test_a_rank_is_decided_from_the_others(evidence: StudyRecords) -> None:
    said: list[str] = []
    found = leave_one_rank_out(evidence.tuned, evidence.rates, ladder("nano"), ["native"], told=said.append)
    assert {(t["left_out_rank"], t["model"], t["reward"]) for t in found["trials"]} == {
        (rank, "nano-s", "sparse") for rank in (2, 8)
    }
    assert len(said) == 2
    assert all(t["truth"] == "update-heavy" for t in found["trials"])


def test_nothing_to_decide_is_nothing(evidence: StudyRecords) -> None:
    rungs = ladder("nano")
    assert same_regime([], None, rungs, ["native"]) == {"pilot_share": 0.1, "trials": [], "rates": []}
    assert leave_one_rank_out([], None, rungs, ["native"], told=print) == {"trials": [], "rates": []}
    assert against_prior({}, None, rungs, ["native"])["rows"] == []


def test_the_prior_is_held_against_means(evidence: StudyRecords) -> None:
    slices = responses(evidence.stage("main"), ["native"])
    found = against_prior(slices, evidence.rates, ladder("nano"), ["native"])
    assert len(found["settings"]) == 20
    assert len(found["peaks"]) == 4
    for row in found["settings"]:
        assert row["covered"] == (row["lo"] <= row["measured"] <= row["hi"])
        assert row["lo"] <= row["mean"] <= row["hi"]
    assert all(p["lost"] >= 0 and p["lo"] <= p["hi"] for p in found["peaks"])
    told = against_prior(slices, evidence.rates, ladder("nano"), ["native"], knowing=BASES)
    # Base models of 0.31 are not what the simulator expects of a hundred thousand parameters.
    assert told["rows"][0]["rmse"] < found["rows"][0]["rmse"]
    assert found["rows"][0]["coverage"][0] == pytest.approx(sum(r["covered"] for r in found["settings"]) / 20)
