"""Process reward models: steps in, one probability per step out.

``load`` and ``scorer`` import torch; this package's own names do not.
"""

from real_runs.prm._base import ProcessRewardModel, Solution, StepScores, check_counts
from real_runs.prm.steps import AGGREGATIONS, aggregate, split_steps

__all__ = [
    "AGGREGATIONS",
    "ProcessRewardModel",
    "Solution",
    "StepScores",
    "aggregate",
    "check_counts",
    "split_steps",
]
