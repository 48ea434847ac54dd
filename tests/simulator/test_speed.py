from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from race.ladders import Ladder
from race.simulator import Settings, Worlds, simulate_curves


def test_ten_thousand_curves_a_second(sizes: Ladder) -> None:
    """CPU seconds, the best of three; benchmarks/simulator_speed.py measures properly (several times more)."""
    worlds = Worlds.prior(64, seed=0)
    grid = Settings.grid(sizes, sizes.recipe("prm"), rhos=np.linspace(0.2, 0.8, 20), budgets=[1e17, 1e18])
    seconds = []
    for _ in range(3):
        start = time.process_time()
        simulate_curves(worlds, grid, points=10, targets=("native",))
        seconds.append(time.process_time() - start)
    assert len(worlds) * len(grid) / min(seconds) > 1e4


def test_the_import_stays_light() -> None:
    """``race plan`` imports the simulator: no scipy, no torch, no plotting, and not the calibration."""
    code = (
        "import sys, race.simulator, race.simulator.worlds;"
        "print([m for m in ('scipy', 'torch', 'sklearn', 'matplotlib', 'race.simulator.calibrate',"
        "'race.simulator.sources') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
