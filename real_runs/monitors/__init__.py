"""Metrics of a run to whoever draws them: TensorBoard, Weights & Biases, trackio.

A monitor that cannot be started stops the run before anything is trained, because its user would look at nothing for
hours. One that fails later only falls silent, with one line that says so: training is what costs.
"""

from real_runs.monitors._base import Monitor, RunMonitors
from real_runs.monitors.build import MONITORS, build_monitors

__all__ = ["MONITORS", "Monitor", "RunMonitors", "build_monitors"]
