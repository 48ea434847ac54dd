"""Lets the test modules of this folder import ``tiny_prm`` (pytest runs in importlib mode)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "prm"))
