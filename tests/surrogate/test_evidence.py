from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from surrogate_pilots import RUNGS, record, spec

from race.errors import InvalidInput
from race.records import Curve, Health
from surrogate import evidence
from surrogate.evidence import POINTS_PER_CURVE, gather, resolve_target, thin


def test_copies_count_once_and_are_said() -> None:
    one = record(spec(seed=1), 0.4)
    copy = replace(one, id="another-id")
    found = gather([one, one, copy, record(spec(seed=2), 0.4)], RUNGS)
    assert len(found.runs) == 2
    assert found.counts == {"real": 2, "imported": 0, "simulated": 0}
    assert any("copies" in note for note in found.notes)


def test_the_same_measurements_under_another_seed_or_length_count_once() -> None:
    one = record(spec(seed=1), [0.11, 0.2, 0.32, 0.41], points=4, evidence="imported")
    again = replace(one, id="read-twice", spec=replace(one.spec, seed=7, budget=2 * one.spec.budget, rho=0.41))
    other = record(spec(seed=1), [0.11, 0.2, 0.32, 0.42], points=4, evidence="imported")
    found = gather([one, again, other], RUNGS)
    assert [run.record.id for run in found.runs] == [one.id, other.id]
    assert any("1 record(s) are copies" in note for note in found.notes)


def test_runs_that_hold_few_values_are_not_taken_for_copies() -> None:
    """Two seeds that both end where they began are two findings."""
    assert len(gather([record(spec(seed=i), 0.0, points=6) for i in range(3)], RUNGS).runs) == 3


def test_training_that_hurts_is_said() -> None:
    fallen = record(spec(seed=1), lambda share: 0.5 - 0.3 * share)
    found = gather([fallen, record(spec(seed=2), lambda share: 0.5 + 0.1 * share)], RUNGS)
    [note] = [note for note in found.notes if "hurt" in note]
    assert fallen.id in note
    assert "0.50 to 0.20" in note
    noisy = record(spec(seed=1), lambda share: 0.5 - 0.05 * share)
    assert not any("hurt" in note for note in gather([noisy], RUNGS).notes)


def test_simulated_records_never_outweigh_measured_ones() -> None:
    simulated = [record(spec(seed=i), 0.9, evidence="simulated") for i in range(50)]
    alone = gather(simulated, RUNGS)
    assert alone.counts["simulated"] == 50
    together = gather([*simulated, record(spec(seed=99), 0.2, evidence="imported")], RUNGS)
    assert together.counts == {"real": 0, "imported": 1, "simulated": 0}
    assert any("50 simulated record(s) left out" in note for note in together.notes)


@pytest.mark.parametrize("status", ["collapsed", "diverged", "failed"])
def test_sick_runs_are_counted_and_left_out(status: str) -> None:
    sick = record(spec(seed=1), 0.1, health=Health(status, "reward fell"))  # type: ignore[arg-type]
    found = gather([sick, record(spec(seed=2), 0.5)], RUNGS)
    assert len(found.runs) == 1
    assert found.unhealthy == {status: 1}
    assert any(status in note for note in found.notes)


def test_a_run_stopped_by_the_clock_keeps_its_curve() -> None:
    found = gather([record(spec(), 0.5, health=Health("timeout", "wall clock"))], RUNGS)
    assert len(found.runs) == 1


def test_models_off_the_ladder() -> None:
    known = record(replace(spec(seed=1), model="Qwen2.5-14B-Instruct", params=14_770_033_664), 0.5)
    near = record(replace(spec(seed=2), model="my-finetune", params=2_000_000_000), 0.5)
    far = record(replace(spec(seed=3), model="my-giant", params=900_000_000_000), 0.5)
    found = gather([known, near, far], RUNGS)
    assert [run.model.params for run in found.runs] == [14_770_033_664, 2_000_000_000]
    assert any("my-giant" in note and "skipped" in note for note in found.notes)
    assert any("my-finetune" in note for note in found.notes)


def test_only_records_are_accepted() -> None:
    with pytest.raises(InvalidInput, match="records: found dict"):
        gather([{"schema": "race.pilot/1"}], RUNGS)  # type: ignore[list-item]


