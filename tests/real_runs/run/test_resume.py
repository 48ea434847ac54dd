"""kill -9 anywhere: the resumed run ends with the weights, curve and ledger of the undisturbed one."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpo_toys import ToyReward, ToyTask, factory, tiny_model, toy_options, toy_recipe
from safetensors import safe_open

from race.allocation import step_allocation
from race.errors import CannotDo
from race.flops import Architecture
from race.records import PilotRecord, PilotSpec
from real_runs.ledger import read_ledger
from real_runs.run import run_pilot

# Children inherit the imported torch, which makes a kill cost a fraction of a second.
FORK = multiprocessing.get_context("fork")


def spec(steps: float = 8, **recipe: Any) -> PilotSpec:
    architecture = Architecture.from_config(tiny_model().config)
    built = toy_recipe(**{"update_ratio": 1.5, **recipe})
    return PilotSpec("tiny", architecture.params(), built, 0.5,
                     int(steps * step_allocation(architecture, built).total), seed=3, targets=("native", "pass@1"))


def go(folder: Path, **options: Any) -> PilotRecord:
    task = ToyTask()
    return run_pilot(spec(), task=task, reward=ToyReward(task, price=100), policy=factory(), out_dir=folder,
                     options=toy_options(**{"eval_problems": 16, "eval_points": 3, **options}))


def in_child(work: Callable[[], object]) -> int:
    """Exit code of ``work`` in a forked process; negative is the signal that killed it."""
    process = FORK.Process(target=work)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def weights(folder: Path) -> dict[str, bytes]:
    with safe_open(str(folder / "adapter" / "adapter_model.safetensors"), framework="pt") as file:
        return {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118


def useful_steps(folder: Path) -> list[dict[str, Any]]:
    rows = read_ledger(folder / "ledger.jsonl").steps
    return [{k: v for k, v in row.items() if k not in ("seconds", "attempt")} for row in rows]


def assert_same(disturbed: Path, undisturbed: Path) -> PilotRecord:
    a, b = (PilotRecord.from_dict(json.loads((f / "record.json").read_bytes())) for f in (disturbed, undisturbed))
    assert weights(disturbed) == weights(undisturbed)
    assert a.curves == b.curves
    assert a.flops == b.flops
    assert a.eval_flops == b.eval_flops
    assert a.provenance["training"] == b.provenance["training"]
    assert useful_steps(disturbed) == useful_steps(undisturbed)
    newest = sorted((disturbed / "checkpoints").glob("step-*"))[-1].name
    for name in ("policy.safetensors", "optimizer.safetensors"):
        assert (disturbed / "checkpoints" / newest / name).read_bytes() == (
            undisturbed / "checkpoints" / newest / name
        ).read_bytes()
    return a


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    # In a child too: same number of threads, same state of the allocator.
    assert in_child(lambda: go(folder)) == 0
    return folder


def test_a_finished_run_answers_again_without_working(undisturbed: Path) -> None:
    before = (undisturbed / "ledger.jsonl").read_bytes()
    record = go(undisturbed)
    assert record.evidence == "real"
    assert (undisturbed / "ledger.jsonl").read_bytes() == before


def test_two_runs_of_one_spec_are_equal(undisturbed: Path, tmp_path: Path) -> None:
    assert in_child(lambda: go(tmp_path)) == 0
    record = assert_same(tmp_path, undisturbed)
    assert sum(record.provenance["lost_flops"].values()) == 0


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(20))
def test_kill_at_random_moments(undisturbed: Path, tmp_path: Path, moment: int) -> None:
    rng = random.Random(moment)
    kills, longest = 0, 0.8
    while kills < 3:
        process = FORK.Process(target=go, args=(tmp_path,))
        process.start()
        # From before the first checkpoint to the last step.
        process.join(rng.uniform(0.02, longest))
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
            process.join()
            kills += 1
        else:
            assert process.exitcode == 0
            shutil.rmtree(tmp_path)
            kills, longest = 0, longest / 2
    assert in_child(lambda: go(tmp_path)) == 0
    record = assert_same(tmp_path, undisturbed)
    view = read_ledger(tmp_path / "ledger.jsonl")
    assert view.attempts >= 1
    assert record.provenance["lost_flops"] == view.lost.to_dict()


def _die_at_sync(folder: Path, number: int) -> None:
    """Run, but die at the ``number``-th time that something is forced to the disk."""
    real, left = os.fsync, [number]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = fsync
    go(folder)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13])
def test_kill_while_a_checkpoint_is_written(undisturbed: Path, tmp_path: Path, number: int) -> None:
    """Each checkpoint syncs the ledger, three files and the marker: every one of these moments is covered."""
    assert in_child(lambda: _die_at_sync(tmp_path, number)) == -signal.SIGKILL
    assert in_child(lambda: go(tmp_path)) == 0
    assert_same(tmp_path, undisturbed)


def _die_in(folder: Path, phase: str, step: int, *, after: bool) -> None:
    from real_runs.ledger import Ledger

    name = "end" if after else "begin"
    real = getattr(Ledger, name)

    def patched(self: Ledger, at: int, what: str, *rest: Any) -> None:
        real(self, at, what, *rest)
        if (at, what) == (step, phase):
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(Ledger, name, patched)
    go(folder)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("phase", ["search", "reward", "old_logprobs", "update"])
def test_lost_work_is_charged_phase_by_phase(undisturbed: Path, tmp_path: Path, phase: str, after: bool) -> None:
    assert in_child(lambda: _die_in(tmp_path, phase, 3, after=after)) == -signal.SIGKILL
    assert in_child(lambda: go(tmp_path)) == 0
    record = assert_same(tmp_path, undisturbed)
    lost = record.provenance["lost_flops"]
    rows = {row["step"]: row for row in read_ledger(undisturbed / "ledger.jsonl").steps}
    done = ["search", "reward", "old_logprobs", "update"].index(phase)
    # What had ended is lost exactly; what had only begun is lost at its bound.
    if done > 0 or after:
        assert lost["search"] == rows[3]["search"]
    else:
        assert lost["search"] > rows[3]["search"]
    assert (lost["reward"] > 0) is (done >= 1)
    assert (lost["learning"] > 0) is (done >= 2)
    if done == 3:
        assert lost["learning"] == rows[3]["learning"]


def test_lost_work_inside_the_budget_shortens_the_run(undisturbed: Path, tmp_path: Path) -> None:
    def first() -> None:
        real = ToyReward.score

        def score(self: ToyReward, completions: Any) -> Any:
            if len(read_ledger(tmp_path / "ledger.jsonl").steps) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self, completions)

        ToyReward.score = score  # type: ignore[method-assign]
        go(tmp_path, lost_work="inside")

    assert in_child(first) == -signal.SIGKILL
    assert in_child(lambda: go(tmp_path, lost_work="inside")) == 0
    record = PilotRecord.from_dict(json.loads((tmp_path / "record.json").read_bytes()))
    lost = sum(record.provenance["lost_flops"][p] for p in ("search", "learning", "reward"))
    budget = record.spec.budget
    assert lost > 0
    assert 0.96 * budget <= record.flops.total + lost <= budget


def test_a_torn_ledger_line_is_skipped_and_counted(undisturbed: Path, tmp_path: Path) -> None:
    assert in_child(lambda: _die_in(tmp_path, "update", 2, after=False)) == -signal.SIGKILL
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'{"event": "end", "attempt": 1, "st')
    assert in_child(lambda: go(tmp_path)) == 0
    assert_same(tmp_path, undisturbed)
    assert read_ledger(tmp_path / "ledger.jsonl").torn == 1


def test_a_torn_checkpoint_is_named_skipped_and_done_again(undisturbed: Path, tmp_path: Path) -> None:
    assert in_child(lambda: _die_in(tmp_path, "search", 4, after=True)) == -signal.SIGKILL
    newest = tmp_path / "checkpoints" / "step-00000003"
    (newest / "policy.safetensors").write_bytes((newest / "policy.safetensors").read_bytes()[:-1])
    notes: list[str] = []
    task = ToyTask()

    def resume() -> None:
        run_pilot(spec(), task=task, reward=ToyReward(task, price=100), policy=factory(), out_dir=tmp_path,
                  options=toy_options(eval_problems=16, eval_points=3),
                  progress=lambda p: notes.append(p.note))
        (tmp_path / "notes.txt").write_text("\n".join(n for n in notes if n))

    assert in_child(resume) == 0
    said = (tmp_path / "notes.txt").read_text()
    assert "step-00000003: policy.safetensors does not match its marker" in said
    assert "resumed from step 2" in said
    assert_same(tmp_path, undisturbed)


def test_no_readable_checkpoint_is_never_a_silent_restart(tmp_path: Path) -> None:
    assert in_child(lambda: _die_in(tmp_path, "search", 4, after=True)) == -signal.SIGKILL
    for marker in (tmp_path / "checkpoints").glob("*/COMPLETE"):
        marker.unlink()
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(CannotDo, match=r"step-00000003: no COMPLETE marker.*not restarted"):
        go(tmp_path)
    assert (tmp_path / "ledger.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("checkpoints/step-00000003/policy.safetensors", "cannot read .*not restarted from an older one"),
        ("checkpoints", "cannot read .*checkpoints.*not restarted"),
        ("ledger.jsonl", "ledger: cannot read"),
        ("run.json", r"cannot read .*run\.json.*not restarted from the beginning"),
    ],
)
def test_what_cannot_be_read_is_never_a_silent_restart(tmp_path: Path, where: str, message: str) -> None:
    assert in_child(lambda: _die_in(tmp_path, "search", 4, after=True)) == -signal.SIGKILL
    victim, kept = tmp_path / where, tmp_path.parent / "kept"
    # A folder in the place of a file, or the reverse, cannot be read even by root.
    folder = victim.is_dir()
    victim.rename(kept)
    victim.write_bytes(b"") if folder else victim.mkdir()
    with pytest.raises(CannotDo, match=message):
        go(tmp_path)
    victim.unlink() if folder else victim.rmdir()
    kept.rename(victim)
    assert go(tmp_path).health.status == "ok"


def test_a_ledger_that_lost_lines_is_refused(tmp_path: Path) -> None:
    assert in_child(lambda: _die_in(tmp_path, "search", 4, after=True)) == -signal.SIGKILL
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    gone = next(i for i, line in enumerate(lines) if '"end"' in line and '"update"' in line)
    (tmp_path / "ledger.jsonl").write_text("\n".join(lines[:gone] + lines[gone + 1 :]) + "\n")
    with pytest.raises(CannotDo, match="lines are missing"):
        go(tmp_path)


def test_a_full_disk_stops_cleanly_and_the_run_can_go_on(undisturbed: Path, tmp_path: Path) -> None:
    def full_disk() -> None:
        # A file-size limit is a full disk that only this process sees: writes fail with an OSError.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, resource.RLIM_INFINITY))
        try:
            go(tmp_path)
        except CannotDo as error:
            (tmp_path / "why.txt").write_text(str(error))
            raise SystemExit(error.exit_code) from error

    assert in_child(full_disk) == 1
    assert "intact" in (tmp_path / "why.txt").read_text()
    (tmp_path / "why.txt").unlink()
    assert in_child(lambda: go(tmp_path)) == 0
    assert_same(tmp_path, undisturbed)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    slow = FORK.Process(target=lambda: go(tmp_path))
    slow.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "ledger.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        with pytest.raises(CannotDo, match="another process"):
            go(tmp_path)
    finally:
        slow.join(60)
