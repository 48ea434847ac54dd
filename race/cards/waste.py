"""FLOPs that taught nothing, as far as the log shows. The kinds overlap, so they are never added up.

zero-variance groups   all rewards equal: rollouts, scoring and update without a gradient
truncated completions  cut at the limit: usually no answer, so no sign of right or wrong
never trained on       generated, scored and thrown away (dynamic sampling)
padding                executed beyond what the samples' own lengths need
done twice             steps repeated after a resume
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from race.cards.account import Spent, Work, work_of
from race.cards.runlog import FloatArray, RunLog
from race.flops import Architecture


@dataclass(frozen=True)
class Waste:
    """One kind: its share of what it is counted in, the FLOPs behind it, and how it is known.

    ``flops`` is ``None`` when the log cannot tell.
    """

    name: str
    label: str
    share: float | None
    of: str
    flops: float | None
    how: str


def waste_of(
    log: RunLog, policy: Architecture, values: Mapping[str, Any], needed: Spent, padded: Spent | None
) -> list[Waste]:
    """Every kind, with those that the log cannot tell."""
    work = work_of(log, values)
    return [
        _zero_variance(log, needed),
        _truncated(log, policy, values, work, needed),
        _never_trained(log, work, needed),
        _padding(needed, padded),
        _twice(log, needed),
    ]


def _weighted(share: FloatArray, weights: FloatArray) -> float:
    return float(np.average(share, weights=np.maximum(weights, 1e-12)))


def _zero_variance(log: RunLog, needed: Spent) -> Waste:
    name, label, of = "zero_variance", "groups whose rewards are all equal", "groups"
    if log.has("zero_std_share"):
        share, how = log.filled("zero_std_share"), f"log: {log.keys['zero_std_share']}"
    elif log.has("solved_none_share") and log.has("solved_all_share"):
        share = np.clip(log.filled("solved_none_share") + log.filled("solved_all_share"), 0, 1)
        how = f"log: {log.keys['solved_none_share']} + {log.keys['solved_all_share']}"
    else:
        return Waste(name, label, None, of, None, "not in the log")
    share = np.clip(share, 0, 1)
    return Waste(name, label, _weighted(share, needed.total), of, float((share * needed.total).sum()), how)


def _truncated(
    log: RunLog, policy: Architecture, values: Mapping[str, Any], work: Work, needed: Spent
) -> Waste:
    name, label, of = "truncated", "completions cut at the limit", "completions"
    if not log.has("truncated_share"):
        return Waste(name, label, None, of, None, "not in the log")
    share = np.clip(log.filled("truncated_share"), 0, 1)
    how = f"log: {log.keys['truncated_share']}"
    if log.trainer == "verl":
        share, how = _cut_by_verl(log, share, how)
    if log.has("completion_max") and values.get("completion_tokens") is None:
        # A cut completion is as long as the longest one, so it costs more than the mean.
        longest = np.maximum(log.filled("completion_max"), work.completion)
        ratio = (work.prompt + longest) / (work.prompt + work.completion)
        flops = float((np.minimum(share * ratio, 1) * needed.total).sum())
    else:
        flops = float((share * needed.total).sum())
    return Waste(name, label, _weighted(share, work.generated), of, flops, how)


def _cut_by_verl(log: RunLog, share: FloatArray, how: str) -> tuple[FloatArray, str]:
    """verl's newer trainer compares with the batch's longest response instead of the limit, so it never logs 0."""
    limit = log.config.get("completion_limit")
    if limit is None or not isinstance(limit.value, (int, float)) or not log.has("completion_max"):
        return share, f"{how}; recent releases count the longest of a batch even where none was cut"
    below = log.filled("completion_max") < limit.value
    cut: FloatArray = np.where(below, 0.0, share)
    return cut, f"{how}, where {log.keys['completion_max']} reaches {limit.source}"


def _never_trained(log: RunLog, work: Work, needed: Spent) -> Waste:
    name, label, of = "never_trained", "completions generated and never trained on", "completions"
    made, kept = float(work.generated.sum()), float(work.kept.sum())
    known = [n for n in ("kept_share", "generation_batches") if log.has(n)]
    if not known:
        how = f"{log.title} trains on what it generates, unless it filters: the log shows no filtering"
        return Waste(name, label, 0.0, of, 0.0, how)
    lost = (work.generated - work.kept) / np.maximum(work.generated, 1e-12)
    flops = float((lost * (needed.search + needed.reward)).sum())
    return Waste(name, label, 1 - kept / made, of, flops, f"log: {log.keys[known[0]]}")


def _padding(needed: Spent, padded: Spent | None) -> Waste:
    name, label, of = "padding", "padding and rows that wait for the longest", "executed FLOPs"
    if padded is None:
        return Waste(
            name, label, None, of, None, "no sign of padded batches, or no longest length in the log"
        )
    extra = float(padded.allocation.total - needed.allocation.total)
    return Waste(
        name,
        label,
        extra / float(padded.allocation.total),
        of,
        extra,
        "beyond the total above: executed less needed",
    )


def _twice(log: RunLog, needed: Spent) -> Waste:
    share = log.redone / max(log.total_steps + log.redone, 1)
    flops = float(needed.total.sum()) * needed.redone
    return Waste(
        "done_twice", "steps repeated after a resume", share, "steps", flops, "log: steps that go back"
    )
