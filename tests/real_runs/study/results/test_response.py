"""Optima, differences and disagreement against slices whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from race.allocation import solve_update_ratio, step_allocation
from race.ladders import ladder
from real_runs.study.frontier import SliceKey
from real_runs.study.results import learning, optima
from real_runs.study.results.evidence import StudyRecords
from real_runs.study.results.response import Response, difference, peak, regimes, responses
from real_runs.study.results.statistics import flat_p, number, share_of
from real_runs.study.results.targets import disagreement
from tests.real_runs.study.results.made import collapsed, logit, top

RHOS = np.array([0.3, 0.45, 0.6, 0.75, 0.85])
KEY = SliceKey("sparse", "nano-s", 4 * 10**11, 8)
TARGETS = ("native", "pass@1")


def drawn(tops: tuple[float, float], rng: np.random.Generator, *, noise: float = 0.015, bend: float = 0.06) -> Response:
    """A slice whose two targets share a run's luck."""
    means = np.stack([0.7 - bend * (logit(RHOS) - logit(t)) ** 2 for t in tops], axis=1)
    values = []
    for mean in means:
        luck = noise * rng.standard_normal((3, 1))
        values.append(mean + luck + 0.2 * noise * rng.standard_normal((3, 2)))
    return Response(KEY, TARGETS, RHOS, tuple(values), ((),) * 5)


def test_two_names_of_one_measurement_agree_exactly() -> None:
    rng = np.random.default_rng(0)
    response = drawn((0.5, 0.5), rng)
    twice = replace(response, values=tuple(np.repeat(v[:, :1], 2, axis=1) for v in response.values))
    row = disagreement({KEY: twice}, [("native", "pass@1")])[0]
    assert (row["difference"], row["lo"], row["hi"], row["lost"], row["lost_hi"]) == (0, 0, 0, 0, 0)
    assert row["same_values"]
    assert row["p_same_best_arm"] == 1


def test_a_difference_between_targets_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    rows = [disagreement({KEY: drawn((0.5, 0.65), rng)}, [("native", "pass@1")], draws=400)[0] for _ in range(80)]
    assert sum(row["lo"] <= -0.15 <= row["hi"] for row in rows) >= 70


def test_luck_that_two_targets_share_does_not_count_as_disagreement() -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        response = drawn((0.55, 0.55), rng)
        together = disagreement({KEY: response}, [("native", "pass@1")], draws=400)[0]
        # The same two columns as if they were two slices with runs of their own.
        one, other = replace(response, targets=("t", "")), replace(response, targets=("", "t"))
        apart = difference(one, other, "t", draws=400)
        assert apart is not None
        assert together["hi"] - together["lo"] < 0.6 * (apart.hi - apart.lo)


def test_losses_are_those_of_the_means_and_zero_on_average_without_disagreement() -> None:
    rng = np.random.default_rng(2)
    lost = [disagreement({KEY: drawn((0.6, 0.6), rng)}, [("native", "pass@1")], draws=50)[0] for _ in range(60)]
    assert all(row["lost"] >= 0 for row in lost)
    assert abs(np.mean([row["lost_cross_validated"] for row in lost])) < 0.003
    far = disagreement({KEY: drawn((0.32, 0.8), rng)}, [("native", "pass@1")], draws=400)[0]
    truth = 0.06 * ((logit(0.3) - logit(0.8)) ** 2 - (logit(0.75) - logit(0.8)) ** 2)
    assert far["lost"] == pytest.approx(truth, abs=0.03)
    assert far["lost_cross_validated"] == pytest.approx(truth, abs=0.03)


def test_a_flat_slice_says_so() -> None:
    rng = np.random.default_rng(3)
    found = [peak(drawn((0.5, 0.5), rng, bend=0.0), "native", draws=300) for _ in range(40)]
    assert sum(bool(f.within_noise) for f in found) >= 25
    assert np.mean([f.p_flat for f in found]) == pytest.approx(0.5, abs=0.15)
    sharp = peak(drawn((0.5, 0.5), rng), "native", draws=500)
    assert not sharp.within_noise
    assert sharp.p_flat is not None
    assert sharp.p_flat < 1e-3
    assert sharp.p_best is not None
    assert sum(sharp.p_best) == pytest.approx(1)


def test_one_seed_borrows_from_another_rank_of_its_model_and_reward(evidence: StudyRecords) -> None:
    slices = responses(evidence.tuned, TARGETS)
    alone = next(r for k, r in slices.items() if k.rank == 2)
    lender = slices[KEY]
    assert alone.run_sd is None
    assert alone.borrowed is not None
    assert np.array_equal(alone.borrowed, lender.residuals)
    assert peak(alone, "native").borrowed
    nobody = responses([r for r in evidence.tuned if r.spec.recipe.lora and r.spec.recipe.lora.rank == 2], TARGETS)
    assert peak(next(iter(nobody.values())), "native").interval is None


