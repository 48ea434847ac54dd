"""Training rewards and counters: rows between evaluations, and the sign of a gamed reward."""

from __future__ import annotations

import json

import numpy as np
import pytest

from real_runs.contracts import Scores
from real_runs.grpo.ranks import DividedScores, Ranks
from real_runs.grpo.watch import Watch, score_metrics


def scores(reward: float, accuracy: float, n: int = 200, **health: float) -> Scores:
    parts = {"prm": np.full(n, reward), "accuracy": np.full(n, accuracy)}
    return Scores(np.full(n, reward), parts=parts, health=health)


def test_a_row_is_means_of_parts_and_sums_of_counters() -> None:
    watch = Watch()
    watch.add(scores(0.2, 0.5, n=4, steps=8.0, step_tokens=40.0, forged_marks=1.0))
    watch.add(scores(0.8, 0.1, n=12, steps=8.0, step_tokens=24.0, forged_marks=2.0))
    watch = Watch.from_dict(json.loads(json.dumps(watch.to_dict())))
    watch.close(7)
    watch.close(8)  # nothing was scored since
    (row,) = watch.rows
    assert (row["step"], row["completions"], row["forged_marks"]) == (7, 16, 3.0)
    assert row["reward"] == row["prm"] == pytest.approx(0.65)
    assert row["accuracy"] == pytest.approx(0.2)
    assert row["steps_per_completion"] == 1.0
    assert row["tokens_per_step"] == 4.0


def test_metrics_of_one_step() -> None:
    metrics = score_metrics(scores(0.5, 0.25, n=4, steps=6.0, step_tokens=18.0, grading_timeouts=1.0))
    assert metrics["reward/accuracy"] == 0.25
    assert metrics["health/grading_timeouts"] == 1.0
    assert metrics["health/tokens_per_step"] == 3.0
    assert score_metrics(Scores(np.ones(2))) == {}


@pytest.mark.parametrize(
    ("rewards", "accuracies", "gamed"),
    [((0.2, 0.9), (0.6, 0.2), True), ((0.2, 0.9), (0.2, 0.6), False), ((0.2, 0.9), (0.6, 0.55), False),
     ((0.2, 0.25), (0.6, 0.2), False)],
)
def test_gamed(rewards: tuple[float, float], accuracies: tuple[float, float], gamed: bool) -> None:
    watch = Watch()
    for step, (reward, accuracy) in enumerate(zip(rewards, accuracies, strict=True)):
        watch.add(scores(reward, accuracy))
        watch.close(step)
    assert watch.gamed is gamed


def test_processes_add_their_counters() -> None:
    class Everyone(Ranks):
        def gathered(self, mine: Scores) -> list[Scores]:  # type: ignore[override]
            return [mine, scores(0.0, 0.0, n=3, timeouts=2.0, cut=1.0)]

    class One:
        name = "prm"

        def score(self, completions: object) -> Scores:
            return scores(1.0, 1.0, n=1, timeouts=1.0)

    found = DividedScores(One(), Everyone(0, 2)).score([None] * 4)  # type: ignore[arg-type, list-item]
    assert found.health == {"timeouts": 3.0, "cut": 1.0}
    assert found.values.tolist() == [1, 0, 0, 0]
    assert found.parts["accuracy"].tolist() == [1, 0, 0, 0]
