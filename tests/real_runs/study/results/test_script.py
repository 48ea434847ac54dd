"""The script, whole, on nothing, on a part, and on everything."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from race.packed import pack
from race.records import PilotRecord
from race.store import Store
from real_runs.study.results.evidence import StudyRecords
from tests.real_runs.study.results.made import TEXT

SCRIPT = Path(__file__).parents[4] / "examples" / "nano_study" / "results.py"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(TEXT)
    return path


def test_part_of_a_study_says_what_is_missing(
    tmp_path: Path, study_file: Path, records: list[PilotRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = [r for r in records if r.spec.model == "nano-s" and "main" in r.provenance["stages"] and r.spec.seed < 2]
    some = [r for r in main if r.spec.reward == "sparse" or r.spec.rho > 0.8]
    Store(tmp_path / "records", create=True).add_all(some)
    out = tmp_path / "out"
    out.mkdir()
    (out / "RESULTS.md").write_text("# Mine\n\nWords.\n")
    counts = ("--planner-orders", "0", "--orders", "0", "--gp-orders", "0", "--refits", "0", "--draws", "300")
    run(monkeypatch, tmp_path / "records", "--study", study_file, "--out", out, *counts)
    page = (out / "RESULTS.md").read_text()
    assert page.startswith("# Mine\n\nWords.\n")
    assert "| main | 60 | 12 | 48 | 12 | 0 | 0 |" in page
    for name in ("rates", "rewards", "ranks", "replay"):
        assert "Missing" in page.partition(f"<!-- generated: {name} -->")[2].partition("<!-- end")[0]
    assert "not all of their arms are there yet: prm nano-s 4e11 rank 8." in page
    assert "| runs over their budget | 0 |" in page.partition("<!-- generated: answers -->")[2]
    found = json.loads((out / "results.json").read_text())
    assert {(p["reward"], p["model"]) for p in found["peaks"]["tuned"]} == {("sparse", "nano-s")}
    assert found["integrity"]["overruns"] == []
    assert {p["rho"] for p in found["learning"]["arms"]} == {0.3, 0.45, 0.6, 0.75, 0.85}
    before = (out / "results.json").read_bytes(), page
    run(monkeypatch, tmp_path / "records", "--study", study_file, "--out", out, *counts)
    assert ((out / "results.json").read_bytes(), (out / "RESULTS.md").read_text()) == before


def test_an_empty_store_is_no_error(tmp_path: Path, study_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path / "records", create=True).add_all([])
    run(monkeypatch, tmp_path / "records", "--study", study_file, "--out", tmp_path / "out")
    assert "| main | 60 | 0 | 60 |" in (tmp_path / "out" / "RESULTS.md").read_text()
    assert list((tmp_path / "out").glob("*.png")) == []


def test_a_folder_that_is_no_store_is_one_line(
    tmp_path: Path, study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"error: .*nowhere"):
        run(monkeypatch, tmp_path / "nowhere", "--study", study_file, "--out", tmp_path / "out")


@pytest.mark.slow
def test_a_whole_study_from_a_pack(
    tmp_path: Path, study_file: Path, evidence: StudyRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evidence.rates is not None
    packed = tmp_path / "made.jsonl.gz"
    packed.write_bytes(pack(evidence.measured, name="made", rates=evidence.rates.to_dict()))
    out = tmp_path / "out"
    counts = ("--planner-orders", "1", "--orders", "2", "--gp-orders", "0", "--refits", "1")
    run(monkeypatch, packed, "--study", study_file, "--out", out, *counts)
    page = (out / "RESULTS.md").read_text()
    # Only sparse was made at the fixed rate, so nothing there can be compared with it.
    every = (out / "APPENDIX.md").read_text()
    assert (page.count("Missing"), every.count("Missing")) == (0, 1)
    # The page answers first and stays short; the rest is in the appendix.
    assert page.index("<!-- generated: answers -->") < page.index("<!-- generated: integrity -->")
    assert len(page.encode()) < 30_000
    assert "<details>" not in page
    assert "<summary>Every trial</summary>" in every
    assert "| sparse | nano-s | 1.3e11 | 8 |" in every
    assert "| sparse | nano-s | 1.3e11 | 8 |" not in page
    assert {p.stem for p in out.glob("*.png")} == {
        "isoflop", "rho_star", "learning", "calibration", "prior", "prior_bases", "replay",
    }  # fmt: skip
    assert all(p.stat().st_size <= 150_000 for p in out.glob("*.png"))
    found = json.loads((out / "results.json").read_text())
    process = [r for r in found["between_rewards"]["tuned"] if r["reward"] == "prm" and r["target"] == "native"]
    assert all(r["hi"] < 0 for r in process)
