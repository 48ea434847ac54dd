"""Lets the test modules of this folder import ``grpo_toys`` (pytest runs in importlib mode)."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "grpo"))
# Tests share two cores with others; more threads only make tiny matmuls slower.
torch.set_num_threads(1)
