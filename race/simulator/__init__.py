"""A mechanistic mean-field simulator of GRPO post-training.

`Settings` are what to simulate, `Worlds` are parameter draws, `simulate` gives expected final values,
`run_world` one noisy pilot. `race.simulator.worlds` has named worlds with known truth for honest tests of
planners. No optimum is written down: where compute should go comes out of dynamics and costs.
"""

from race.simulator.dynamics import Curves, collapse_probability, simulate, simulate_curves
from race.simulator.ensemble import Worlds
from race.simulator.pilot import run_world
from race.simulator.settings import REWARDS, Settings

__all__ = [
    "REWARDS",
    "Curves",
    "Settings",
    "Worlds",
    "collapse_probability",
    "run_world",
    "simulate",
    "simulate_curves",
]