def test_process_rewards_peak_lower_than_sparse_where_they_were_made_to(evidence: StudyRecords) -> None:
    slices = responses(evidence.tuned, ("native", "pass@1", "judge"))
    main = {k: r for k, r in slices.items() if k.rank == 8 and k.budget == KEY.budget}
    for key, response in main.items():
        # Native peaks at the top of the made-up latent, up to noise.
        assert response.rho_star("native") == pytest.approx(top(key.reward, "native"), abs=0.12)
    rows = [r for r in optima.between_rewards(main, ["native"], ladder("nano")) if r["reward"] == "prm"]
    assert {r["model"] for r in rows} == {"nano-s", "nano-m", "all"}
    assert all(r["hi"] < 0 for r in rows)
    one, two, both = (next(r for r in rows if r["model"] == m) for m in ("nano-s", "nano-m", "all"))
    assert both["value"] == pytest.approx((one["value"] + two["value"]) / 2)
    for row in (one, two):
        # What feedback costs moves ρ at any one update ratio, which the plan of a run says just so.
        base = main[SliceKey("sparse", row["model"], KEY.budget, 8)]
        recipe, arch = base.runs[0][0].spec.recipe, ladder("nano")[row["model"]].architecture
        a = solve_update_ratio(arch, recipe, base.rho_star("native"))
        prm = replace(main[SliceKey("prm", row["model"], KEY.budget, 8)].runs[0][0].spec.recipe, update_ratio=a)
        assert row["priced"] < 0
        assert row["priced"] == pytest.approx(step_allocation(arch, prm).rho - base.rho_star("native"), abs=0.01)
    assert both["hi"] - both["lo"] < max(one["hi"] - one["lo"], two["hi"] - two["lo"])


def test_tuned_against_fixed_and_what_is_spent_at_the_optimum(evidence: StudyRecords) -> None:
    tuned, fixed = responses(evidence.tuned, TARGETS), responses(evidence.stage("fixed"), TARGETS)
    rows = optima.tuned_and_fixed(tuned, fixed, ["pass@1"])
    assert {(r["reward"], r["model"]) for r in rows} == {("sparse", "nano-s"), ("sparse", "nano-m")}
    again = optima.tuned_and_fixed(tuned, tuned, ["pass@1"])
    assert {(r["value"], r["lo"], r["hi"], r["best_gain"]) for r in again} == {(0, 0, 0, 0)}
    main = {k: r for k, r in tuned.items() if k.rank == 8 and k.budget == KEY.budget}
    for row in optima.at_optimum(main, ["native"]):
        assert row["search_share"] + row["learning_share"] + row["reward_share"] == pytest.approx(1)
        assert row["learning_share"] == pytest.approx(row["rho"], abs=0.02)
        assert (row["reward_share"] > 0) == (row["reward"] == "prm")
    assert all(r["fewer_at_every_equal_rho"] for r in optima.larger_fewer(main, ladder("nano"), "native"))


def test_native_curves_are_normalised_within_their_reward_system(evidence: StudyRecords) -> None:
    slices = responses(evidence.stage("main"), TARGETS)
    rows = optima.curves(slices, "native")
    for reward in ("sparse", "prm"):
        scaled = [v for row in rows if row["reward"] == reward for v in row["normalised"]]
        assert (min(scaled), max(scaled)) == (0, 1)
    assert "normalised" not in optima.curves(slices, "pass@1")[0]
    assert [len(v) for v in rows[0]["values"]] == rows[0]["n"] == [3] * 5


def test_collapsed_runs_count_with_what_they_ended_at(evidence: StudyRecords) -> None:
    runs = evidence.stage("main")
    hurt = [collapsed(r) if r.spec.rho == 0.85 else r for r in runs]
    assert responses(hurt, TARGETS).keys() == responses(runs, TARGETS).keys()
    rows = learning.arms(responses(hurt, TARGETS))
    assert {r["collapsed"] for r in rows if r["rho"] == 0.85} == {1.0}
    assert {r["collapsed"] for r in rows if r["rho"] < 0.85} == {0.0}
    assert all(r["memorised"] == pytest.approx(0.05) and r["silent"] == pytest.approx(0.4) for r in rows)
    # The made-up curve has done (1 - e^-1.5) / (1 - e^-3) of its latent gain at half of the budget.
    assert np.median([r["done_half"] for r in rows if r["done_half"] is not None]) == pytest.approx(0.82, abs=0.08)
    ends = learning.ends_of_range(rows)
    assert [r["arm"] for r in ends[:3]] == ["lowest", "best", "highest"]


def test_regimes_of_a_slice_follow_its_costs(evidence: StudyRecords) -> None:
    rungs = ladder("nano")
    sparse = next(r for r in evidence.stage("main") if r.spec.reward == "sparse")
    prm = next(r for r in evidence.stage("main") if r.spec.reward == "prm" and r.spec.model == "nano-s")
    assert regimes(rungs, KEY, sparse, [0.3, 0.6]) == ["search-heavy", "update-heavy"]
    # The process reward model is larger than nano-s: most of what is not learning is scoring.
    assert regimes(rungs, SliceKey("prm", "nano-s", KEY.budget, 8), prm, [0.3, 0.6]) == ["reward-heavy", "update-heavy"]


def test_small_statistics() -> None:
    assert share_of(8, 10) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    assert share_of(0, 0)[1:] == (0, 1)
    assert flat_p([np.array([1.0, 1.1, 0.9]), np.array([1.0, 1.1, 0.9])]) == pytest.approx(1)
    assert flat_p([np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.1, 1.9])]) == pytest.approx(2.55e-4, rel=0.02)
    assert flat_p([np.array([1.0]), np.array([2.0])]) is None
    assert number({1: (float("inf"), np.float64(1 / 3), [np.bool_(True)])}) == {"1": [None, 0.333333, [True]]}
