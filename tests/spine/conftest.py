"""Lets tests import ``spine_strategies`` (pytest runs in importlib mode)."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# Two slow cores in CI: a deadline per example would only measure the neighbours.
settings.register_profile("race", deadline=None)
settings.load_profile("race")
