"""The loop: pilots are planned, run, learned from, until the decision is sure enough or the pilot budget is spent.

`Loop` drives a `planner.Planner` and a `real_runs.executors.Executor`; the study is its memory, so it can be killed at
any moment and started again by the same command.
"""

from __future__ import annotations

from real_runs.loop.folder import LoopFolder
from real_runs.loop.forecast import Forecast, forecast
from real_runs.loop.loop import Loop
from real_runs.loop.state import Ending, LoopOptions, LoopState

__all__ = ["Ending", "Forecast", "Loop", "LoopFolder", "LoopOptions", "LoopState", "forecast"]
