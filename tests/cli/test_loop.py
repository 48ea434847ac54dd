"""``race loop`` as a person meets it: its answer, its questions, and what it refuses."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from race.store import Store
from tests.cli.conftest import Result

Race = Callable[..., Result]

ASK = ("loop", "--budget", "1e19", "--reward", "sparse", "--executor", "simulator:own-0", "--pilot-size", "3e17")
PLAN_KEYS = {"budget", "reward", "target", "evidence", "regime", "recommendation", "pilots"}
RUNNER = f"command:{sys.executable} -m real_runs.executors.simulated --world own-0 --seconds 30 --progress {{progress}}"


def test_the_answer_is_that_of_plan_and_how_it_came_about(race: Race, tmp_path: Path) -> None:
    result = race(*ASK, "--target", "native,judge", "--out", tmp_path / "loop", "--json")
    assert result.code == 0, result.err
    data = result.json
    assert set(data) >= PLAN_KEYS | {"pilots_run", "stopped_because"}
    assert data["pilots_run"] == len(data["runs"]) == 3
    assert data["stopped_because"] in ("regime-certain", "budget-spent")
    records = Store(tmp_path / "loop" / "store").records().records
    assert {run["job"] for run in data["runs"]} == {record.id for record in records}
    assert data["pilot_flops"]["spent"] == pytest.approx(sum(r.spent for r in records))
    assert data["pilot_flops"]["spent"] <= data["pilot_flops"]["budget"] == 10**18
    assert set(data["compromise"]["losses"]) == {"native", "judge"}
    assert sum(note.startswith(("best for", "compromise:")) for note in data["notes"]) == 3
    assert "pilots done" in result.err

    # The same command again: nothing left to do, the same answer.
    again = race(*ASK, "--target", "native,judge", "--out", tmp_path / "loop", "--json")
    assert again.json == data
    shown = race(*ASK, "--target", "native,judge", "--out", tmp_path / "loop")
    assert shown.code == 0
    for word in ("ended", "regime", "compromise", data["stopped_because"]):
        assert word in shown.out

    # Another question to the same study.
    for more, message in (
        (("--budget", "2e19", "--study", data["study"]["name"]), "study: its budget is 10000000000000000000"),
        (("--reward", "dense", "--study", data["study"]["name"]), "study: its recipes is"),
        (("--executor", "simulator:own-1", "--study", data["study"]["name"]), "executor: found 'simulator:own-1'"),
    ):
        words = dict(zip(ASK[1::2], ASK[2::2], strict=True)) | dict(zip(more[::2], more[1::2], strict=True))
        flat = [item for pair in words.items() for item in pair]
        refused = race("loop", *flat, "--target", "native,judge", "--out", tmp_path / "loop")
        assert (refused.code, message in refused.err) == (2, True), refused.err
        assert "Traceback" not in refused.err
    assert len(Store(tmp_path / "loop" / "store").records().records) == 3

    # The store of another ladder, and of another kind of evidence.
    store = ("--store", tmp_path / "loop" / "store", "--out", tmp_path / "other")
    nano = race("loop", "--budget", "1e12", "--reward", "prm", "--ladder", "nano", "--executor", "local", *store)
    assert nano.code == 2
    assert "and the ladder has nano-s" in nano.err
    real = race("loop", "--budget", "1e19", "--reward", "sparse", "--executor", "local", *store, "--yes")
    assert real.code == 2
    assert "simulated records, and these pilots are real" in real.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--executor", "nobody"), "executor: found 'nobody'"),
        (("--executor", "simulator:nowhere-1"), "world"),
        (("--storage", "postgresql://me:secret@127.0.0.1:1/x"), "storage: postgresql"),
        (("--storage", "mysql://me:secret@127.0.0.1:1/x"), "storage: mysql"),
        (("--storage", "/no/such/folder/study.db"), "storage: /no/such/folder/study.db cannot be opened"),
        (("--certainty", "0.2"), "certainty: found 0.2"),
        (("--pilot-budget", "200%"), "pilot_budget"),
        (("--pilot-budget", "a tenth"), "or a share of the budget such as 10%"),
        (("--pilot-size", "1e30"), "sizes"),
        (("--config", "x.toml"), "config: found x.toml, which only runs of our own trainer read"),
        (("--gpus", "3"), "gpu: missing"),
    ],
)
def test_bad_input_is_one_line(race: Race, tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    words = dict(zip(ASK[1::2], ASK[2::2], strict=True)) | dict(zip(more[::2], more[1::2], strict=True))
    result = race("loop", *[item for pair in words.items() for item in pair], "--out", tmp_path / "loop")
    assert result.code in (1, 2)
    assert result.out == ""
    errors = [line for line in result.err.splitlines() if not line.startswith("note: ")]
    assert len(errors) == 1, result.err
    assert message in errors[0]
    assert "secret" not in result.err


def test_a_large_spend_is_forecast_and_asked_for(
    race: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("loop", "--budget", "1e19", "--reward", "sparse")
    line = (*asked, "--executor", "command:no-such-program", "--out", tmp_path)
    refused = race(*line)
    assert refused.code == 2
    assert "yes: missing; this would spend up to 1e18 FLOPs" in refused.err
    assert "hours" in refused.err
    assert "dollars" in refused.err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    declined = race(*line)
    assert declined.code == 1
    assert "nothing was started" in declined.err
    assert not list((tmp_path / "pilots").iterdir())


def test_a_command_that_is_not_there_ends_the_loop_and_costs_nothing(race: Race, tmp_path: Path) -> None:
    line = ("loop", "--budget", "1e19", "--reward", "sparse", "--executor", "command:no-such-program", "--yes")
    result = race(*line, "--out", tmp_path, "--json")
    assert result.code == 1
    assert result.json["stopped_because"] == "pilots-fail"
    assert result.json["pilot_flops"]["spent"] == 0
    assert {run["status"] for run in result.json["runs"]} == {"failed"}
    assert "pilots in a row failed" in result.err


def test_a_second_loop_on_one_sqlite_study_is_told_where_to_go(tmp_path: Path) -> None:
    out = str(tmp_path / "loop")
    with started(out) as first:
        said = subprocess.run(words(out), capture_output=True, text=True, timeout=120, env=environment(), check=False)
        assert said.returncode == 1
        assert f"in use by process {first.pid}" in said.stderr
        assert "postgresql://" in said.stderr
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=180)
        assert first.returncode == 1
        assert "run the same command again to go on" in err.splitlines()[-1]
        assert "Traceback" not in err


def words(out: str) -> list[str]:
    return [
        sys.executable, "-m", "race", "loop", "--budget", "1e19", "--reward", "sparse", "--executor", RUNNER,
        "--workers", "2", "--yes", "--out", out,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


class started:
    """A loop in a process of its own, once two pilots run."""

    def __init__(self, out: str) -> None:
        self._out = out

    def __enter__(self) -> Any:
        # Where tests run in the background, Ctrl-C is ignored, and a child inherits that.
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.process = subprocess.Popen(
                words(self._out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
            )
        finally:
            signal.signal(signal.SIGINT, inherited)
        end = time.monotonic() + 120
        while len(list(Path(self._out).glob("pilots/*/progress.jsonl"))) < 2:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.1)
        return self.process

    def __exit__(self, *about: object) -> None:
        self.process.kill()
        self.process.communicate()
