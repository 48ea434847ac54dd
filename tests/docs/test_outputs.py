"""What the documentation shows is what the commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_outputs_shown_are_true() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "refresh.py", "--check"],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_notices_a_changed_number(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ race flops Qwen2.5-1.5B\nrho = 0.1\n```\n")
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "refresh.py", "--check", page],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "stale" in done.stdout
