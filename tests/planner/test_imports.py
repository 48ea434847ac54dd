"""What deciding costs a cold process: `race plan` has a second and a half in all."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys, time
start = time.perf_counter()
from planner import Planner
from race.ladders import ladder
planner = Planner(ladder(), budget="1e18", reward="prm")
decision = planner.decide()
print(json.dumps({"modules": sorted(sys.modules), "seconds": time.perf_counter() - start,
                  "pilots": len(decision.pilots)}))
"""


def test_deciding_without_a_study_imports_neither_optuna_nor_torch() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    heavy = {"optuna", "torch", "transformers", "sqlalchemy", "matplotlib", "sklearn", "pandas"}
    assert not heavy & set(found["modules"])
    assert found["pilots"] > 0
