"""Lets the test modules of this folder import ``jobs`` (pytest runs in importlib mode); one Ray cluster for all."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """An executor that finds Ray running leaves it running, which saves starting one for each test."""
    ray = pytest.importorskip("ray", reason="Ray is not installed; pip install 'race-rl[dist]'")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
