"""What a reader gets by cloning is all that the commands need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("race", "surrogate", "planner", "real_runs")


def test_git_ignores_nothing_that_a_package_needs() -> None:
    """The report's template was once ignored as somebody's *.html, and only fresh checkouts noticed."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "--", *PACKAGES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert [path for path in listed if "__pycache__" not in path and not path.endswith((".pyc", ".so"))] == []
