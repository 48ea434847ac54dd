"""The benchmark's cases and trainers, which these tests share (pytest runs in importlib mode)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trl_callback.py"


@pytest.fixture(scope="session")
def runs() -> ModuleType:
    """`benchmarks/trl_callback.py`; needs TRL."""
    pytest.importorskip("trl", reason="trl is not installed: pip install 'race-rl[test]'")
    spec = importlib.util.spec_from_file_location("trl_callback_runs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trl_callback_runs"] = module
    spec.loader.exec_module(module)
    return module
