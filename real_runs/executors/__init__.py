"""Executors: where pilots run. See `real_runs.executors._base` for what all of them promise."""

from __future__ import annotations

from real_runs.executors._base import Executor, Job, Outcome, lost_flops

__all__ = ["Executor", "Job", "Outcome", "lost_flops"]
