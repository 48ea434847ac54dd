"""Is the run well? Flags while it goes, a verdict at the end.

A collapsed or diverged run is a result: it is recorded as such, never dropped.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from race.records import Curve, Health

# Mean over the run of the largest rollout/training log-prob gap of a step: fp32 engines sit near 1e-5.
MISMATCH_LIMIT = 0.05
TRUNCATION_LIMIT = 0.5
SILENT_LIMIT = 0.9
COLLAPSE_SHARE = 0.5
COLLAPSE_Z = 3.0


@dataclass
class HealthCounts:
    """Sums over the steps of a run; part of the checkpoint.

    Attributes
    ----------
    steps, groups, silent, samples, truncated
        Steps done; groups sampled and those with all rewards equal; completions, and those cut by the limit.
    varied
        Steps with at least one group whose rewards differ.
    mismatch
        Sum over steps of the largest log-prob gap between rollout and training.
    unstable
        True once a loss or gradient was not finite.
    """

    steps: int = 0
    groups: int = 0
    silent: int = 0
    samples: int = 0
    truncated: int = 0
    varied: int = 0
    mismatch: float = 0.0
    unstable: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HealthCounts:
        """As `to_dict` wrote it."""
        return cls(**{f.name: data[f.name] for f in fields(cls)})


def flags(counts: HealthCounts, *, used: float, truncates: bool, gamed: bool = False) -> tuple[str, ...]:
    """Names of what looks wrong.

    Parameters
    ----------
    used
        Share of the budget spent.
    truncates
        Sampling cuts the tail of the distribution off.
    gamed
        The training reward rose while true accuracy fell.
    """
    found = []
    if counts.steps and not counts.varied:
        found.append("all-rewards-equal")
    elif counts.groups and counts.silent / counts.groups > SILENT_LIMIT:
        found.append("mostly-silent-groups")
    if counts.samples and counts.truncated / counts.samples > TRUNCATION_LIMIT:
        found.append("mostly-truncated")
    if counts.steps and counts.mismatch / counts.steps > MISMATCH_LIMIT:
        found.append("logprob-mismatch")
    if truncates:
        found.append("truncated-sampling")
    if gamed:
        found.append("reward-up-accuracy-down")
    if used < 0.97 and not counts.unstable:
        found.append("budget-underused")
    return tuple(found)


def verdict(counts: HealthCounts, curves: dict[str, Curve], found: tuple[str, ...]) -> Health:
    """Status of a finished run.

    Collapsed: some target ends below half of its best, by more than three standard errors of the difference.
    """
    if counts.unstable:
        return Health("diverged", "loss or gradient became NaN or infinite; the weights before it were kept", found)
    for target, curve in curves.items():
        best = max(range(len(curve)), key=lambda i: curve.value[i])
        drop = curve.value[best] - curve.value[-1]
        noise = (curve.se[best] ** 2 + curve.se[-1] ** 2) ** 0.5
        if curve.value[-1] < COLLAPSE_SHARE * curve.value[best] and drop > COLLAPSE_Z * noise:
            reason = f"{target} fell from {curve.value[best]:.3f} (step {curve.step[best]}) to {curve.value[-1]:.3f}"
            return Health("collapsed", reason, found)
    return Health("ok", "", found)
