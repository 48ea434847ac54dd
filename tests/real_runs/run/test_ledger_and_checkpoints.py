"""The two files a run must be able to trust: read back what was written, however the writer died."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from race.errors import CannotDo
from real_runs.checkpoint import newest_checkpoint, save_checkpoint
from real_runs.ledger import Account, Ledger, read_ledger

PHASES = ["search", "reward", "update"]


@settings(max_examples=60, deadline=None)
@given(
    lives=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 3)), min_size=1, max_size=5),
    torn=st.booleans(),
)
def test_useful_and_lost_add_up_however_often_a_run_dies(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[int, int]], torn: bool
) -> None:
    """Each life does some phases (three a step, each worth its step); the next resumes ``back`` steps earlier."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    done, written, tears = 0, 0, 0
    for attempt, (phases, back) in enumerate(lives, 1):
        start = max(0, done - back)
        with Ledger(path, attempt=attempt, step=start) as ledger:
            for number in range(phases):
                step, phase = start + 1 + number // 3, PHASES[number % 3]
                ledger.begin(step, phase, 2 * step)
                ledger.end(step, phase, step, step, 0.0)
                written += step
                done = start + (number + 1) // 3
            if phases == 0:
                done = start
        if torn:
            with path.open("ab") as file:
                file.write(b'{"event": "end", "ste')
            tears += 1
    view = read_ledger(path, up_to=done)
    assert view.useful.total == sum(3 * step for step in range(1, done + 1))
    assert view.useful.total + view.lost.total == written
    assert view.attempts == len(lives)
    assert view.torn == tears


def test_a_phase_that_never_ended_is_lost_at_its_bound(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", attempt=1, step=-1)

    def dies() -> None:
        with ledger.phase(1, "search", 70) as phase:
            phase.flops = 50
            raise KeyError

    with pytest.raises(KeyError):
        dies()
    view = read_ledger(tmp_path / "l")
    assert (view.useful.total, view.lost.search) == (0, 70)


def test_a_phase_above_its_bound_stops_the_run(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", attempt=1, step=-1)
    with pytest.raises(CannotDo, match="above its own bound of 5"), ledger.phase(1, "reward", 5) as phase:
        phase.flops = 6
    assert read_ledger(tmp_path / "l").useful.reward == 6


def test_account_columns() -> None:
    account = Account()
    for number, phase in enumerate(("search", "old_logprobs", "reference", "update", "reward", "eval"), 1):
        account.add(phase, number)
    assert account.to_dict() == {"search": 1, "learning": 9, "reward": 5, "eval": 6}
    assert account.total == 15
    assert Account.from_dict(account.to_dict()) == account


def save(folder: Path, step: int, keep: int = 2) -> None:
    save_checkpoint(folder, step, policy={"w": torch.full((3,), float(step))}, optimizer={}, state={"step": step},
                    keep=keep)


def test_newest_complete_wins_and_old_ones_go(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        save(tmp_path, step)
    found, skipped = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.policy["w"].tolist(), skipped) == (10, [10.0] * 3, [])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000010"]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda p: (p / "COMPLETE").unlink(), "no COMPLETE marker"),
        (lambda p: (p / "COMPLETE").write_text("{"), "marker is unreadable"),
        (lambda p: (p / "COMPLETE").write_text("[]"), "marker is unreadable"),
        (lambda p: (p / "optimizer.safetensors").unlink(), "optimizer.safetensors is missing"),
        (lambda p: (p / "state.json").write_text("{}"), "state.json does not match"),
        (lambda p: (p / "policy.safetensors").write_bytes(b"\0" * 200), "policy.safetensors does not match"),
    ],
)
def test_torn_ones_are_named_and_skipped(tmp_path: Path, harm: object, reason: str) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    harm(tmp_path / "step-00000002")  # type: ignore[operator]
    found, skipped = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 1
    assert len(skipped) == 1
    assert skipped[0].startswith("step-00000002: ")
    assert reason in skipped[0]
    # The step is done again over the torn folder.
    save(tmp_path, 2)
    assert newest_checkpoint(tmp_path)[0].step == 2  # type: ignore[union-attr]


def test_nothing_there_is_nothing_found(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") == (None, [])


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(CannotDo, match="could not write step 1"):
        save(tmp_path / "checkpoints", 1)
    with pytest.raises(CannotDo, match="cannot read"):
        newest_checkpoint(tmp_path / "checkpoints")


def test_state_floats_come_back_exactly(tmp_path: Path) -> None:
    value = 0.1 + 0.2
    save_checkpoint(tmp_path, 1, policy={}, optimizer={}, state={"step": 1, "x": value}, keep=1)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.state["x"] == value
    assert json.loads((tmp_path / "step-00000001" / "COMPLETE").read_text()).keys() == {
        "policy.safetensors", "optimizer.safetensors", "state.json",
    }
