"""Where answers come from: stores, packed files, the packaged nano study, or nothing."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from race.packed import Pack, pack, packaged_study

Race = Callable[..., Any]
Process = Callable[..., subprocess.CompletedProcess[str]]
NANO = ("--ladder", "nano", "--budget", "4e11")
PLAN = ("plan", *NANO, "--reward", "prm", "--pilots", "0")


@pytest.fixture(scope="module")
def shipped() -> Pack:
    return packaged_study("nano-study")


def test_the_nano_ladder_is_answered_from_the_packaged_study_and_says_so(race: Race, shipped: Pack) -> None:
    said = race(*PLAN, "--json").json
    assert said["evidence_from"] == {
        "packed": [{"name": "nano-study", "records": len(shipped.records), "sha256": shipped.sha256}],
        "default": True,
    }
    healthy = [r for r in shipped.records if r.health.status in ("ok", "timeout")]
    assert said["evidence"] == {"real": len(healthy), "imported": 0, "simulated": 0}
    words = " ".join(race(*PLAN).out.split())
    assert f"{len(shipped.records)} real runs of the packaged nano study; --evidence none for the prior alone" in words


def test_by_name_is_the_same_and_nobody_is_told_to_drop_it(race: Race) -> None:
    default, named = race(*PLAN, "--json").json, race(*PLAN, "--evidence", "nano-study", "--json").json
    assert not named["evidence_from"].pop("default")
    assert default["evidence_from"].pop("default")
    assert named == default
    assert "--evidence none" not in race(*PLAN, "--evidence", "nano-study").out


def test_none_is_the_prior_and_other_ladders_have_no_default(race: Race) -> None:
    for said in (
        race(*PLAN, "--evidence", "none", "--json").json,
        race("plan", "--budget", "1e18", "--reward", "prm", "--pilots", "0", "--json").json,
    ):
        assert sum(said["evidence"].values()) == 0
        assert "evidence_from" not in said
    beside = race(*PLAN, "--evidence", "none", "--evidence", "nano-study")
    assert (beside.code, beside.out) == (2, "")


def test_a_path_wins_over_the_name(
    race: Race, shipped: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    simulate = ("simulate", "--ladder", "nano", "--budget", "4e12", "--reward", "prm", "--pilots", "2")
    assert race(*simulate, "--store", "nano-study").code == 0
    assert race(*PLAN, "--evidence", "nano-study", "--json").json["evidence"]["simulated"] == 2
    # What nobody asked for does not depend on where they are.
    assert race(*PLAN, "--json").json["evidence_from"]["packed"][0]["sha256"] == shipped.sha256


def test_a_studys_folder_stands_for_its_records(race: Race, tmp_path: Path) -> None:
    simulate = ("simulate", "--ladder", "nano", "--budget", "4e12", "--reward", "prm", "--pilots", "2")
    assert race(*simulate, "--store", tmp_path / "out" / "records").code == 0
    assert race(*PLAN, "--evidence", tmp_path / "out", "--json").json["evidence"]["simulated"] == 2


def test_a_packed_file_is_evidence_wherever_a_store_is(race: Race, shipped: Pack, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl.gz"
    chosen = [r for r in shipped.records if r.health.status == "ok"][:9]
    file.write_bytes(pack(chosen, name="few"))
    assert race(*PLAN, "--store", file, "--json").json["evidence"]["real"] == 9
    assert race("fit", file, "--out", tmp_path / "saved", "--json").json["evidence"]["real"] == 9
    asked = race("query", tmp_path / "saved", "--budget", "4e11", "--json").json
    again = race("query", "--evidence", file, "--budget", "4e11", "--target", asked["target"], "--json").json
    assert asked["setting"]["model"].startswith("nano")  # fitted on the records' own ladder
    assert again["evidence"] == asked["evidence"]
    assert again["evidence_from"]["packed"][0]["name"] == "few"
    assert race("report", file, "--out", tmp_path / "a.html", "--json").json["evidence"]["real"] == 9
    assert race("plot", "curves", file, "--out", tmp_path / "a.png").code == 0


def test_an_unknown_name_lists_those_there_are(race: Race, tmp_path: Path) -> None:
    for args in (
        (*PLAN, "--evidence", "nano"),
        ("fit", "nano", "--out", tmp_path / "x"),
        ("query", "--evidence", "nano", "--budget", "4e11"),
        ("report", "nano", "--out", tmp_path / "x.html"),
        ("study", "check", tmp_path, "--against", "nano"),
    ):
        said = race(*args)
        assert (said.code, said.out) == (1, ""), args
        assert "nano-study" in said.err or "there is nothing at" in said.err


def test_query_answers_from_the_study_by_ladder_or_name(race: Race, shipped: Pack) -> None:
    asked = ("--reward", "prm", "--model", "nano-m", "--rho", "0.5", "--json")
    by_ladder = race("query", *NANO, *asked).json
    by_name = race("query", "nano-study", "--budget", "4e11", *asked).json
    assert by_ladder["value"] == by_name["value"]
    assert by_ladder["evidence_from"]["default"]
    alone = race("query", *NANO, "--evidence", "none", *asked).json
    assert sum(alone["evidence"].values()) == 0
    assert race("query", "--budget", "4e11").code == 2
    assert race("query", "--ladder", "nano", "--evidence", "none", "--budget", "4e11").code == 2  # which reward?


def test_a_saved_surrogate_keeps_its_own(race: Race, shipped: Pack) -> None:
    for more in (("--ladder", "nano"), ("--evidence", "nano-study")):
        assert race("query", shipped.fitted, "--budget", "4e11", *more).code == 2


def test_a_loop_starts_from_nothing_but_can_be_given_the_study(race: Race, shipped: Pack, tmp_path: Path) -> None:
    loop = (
        "loop", "--ladder", "nano", "--reward", "prm", "--budget", "4e12", "--executor", "simulator:own-0",
        "--min-pilots", "2", "--pilot-budget", "2%", "--json",
    )  # fmt: skip
    alone = race(*loop, "--out", tmp_path / "a").json
    assert alone["evidence"]["real"] == 0
    given = race(*loop, "--out", tmp_path / "b", "--evidence", "nano-study")
    assert given.code == 2
    assert "evidence: nano-study holds measured records, and these pilots are simulated" in given.err


def test_the_packaged_study_answers_at_once_and_without_torch(process: Process) -> None:
    """CPU time of the whole process: on an idle machine this is the wall time."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['sklearn'] = sys.modules['matplotlib'] = None\n"
        "from race.cli import main; main()"
    )
    for args in ((*PLAN[:-2], "--json"), ("query", *NANO, "--json")):
        best = float("inf")
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = process(*args, code=code)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.returncode == 0, done.stderr
            assert "fitting anew" not in done.stderr
            best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert 0 < best <= 3.0
