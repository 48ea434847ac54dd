"""The benchmark's own arithmetic, and one world from end to end."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "planner_vs_peers.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("planner_vs_peers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["planner_vs_peers"] = module
    spec.loader.exec_module(module)
    return module


def run_of(regrets: list[float]) -> dict[str, Any]:
    return {"steps": [{"spent": (i + 1) / 10, "regret": r} for i, r in enumerate(regrets)]}


@pytest.mark.parametrize(
    ("regrets", "stays", "first"),
    [
        ([0.2, 0.005, 0.004], 0.2, 0.2),
        ([0.005, 0.2, 0.004], 0.3, 0.1),
        ([0.005, 0.004, 0.2], np.inf, 0.1),
        ([0.3, 0.2], np.inf, np.inf),
    ],
)
def test_a_decision_counts_from_when_it_stays_right(
    bench: ModuleType, regrets: list[float], stays: float, first: float
) -> None:
    assert bench.flops_to(run_of(regrets)) == stays
    assert bench.flops_to(run_of(regrets), stay=False) == first


def test_the_row_at_a_share_is_the_last_one_paid_for(bench: ModuleType) -> None:
    run = run_of([0.3, 0.2, 0.1])
    assert [bench.at(run, s)["regret"] for s in (0.05, 0.1, 0.25, 1.0)] == [0.3, 0.3, 0.2, 0.1]


def test_calibration_error_of_known_forecasts(bench: ModuleType) -> None:
    sure = {"search-heavy": 0.0, "update-heavy": 1.0, "reward-heavy": 0.0}
    assert bench.calibration_error([sure] * 4, ["update-heavy"] * 4) == 0.0
    # Right three times of four at full confidence: off by a quarter in two of three classes.
    off = bench.calibration_error([sure] * 4, ["update-heavy"] * 3 + ["reward-heavy"])
    assert off == pytest.approx((0.25 + 0.25) / 3)


def test_medians_survive_methods_that_never_get_there(bench: ModuleType) -> None:
    assert bench.median_interval([0.1, 0.2, np.inf])[0] == 0.2
    assert bench.median_interval([np.inf] * 5) == [np.inf] * 3
    assert bench.quantile_interval([0.1, 0.2, 0.3, np.inf], 0.25)[0] == 0.1
    low, high = bench.share_interval([True] * 19 + [False])[1:]
    assert 0 < low < 0.95 < high < 1


def test_ties_are_counted_by_the_tolerance_of_decisions(bench: ModuleType) -> None:
    """A flat alien world: every update fraction of one stretch is as good, and what the label loses is what counts."""
    problem = next(p for p in bench.problems("alien", 7) if p.world.name == "alien-threshold-1")
    assert [problem.truth.rho] * 2 in problem.near_rhos
    on, loss = problem.dense
    assert loss.min() < 1e-3
    assert loss.max() <= 1
    for low, high in problem.near_rhos[1:]:
        inside = (on.rhos >= low) & (on.rhos <= high)
        assert (loss[inside] <= bench.WITHIN).any()
    assert problem.loss_by_regime[problem.truth.regime] < 1e-3
    model = [m.name for m in problem.rungs.models].index(problem.truth.model)
    run = {"key": problem.key, "steps": [{"model": model, "rho": problem.truth.rho}]}
    assert bench.decided_regime(run) == problem.truth.regime


@pytest.mark.slow
def test_one_world_of_each_family(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["planner_vs_peers.py", "--worlds", "1", "--methods", "race,grid,random,tpe", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    bench.main()
    first = (tmp_path / "runs.jsonl").read_text()
    assert len(first.splitlines()) == 2 * (1 + 3 * 2)
    for line in first.splitlines():
        for row in json.loads(line)["steps"]:
            assert row["regret"] >= 0
            assert row["spent"] <= 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["own"]["methods"]) == {"race", "grid", "random", "tpe"}
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    bench.main()  # resumes: nothing is run twice
    assert (tmp_path / "runs.jsonl").read_text() == first
