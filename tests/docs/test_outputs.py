"""What the documentation shows is what it does: every block on every page is run, and its output compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFRESH = ROOT / "docs" / "refresh.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNS = [page for page in PAGES if any(f"```{kind}\n" in page.read_text() for kind in ("console", "pycon", "python"))]
TRAINS = [page for page in PAGES if "<!-- slow -->" in page.read_text()]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def check(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, REFRESH, "--check", *words], capture_output=True, text=True, timeout=1700, check=False
    )


@pytest.mark.parametrize("page", RUNS, ids=name)
def test_outputs_shown_are_true(page: Path) -> None:
    done = check(page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # trains
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", TRAINS, ids=name)
def test_training_shown_can_be_done(page: Path) -> None:
    done = check("--all", page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "block",
    [
        "```console\n$ race flops Qwen2.5-1.5B\nrho = 0.1\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```python\nraise ValueError\n```\n",
    ],
    ids=["console", "pycon", "python"],
)
def test_the_check_notices_what_is_not_true(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    done = check(page)
    assert done.returncode == 1
    assert "stale" in done.stdout or "ValueError" in done.stdout
    assert page.read_text() == block


def test_what_cannot_be_run_here_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run -->\n```python\nraise ValueError\n```\n\n<!-- slow -->\n```console\n$ false\n```\n")
    assert check(page).returncode == 0
    assert check("--all", page).returncode == 1
