"""Executors: where pilots run. See `real_runs.executors._base` for what all of them promise.

Importing this imports neither torch nor Ray.
"""

from __future__ import annotations

from real_runs.executors._base import Executor, Job, Outcome
from real_runs.executors.build import build_executor

__all__ = ["Executor", "Job", "Outcome", "build_executor"]
