"""What docs/executors.md shows is what works."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from jobs import job, python

from real_runs.executors import build_executor
from real_runs.executors.command import CommandExecutor
from real_runs.executors.folder import JobFolder
from real_runs.executors.limits import HOPELESS_CODES
from real_runs.executors.readings import ForeignReadings
from real_runs.executors.template import PLACES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "executors.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_table_builds(text: str, tmp_path: Path) -> None:
    table = tomllib.loads(text)["executor"]
    executor = build_executor(table)
    assert executor.name == table["kind"]


def test_the_slurm_table_is_the_example() -> None:
    shown = next(tomllib.loads(text) for text in blocks("toml") if "srun" in text)
    assert shown == tomllib.loads((ROOT / "examples" / "executors" / "slurm.toml").read_text())
    for file in (ROOT / "examples" / "executors").glob("*.toml"):
        assert build_executor(str(file)).name == "command"


def test_the_shown_record_is_accepted(tmp_path: Path) -> None:
    shown, _ = blocks("json")
    pilot = job(tmp_path, budget=int(1.25e16))
    with CommandExecutor(python(f"print({shown!r})")) as executor:
        executor.submit(pilot)
        (outcome,) = executor.wait(30)
    assert outcome.record.health.status == "ok", outcome.record.health
    assert outcome.record.flops.total == sum(json.loads(shown)["flops"].values())


def test_the_shown_progress_line_is_read(tmp_path: Path) -> None:
    _, line = blocks("json")
    folder = JobFolder.of(job(tmp_path))
    folder.path.mkdir()
    folder.progress.write_text(line)
    readings = ForeignReadings(folder)
    assert readings.spent() == sum(json.loads(line)["flops"].values())
    assert readings.curves()["native"].value == (0.31,)


def test_every_place_and_code_is_named() -> None:
    assert all(f"`{{{place}}}`" in PAGE for place in PLACES)
    assert HOPELESS_CODES == (2, 126, 127)
    assert "2 (bad usage), 126 and 127" in PAGE
