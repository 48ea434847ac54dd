"""The Python in docs/report.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_records import pilots, stored

PAGE = Path(__file__).resolve().parents[2] / "docs" / "report.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path / "pilots", pilots(3))
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
    assert (tmp_path / "frontier.pdf").read_bytes().startswith(b"%PDF")
