"""Running the command line the way a person does: as a process, or in process where only the words matter."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from race.cli import run as run_command


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Stdout must be one JSON object and nothing else."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process; an exception that escapes fails the test, as it would show a traceback."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*args: object) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command([str(a) for a in args])
        return Result(code, out.getvalue(), err.getvalue())

    return call


Process = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def process() -> Process:
    """Run a whole fresh interpreter: ``race ARGS``, or ``python -c CODE ARGS``."""

    def call(*args: str, code: str = "from race.cli import main; main()") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "80"}
        return subprocess.run(
            [sys.executable, "-c", code, *args],
            capture_output=True, text=True, env=env, timeout=120, check=False,
        )  # fmt: skip

    return call
