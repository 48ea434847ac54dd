"""The loop in one process: ends for a reason, loses nothing wherever it is cut, and goes on as if it had not been."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import StoppingRule
from planner.pruning import Prune
from race.errors import CannotDo
from race.records import PilotRecord, PilotSpec
from race.simulator.worlds import world
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.simulated import SimulatorExecutor
from real_runs.loop import LoopOptions, LoopState
from real_runs.loop.charging import spent_before
from real_runs.loop.loop import _job
from tests.real_runs.loop.conftest import BUDGET, Made, Make, failing


class Killed(BaseException):
    """As sudden as kill -9, as far as code can be."""


def killed_at(made: Made, monkeypatch: pytest.MonkeyPatch, name: str, call: int, *, after: bool) -> None:
    """Die at the ``call``-th call of a step of the loop, before or after it has done its work."""
    owner: Any = {"claim": made.planner.memory, "finish": made.planner.memory, "submit": made.loop.executor,
                  "add": made.store}[name]  # fmt: skip
    real: Callable[..., Any] = getattr(owner, name)
    calls = []

    def dying(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == call and not after:
            raise Killed
        result = real(*args, **more)
        if len(calls) == call:
            raise Killed
        return result

    monkeypatch.setattr(owner, name, dying)
    # A dead process tells nobody.
    monkeypatch.setattr(made.planner.memory, "release", lambda owner: 0)


def test_it_ends_when_the_pilot_budget_is_spent(make: Make) -> None:
    made = make()
    states: list[LoopState] = []
    made.loop._watch = states.append
    ending = made.loop.run()
    assert ending.code == "budget-spent"
    assert not ending.failed
    made.check()
    assert len(made.records) == made.planner.progress.finished == 4
    assert not made.planner.progress.pending
    assert states[-1].ending == ending
    assert states[-1].spent == pytest.approx(made.planner.progress.spent)
    history = made.folder.lines(made.planner.memory.token)
    assert [line["finished"] for line in history] == sorted({s.progress.finished for s in states})
    assert history[-1]["regime"] == dict(states[-1].decision.view.regimes)


def test_it_ends_when_the_regime_is_certain_and_stops_what_still_runs(make: Make) -> None:
    rule = StoppingRule(certainty=0.5, min_pilots=1)
    made = make(SimulatorExecutor("own-0", slots=2, delay=0.4), rule=rule, options=LoopOptions(prune=False, turn=0.05))
    ending = made.loop.run()
    assert ending.code == "regime-certain"
    made.check()
    assert not made.planner.progress.pending
    assert made.planner.remaining > 0


def test_the_prior_alone_is_never_certain(make: Make) -> None:
    """Pilots that fail teach nothing, so they do not count as pilots that have reported."""
    made = make(SimulatorExecutor(failing), rule=StoppingRule(certainty=0.5, min_pilots=1))
    ending = made.loop.run()
    assert ending.code == "pilots-fail"
    assert ending.failed
    assert "out of memory" in ending.reason
    made.check()
    assert len(made.records) == LoopOptions().failures


def test_one_failure_among_successes_is_data(make: Make) -> None:
    calls: list[PilotSpec] = []

    def sometimes(spec: PilotSpec) -> PilotRecord:
        calls.append(spec)
        return failing(spec) if len(calls) in (2, 3) else world("own-0")(spec)

    made = make(SimulatorExecutor(sometimes))
    assert made.loop.run().code == "budget-spent"
    made.check()
    assert sum(r.health.status == "failed" for r in made.records.values()) == 2
    assert sum("failed: out of memory" in line for line in made.lines) == 2


SHORT = {"sizes": [BUDGET // 30], "start": 5}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("whole")
    made = Made(folder, SimulatorExecutor("own-0"), LoopOptions(prune=False), "study.db", **SHORT)
    made.loop.run()
    return made


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["claim", "submit", "finish", "add"])
def test_cut_anywhere_it_goes_on_as_if_it_had_not_been(
    make: Make, undisturbed: Made, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    made = make(SimulatorExecutor("own-0"), **SHORT)
    killed_at(made, monkeypatch, step, 2, after=after)
    with pytest.raises(Killed):
        made.loop.run()
    monkeypatch.undo()
    again = make(SimulatorExecutor("own-0"), **SHORT)
    assert again.loop.run().code == "budget-spent"
    again.check()
    assert [p.spec for p in again.planner.progress.pilots] == [p.spec for p in undisturbed.planner.progress.pilots]
    assert again.planner.decide().to_dict() == _named(undisturbed.planner.decide().to_dict(), undisturbed, again)


def _named(answer: dict[str, Any], made: Made, other: Made) -> dict[str, Any]:
    """Notes name records, and those are named after their study."""
    text = json.dumps(answer).replace(made.planner.memory.token, other.planner.memory.token)
    named: dict[str, Any] = json.loads(text)
    return named


def test_a_loop_that_has_ended_ends_again_at_once(make: Make) -> None:
    first = make()
    ending = first.loop.run()
    second = make()
    assert second.loop.run() == ending
    assert second.planner.decide().to_dict() == first.planner.decide().to_dict()


def test_ctrl_c_leaves_pilots_for_the_next_loop(make: Make) -> None:
    made = make(SimulatorExecutor("own-0", slots=2, delay=60))
    made.loop._watch = interrupt_when(lambda state: len(state.running) == 2)
    with pytest.raises(KeyboardInterrupt):
        made.loop.run()
    held = made.planner.memory.held()
    assert [lease.owner for lease in held.values()] == [None, None]
    again = make()
    assert again.loop.run().code == "budget-spent"
    assert sum("going on with pilot" in line for line in again.lines) == 2
    again.check()


def interrupt_when(reached: Callable[[LoopState], bool]) -> Callable[[LoopState], None]:
    def watch(state: LoopState) -> None:
        if reached(state):
            raise KeyboardInterrupt

    return watch


def test_a_pilot_that_cannot_matter_is_pruned_and_its_curve_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(SimulatorExecutor("own-0", delay=0.3), options=LoopOptions(turn=0.05))
    pruned: list[str] = []

    def first_one(proposer: Any, progress: Any, spec: PilotSpec, so_far: PilotRecord) -> Prune | None:
        assert so_far.spec == spec
        assert 0 < so_far.flops.total <= spec.budget
        if pruned:
            return None
        pruned.append(so_far.spec.model)
        return Prune(0.01, "it cannot matter")

    monkeypatch.setattr("real_runs.loop.pruning.check_running", first_one)
    made.loop.run()
    made.check()
    cut = [r for r in made.records.values() if "pruned" in r.health.flags]
    assert len(cut) == len(pruned) == 1
    assert cut[0].health.reason == "pruned: it cannot matter"
    assert cut[0].flops.total < cut[0].spec.budget
    assert cut[0].curves
    states = [trial.state.name for trial in made.planner.study.trials]
    assert states.count("PRUNED") == 1
    assert made.planner.decide().evidence["simulated"] == len(made.records)


def test_the_store_is_completed_from_the_study(make: Make) -> None:
    made = make()
    made.loop.run()
    for path in list((made.folder.store / "records").iterdir())[:2]:
        path.unlink()
    again = make()
    again.loop.run()
    again.check()


def test_a_full_disk_is_one_line_and_loses_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make()

    def full(record: PilotRecord) -> None:
        raise CannotDo("store: cannot write: No space left on device")

    monkeypatch.setattr(made.store, "add", full)
    with pytest.raises(CannotDo, match="No space left"):
        made.loop.run()
    assert made.planner.progress.finished == 1
    again = make()
    assert again.loop.run().code == "budget-spent"
    again.check()


def test_a_storage_that_comes_back_is_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make()
    real, calls = made.planner.memory.finish, []

    def flaky(*args: Any) -> bool:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("connection reset")
        return real(*args)

    monkeypatch.setattr(made.planner.memory, "finish", flaky)
    assert made.loop.run().code == "budget-spent"
    assert any("does not answer (connection reset)" in line for line in made.lines)
    made.check()


def test_a_storage_that_does_not_come_back_is_one_line(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(options=LoopOptions(prune=False, patience=0.5))

    def gone(*args: Any) -> bool:
        raise OSError("connection reset")

    monkeypatch.setattr(made.planner.memory, "finish", gone)
    with pytest.raises(CannotDo, match="out of reach for 0 s: connection reset; nothing is lost"):
        made.loop.run()


def test_a_pilot_taken_over_by_another_loop_is_let_go(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that was suspended for longer than its leases last."""
    made = make(SimulatorExecutor("own-0", delay=0.2), storage="study.journal",
                options=LoopOptions(prune=False, ttl=0.2, turn=0.05))  # fmt: skip
    memory = made.planner.memory
    other = replace(made.loop.owner, id="other", pid=1, started=0, machine="elsewhere")
    taken: list[int] = []

    def steal(state: LoopState) -> None:
        if state.running and not taken:
            number, lease = next(iter(memory.held().items()))
            claim = memory.take_over(number, other, lease, str(made.folder.pilots))
            assert claim is not None
            taken.append(number)

    made.loop._watch = steal
    made.loop.run()
    assert any(f"pilot {taken[0]} is run by another loop now" in line for line in made.lines)
    # Nobody renewed it there either, so it came back; nothing is told twice.
    made.check()
    assert not made.planner.progress.pending


