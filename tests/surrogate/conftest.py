"""Lets the test modules of this folder import ``surrogate_pilots`` (pytest runs in importlib mode)."""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
# One core: what the speed targets are stated for, and what keeps parallel tests from fighting.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("race", deadline=None)
settings.load_profile("race")
