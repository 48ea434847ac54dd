"""What the rewards said and counted while a run trained, so that a policy that games its reward is seen doing it.

Beside the training reward stand its parts (true accuracy among them, whatever is trained on) and the reward's counters:
steps and tokens per step, marks forged, answers that timed out. Each step logs its own; between two evaluations they
are added up into one row, and the rows are part of the run's record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from real_runs.contracts import Scores

# Two rows of a few hundred completions differ by more than this many standard errors only if something changed.
GAMING_Z = 3.0


def score_metrics(scores: Scores) -> dict[str, float]:
    """``reward/NAME``: the mean of each part; ``health/NAME``: each counter, and ratios where steps were counted."""
    parts = {f"reward/{name}": float(np.mean(part)) for name, part in scores.parts.items()}
    health = {**scores.health, **_ratios(scores.health, len(scores.values))}
    return parts | {f"health/{name}": float(value) for name, value in health.items()}


def _ratios(health: Mapping[str, float], completions: int) -> dict[str, float]:
    if "steps" not in health:
        return {}
    ratios = {"steps_per_completion": health["steps"] / max(completions, 1)}
    if "step_tokens" in health:
        ratios["tokens_per_step"] = health["step_tokens"] / max(health["steps"], 1)
    return ratios


@dataclass
class Watch:
    """Rows so far, and the sums of the one that is not closed yet; part of the checkpoint.

    Attributes
    ----------
    completions
        Scored since the last row.
    sums, health
        Of the training reward and its parts, and of the counters, since the last row.
    rows
        One for each stretch between evaluations: ``step`` (its last), ``completions``, ``reward``, each part's mean,
        and the counters.
    """

    completions: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    health: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)

    def add(self, scores: Scores) -> None:
        """One step's scores."""
        self.completions += len(scores.values)
        for name, part in {**scores.parts, "reward": scores.values}.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(np.sum(part))
        for name, count in scores.health.items():
            self.health[name] = self.health.get(name, 0.0) + float(count)

    def close(self, step: int) -> None:
        """End a row at ``step``; nothing happens where nothing was scored."""
        if not self.completions:
            return
        means = {name: total / self.completions for name, total in self.sums.items()}
        ratios = _ratios(self.health, self.completions)
        self.rows.append({"step": step, "completions": self.completions, **means, **self.health, **ratios})
        self.completions, self.sums, self.health = 0, {}, {}

    @property
    def gamed(self) -> bool:
        """Whether the training reward rose from the first row to the last while true accuracy fell, beyond chance."""
        if len(self.rows) < 2 or "accuracy" not in self.rows[0]:
            return False
        first, last = self.rows[0], self.rows[-1]
        # A mean of n numbers in [0, 1] has a standard error of at most 0.5 / sqrt(n).
        chance = GAMING_Z * 0.5 * math.sqrt(1 / first["completions"] + 1 / last["completions"])
        return last["reward"] - first["reward"] > chance and first["accuracy"] - last["accuracy"] > chance

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"completions": self.completions, "sums": self.sums, "health": self.health, "rows": self.rows}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Watch:
        """As `to_dict` wrote it."""
        return cls(data["completions"], dict(data["sums"]), dict(data["health"]), [dict(row) for row in data["rows"]])
