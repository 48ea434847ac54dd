"""``race report`` and ``race plot`` as people call them, also with what they get wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Race = Callable[..., Any]
SETUP = ("--budget", "1e20", "--reward", "sparse", "--world", "own-5")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from race.cli import run

    folder = tmp_path_factory.mktemp("pilots") / "store"
    assert run(["simulate", *SETUP, "--store", str(folder), "--pilots", "4", "--target", "native"]) == 0
    return folder


def test_plot_writes_a_figure(race: Race, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "frontier.svg"
    result = race("plot", "frontier", store, "--out", out, "--budget", "1e20", "--json")
    assert result.code == 0, result.err
    assert result.json["files"] == [str(out)]
    assert result.json["figure"] == "frontier"
    assert "<svg" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plot", "pie", "STORE", "--out", "x.png"), ("figure", "frontier")),
        (("plot", "rho", "STORE", "--out", "x.gif"), ("out", ".svg")),
        (("plot", "rho", "STORE", "--out", "nowhere/x.png"), ("out", "does not exist")),
        (("report", "STORE", "--out", "x.txt"), ("out", ".html")),
        (("report", "STORE", "--out", "."), ("out", "folder")),
        (("report", "STORE", "--out", "nowhere/x.html"), ("out", "does not exist")),
        (("report", "STORE", "--out", "x.html", "--gpus", "4"), ("gpu",)),
        (("report", "STORE", "--out", "x.html", "--ladder", "qwen9"), ("ladder",)),
        (("report", "STORE", "--out", "x.html", "--budget", "lots"), ("budget",)),
        (("report", "STORE", "--out", "x.html", "--target", "beauty"), ("target",)),
        (("report", "STORE", "--out", "x.html", "--reward", "praise"), ("reward",)),
    ],
)
def test_bad_usage_is_one_line(
    race: Race, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], words: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    result = race(*(store if a == "STORE" else a for a in arguments))
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.strip().splitlines()) == 1
    for word in words:
        assert word in result.err
    assert not any(tmp_path.glob("x.*"))


def test_a_report_asks_a_saved_surrogate(race: Race, store: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert race("fit", store, "--out", saved).code == 0
    out = tmp_path / "page.html"
    result = race(
        "report", store, "--out", out, "--surrogate", saved, "--budget", "1e20", "--gpu", "H100-SXM", "--json"
    )
    assert result.code == 0, result.err
    assert result.json["files"] == [str(out)]
    assert not (tmp_path / "page.surrogate").exists()
    page = out.read_text(encoding="utf-8")
    assert "GPU-hours" in page
    assert json.dumps(str(saved)) in page
    both = race("report", store, "--out", out, "--surrogate", saved, "--ladder", "nano")
    assert both.code == 2
    assert "drop one" in both.err


def test_a_budget_nobody_gave_is_explained(store: Path) -> None:
    from planner.reporting import budget_of, ladder_of, reward_of
    from race.store import Store

    records = Store(store).records().require()
    assert budget_of(records) == 6 * 10**18
    assert ladder_of(records).name == "qwen2.5"
    assert ladder_of([]).name == "qwen2.5"
    assert reward_of(records) == "sparse"


def test_an_empty_store_is_an_answer(race: Race, tmp_path: Path) -> None:
    result = race("report", tmp_path / "none", "--out", tmp_path / "x.html")
    assert result.code in (1, 2)
    assert len(result.err.strip().splitlines()) == 1