def test_pass_at_1_means_the_one_benchmark_in_evidence() -> None:
    assert resolve_target("pass@1", ["native", "pass@1:gsm8k"]) == "pass@1:gsm8k"
    assert resolve_target("pass@1", ["pass@1", "pass@1:gsm8k"]) == "pass@1"
    assert resolve_target("pass@1", []) == "pass@1"
    assert resolve_target("pass@1:math500", ["pass@1:gsm8k"]) == "pass@1:math500"
    with pytest.raises(InvalidInput, match="pass@1:gsm8k, pass@1:math500"):
        resolve_target("pass@1", ["pass@1:math500", "pass@1:gsm8k"])


def curve(values: np.ndarray, se: float = 0.05, *, first: float = 0.0) -> Curve:
    n = len(values)
    return Curve(
        tuple(range(n)),
        tuple(first + 1e16 * i for i in range(n)),
        tuple(float(v) for v in values),
        tuple([se] * n),
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=400), st.integers(1, 20))
def test_thinning_keeps_ends_order_and_range(values: list[float], limit: int) -> None:
    made = curve(np.array(values))
    out = thin(made, limit)
    assert 1 <= len(out.flops) <= limit
    assert np.all(np.diff(out.flops) > 0)
    assert limit == 1 or out.flops[0] == 0
    assert out.flops[-1] <= made.flops[-1] * (1 + 1e-9)
    assert out.value.min() >= min(values) - 1e-12
    assert out.value.max() <= max(values) + 1e-12


@given(st.integers(2, 400), st.integers(1, 12), st.booleans(), st.booleans())
def test_a_thinned_curve_lies_on_the_curve_up_to_its_end(points: int, limit: int, base: bool, fresh: bool) -> None:
    # Levels off, as learning does: the mean of a wide stretch would lie below it.
    flops = np.linspace(0 if base else 1e16, 1e16 * points, points)
    value = 0.9 * (1 - np.exp(-4 * flops / flops[-1]))
    out = thin(Curve(tuple(range(points)), tuple(flops), tuple(value), tuple([0.01] * points)), limit, fresh=fresh)
    wide = fresh and points > 48
    near = 8e-3 if wide else 1e-3
    assert out.value == pytest.approx(0.9 * (1 - np.exp(-4 * out.flops / flops[-1])), abs=near)
    assert out.flops[-1] >= flops[-1] * np.exp(-0.25 if wide else -0.05)


def test_measurements_far_apart_are_not_mixed() -> None:
    made = curve(np.array([0.1, 0.3, 0.5, 0.6, 0.65, 0.68, 0.7]))
    out = thin(made, 4)
    assert set(out.value) <= {0.1, 0.3, 0.5, 0.6, 0.65, 0.68, 0.7}
    assert (out.flops[-1], out.value[-1]) == (pytest.approx(6e16), pytest.approx(0.7))


def test_fresh_samples_average_out_and_one_question_set_does_not() -> None:
    made = curve(np.full(300, 0.5))
    assert thin(made, fresh=True).se[-1] < 0.02
    assert thin(made, fresh=False).se[-1] == pytest.approx(0.05)
    assert len(thin(made).flops) == POINTS_PER_CURVE


def test_more_records_than_can_be_fitted_are_thinned_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "TOTAL_POINTS", 40)
    found = gather([record(spec(seed=i), 0.4, points=3) for i in range(45)], RUNGS)
    assert found.points <= 40
    assert any("one run in 2" in note for note in found.notes)


def test_a_flat_stretch_of_flops_is_one_point() -> None:
    same = Curve((0, 1, 2), (5e15, 5e15, 5e15), (0.1, 0.2, 0.3), (0.0, 0.0, 0.0))
    out = thin(same)
    assert len(out.flops) == 1
    assert out.value[0] == pytest.approx(0.2)


def test_a_measured_zero_is_not_certain() -> None:
    p = np.array([0.0, 0.05, 0.1, 0.2])
    binomial = Curve((0, 1, 2, 3), (0.0, 1e16, 2e16, 3e16), tuple(p), tuple(np.sqrt(p * (1 - p) / 500)))
    se = thin(binomial).se
    assert 0.001 < se[0] < 0.01
    exact = Curve((0, 1), (0.0, 1e16), (0.0, 1.0), (0.0, 0.0))
    assert not thin(exact).se.any()
