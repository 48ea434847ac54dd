"""Monitors draw what a run reports, stop it only when they cannot start, and never afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from race.errors import CannotDo, InvalidInput
from real_runs.monitors import Monitor, RunMonitors, build_monitors

pytest.importorskip("torch")
from real_runs.run import Progress


class Notebook:
    """Keeps what it is told; fails where it is told to."""

    name = "notebook"

    def __init__(self, fails: str = "") -> None:
        self.fails, self.rows, self.started, self.closed = fails, [], [], 0
        self.rows: list[tuple[int, dict[str, float]]]
        self.started: list[tuple[str, Any, int]]

    def start(self, folder: Path, run: str, config: Mapping[str, Any], *, step: int) -> None:
        self._maybe("start")
        self.started.append((run, config, step))

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        self._maybe("log")
        self.rows.append((step, dict(scalars)))

    def close(self) -> None:
        self._maybe("close")
        self.closed += 1

    def _maybe(self, what: str) -> None:
        if self.fails == what:
            raise RuntimeError(f"no\nway to {what}")


def progress(step: int, *, values: Mapping[str, float] | None = None, **metrics: float) -> Progress:
    flops = {"search": 10 * step, "learning": 30 * step, "reward": 0, "eval": 5}
    return Progress(step, 400, flops, metrics, values or {}, 1.0, None)


def watching(folder: Path, *monitors: Monitor) -> tuple[RunMonitors, list[str]]:
    (folder / "run.json").write_text(json.dumps({"id": "0123456789abcdef"}))
    said: list[str] = []
    return RunMonitors(monitors, folder=folder, run="r", config={"seed": 1}, complain=said.append), said


def test_each_step_once_and_values_when_they_change(tmp_path: Path) -> None:
    book = Notebook()
    run, _ = watching(tmp_path, book)
    for now in (
        progress(0, values={"pass@1": 0.2}),
        progress(0, values={"pass@1": 0.2}),
        progress(1, values={"pass@1": 0.2}, reward=0.5),
        progress(2, values={"pass@1": 0.4}, reward=0.6),
        progress(2, values={"pass@1": 0.4}, reward=0.6),
    ):
        run(now)
    run.close()
    assert book.started == [("r", {"seed": 1, "id": "01234567"}, 0)]
    assert [step for step, _ in book.rows] == [0, 1, 2]
    assert book.rows[0][1] == {"heldout/pass@1": 0.2}
    assert book.rows[1][1]["reward"] == 0.5
    assert "heldout/pass@1" not in book.rows[1][1]
    assert book.rows[2][1]["flops/total"] == 80
    assert book.rows[2][1]["flops/share_of_budget"] == 0.2
    assert book.closed == 1


def test_a_resumed_run_goes_on_after_its_last_step(tmp_path: Path) -> None:
    book = Notebook()
    run, _ = watching(tmp_path, book)
    run(progress(7))
    run(progress(8, reward=0.1))
    assert book.started[0][2] == 7
    assert [step for step, _ in book.rows] == [8]


def test_one_that_cannot_start_stops_the_run(tmp_path: Path) -> None:
    run, _ = watching(tmp_path, Notebook("start"))
    with pytest.raises(CannotDo, match=r"monitor: notebook cannot start \(RuntimeError: no way to start\)"):
        run(progress(0))


@pytest.mark.parametrize("fails", ["log", "close"])
def test_one_that_fails_later_falls_silent_alone(tmp_path: Path, fails: str) -> None:
    bad, good = Notebook(fails), Notebook()
    run, said = watching(tmp_path, bad, good)
    for step in range(4):
        run(progress(step, reward=0.5))
    run.close()
    assert len(said) == 1
    assert "notebook failed" in said[0]
    assert [step for step, _ in good.rows] == [1, 2, 3]
    assert good.closed == 1


def test_nothing_is_closed_that_never_started(tmp_path: Path) -> None:
    book = Notebook()
    run, _ = watching(tmp_path, book)
    run.close()
    assert book.closed == 0


def test_names() -> None:
    assert build_monitors(["none"]) == []
    with pytest.raises(InvalidInput, match="monitor: found 'wordpad'; allowed are tensorboard, wandb, trackio"):
        build_monitors(["wordpad"])


def test_one_that_was_asked_for_and_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("real_runs.monitors.build.find_spec", lambda name: None)
    assert build_monitors(None) == []
    with pytest.raises(CannotDo, match="pip install wandb"):
        build_monitors(["wandb"])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_the_real_ones_where_installed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when trackio is imported
    pytest.importorskip(name)
    run, said = watching(tmp_path, *build_monitors([name]))
    for step in range(3):
        run(progress(step, values={"pass@1": step / 10}, reward=0.5))
    run.close()
    assert said == []
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) > 1
