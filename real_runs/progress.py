"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run stands; what a live table shows.

    Attributes
    ----------
    step, budget
        Steps done; FLOPs the run may spend.
    flops
        Spent so far by phase, and ``eval`` beside it.
    metrics
        Of the last step.
    values
        Latest evaluation by target.
    seconds, eta
        Of this process; forecast of what is left at the current pace, ``None`` before the first step.
    note
        Something worth telling once: a resume, a skipped checkpoint.
    """

    step: int
    budget: int
    flops: Mapping[str, int]
    metrics: Mapping[str, float]
    values: Mapping[str, float]
    seconds: float
    eta: float | None
    note: str = ""


ProgressCallback = Callable[[Progress], None]
