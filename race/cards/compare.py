"""The trainer's own figure beside ours, and why they differ.

No trainer reports the split. Some report a utilisation of the update, from a formula of theirs; what that formula
gives for the lengths of this log can be recomputed without their clock, and what they measured can be turned back
into FLOPs when the GPU is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from race.cards.account import Spent, Work
from race.cards.runlog import RunLog
from race.errors import InvalidInput
from race.flops import FORMULAS, Architecture

_FORMULA = {
    "trl": "trl",
    "verl": "verl-qwen2",
    "openrlhf": "6nd",
    "prime-rl": "prime-rl",
    "nemo-rl": "nemo-rl-qwen2",
}


@dataclass(frozen=True)
class Comparison:
    """One figure: FLOPs by somebody else, of what, its ratio to ours for the same thing, and why it differs.

    ``flops`` and ``ratio`` are ``None`` for a figure that is no measurement.
    """

    name: str
    of: str
    flops: float | None
    ratio: float | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"name": self.name, "of": self.of, "flops": self.flops, "ratio": self.ratio, "why": self.why}


def comparisons_of(
    log: RunLog,
    policy: Architecture,
    values: Mapping[str, Any],
    work: Work,
    needed: Spent,
    peak: tuple[float, int] | None,
) -> list[Comparison]:
    """Everything there is to compare with."""
    found = [*_metered(log, needed), *_reported(log, needed), *_measured(log, needed, peak)]
    found += [
        c
        for name in dict.fromkeys((_FORMULA[log.trainer], "6nd"))
        if (c := _formula(name, policy, values, work, needed))
    ]
    return found


def _metered(log: RunLog, needed: Spent) -> list[Comparison]:
    """What ComputeCallback counted inside the run, sample by sample."""
    if not log.has("metered"):
        return []
    values = log.series["metered"]
    own = float(values[np.isfinite(values)][-1])
    why = "counted inside the run, sample by sample, in the convention and column that the callback was given"
    return [
        Comparison(
            f"{log.keys['metered']} in the log", "the run", own, own / float(needed.allocation.total), why
        )
    ]


def _reported(log: RunLog, needed: Spent) -> list[Comparison]:
    own = log.own_total
    if own is None:
        return []
    if own == 0:
        why = "0 is no measurement: transformers counts batches that carry input_ids, which GRPO's do not"
        return [Comparison("total_flos in the log", "the run", None, None, why)]
    total = float(needed.allocation.total)
    why = (
        "written by a meter inside the run (ComputeCallback) if one was on, else an estimate without rollouts"
    )
    return [Comparison("total_flos in the log", "the run", own, own / total, why)]


def _measured(log: RunLog, needed: Spent, peak: tuple[float, int] | None) -> list[Comparison]:
    """FLOPs behind a logged utilisation: rate x seconds of the update."""
    if not log.has("seconds_update") or peak is None:
        return []
    seconds = log.filled("seconds_update") * log.covered
    if log.has("own_flops"):
        rate, name = log.filled("own_flops") * peak[1], log.keys["own_flops"]
    elif log.has("own_mfu"):
        rate, name = log.filled("own_mfu") * peak[0] * peak[1], log.keys["own_mfu"]
    else:
        return []
    flops, update = float((rate * seconds).sum()), float(needed.update.sum())
    if flops <= 0:
        why = "0 is no measurement: the trainer does not know this model or this GPU's peak"
        return [Comparison(f"{name} in the log", "updates", None, None, why)]
    why = "its own formula, its own clock and the peak of the GPU named here; of updates only"
    return [Comparison(f"{name} in the log", "updates", flops, flops / update, why)]


def _formula(
    name: str, policy: Architecture, values: Mapping[str, Any], work: Work, needed: Spent
) -> Comparison | None:
    formula = FORMULAS[name]
    trained = float(work.trained.sum())
    update = float(needed.update.sum())
    if trained <= 0 or update <= 0:
        return None
    length = round(float(np.average(work.prompt + work.completion, weights=np.maximum(work.trained, 1e-12))))
    try:
        each = formula.update(policy, [length], lora=values["lora"]).total
    except InvalidInput:
        return None  # an architecture that this formula has nothing to say about
    flops = each * trained
    why = formula.deviates + ("; recomputation is left out" if values["checkpointing"] else "")
    return Comparison(f"{name} formula", "updates", flops, flops / update, why)
