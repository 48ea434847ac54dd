"""One seed per pilot, from the plan's seed and the pilot's number."""

from __future__ import annotations

import numpy as np


def trial_seed(seed: int, number: int) -> int:
    """Seed of pilot ``number``: the same however many workers ask, and in whatever order they report."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