def test_a_pilot_on_a_machine_that_is_gone_is_given_up_and_charged(make: Make) -> None:
    made = make(storage="study.journal", options=LoopOptions(prune=False, ttl=0.3))
    memory = made.planner.memory
    away = replace(made.loop.owner, id="away", machine="elsewhere", host="far")
    claim = memory.claim(away, "/nowhere")
    made.loop.run()
    lost = [p for p in made.planner.progress.pilots if p.state == "lost"]
    assert [p.number for p in lost] == [claim.number]
    assert any("pilot 0 is lost" in line and "on far" in line for line in made.lines)
    made.check()


def test_work_that_cannot_be_paid_for_again_is_not_done_again(make: Make) -> None:
    """A runner that starts from nothing, killed with its loop, when the rest of the budget is reserved."""
    made = make(SimulatorExecutor("own-0"), options=LoopOptions(prune=False, lost_work_inside=False),
                sizes=[5 * 10**17])  # fmt: skip
    memory = made.planner.memory
    claim = memory.claim(replace(made.loop.owner, id="dead"), str(made.folder.pilots))
    memory.claim(replace(made.loop.owner, id="dead too"), str(made.folder.pilots))
    folder = made.folder.pilots / claim.job
    folder.mkdir(parents=True)
    (folder / "stdout.log").touch()
    (folder / "progress.jsonl").write_text('{"flops": 2e17}\n')
    made.loop.run()
    made.check()
    record = made.records[claim.job]
    assert record.health.status == "failed"
    assert "does not pay for doing its work again" in record.health.reason
    assert record.spent == pytest.approx(2e17)
    assert spent_before(_job(replace(claim, folder=str(made.folder.pilots)))) == pytest.approx(2e17)


SILENT = """
import json, os, sys
spec = json.load(open(os.environ["RACE_SPEC"]))
crashes = int(sys.argv[1])
if sys.argv[2] != "silent":
    with open(os.environ["RACE_PROGRESS"], "a") as told:
        for share in {"tells": (0, 0.25), "raves": (1e6, 1e19)}[sys.argv[2]]:
            print(json.dumps({"flops": share * spec["budget"]}), file=told)
with open("attempts", "a+") as file:
    file.seek(0)
    before = file.read().count(spec["model"])
    file.write(spec["model"])
if before < crashes:
    sys.exit(3)
flops = {"search": spec["budget"] / 2, "learning": spec["budget"] / 4, "reward": 0}
curve = {"step": [0, 9], "flops": [0, spec["budget"] / 2], "value": [0.2, 0.4], "se": [0.01, 0.01]}
print(json.dumps({"flops": flops, "steps": 9, "curves": {"native": curve}}))
"""


@pytest.mark.parametrize(
    ("crashes", "retries", "manner", "status", "units"),
    [
        (1, 1, "silent", "ok", 1.75),  # a silent attempt in full, and the record
        (2, 2, "silent", "ok", 2.75),
        (9, 2, "silent", "failed", 3.0),  # each of three silent attempts
        (9, 1, "silent", "failed", 2.0),
        (9, 1, "raves", "failed", 2.0),  # impossible FLOPs are nothing told
        (9, 2, "tells", "failed", 0.75),
    ],
)
def test_every_attempt_that_told_nothing_is_charged_in_full(
    make: Make, tmp_path: Path, crashes: int, retries: int, manner: str, status: str, units: float
) -> None:
    """A runner that crashes before it tells what it has spent may have spent all of its budget, each time."""
    script = tmp_path / "silent.py"
    script.write_text(SILENT)
    command = [sys.executable, "-S", str(script), str(crashes), manner]
    executor = CommandExecutor(command, limits=Limits(retries=0, grace=1), cwd=tmp_path)
    size = BUDGET // 40
    made = make(executor, options=LoopOptions(prune=False, lost_work_inside=False, retries=retries, failures=1),
                pilot_budget=3 * size, sizes=[size])  # fmt: skip
    made.loop.run()
    made.check()
    first = made.planner.progress.pilots[0]
    assert first.record is not None
    assert first.record.health.status == status
    assert first.charged == pytest.approx(units * size)
