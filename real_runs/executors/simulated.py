"""Pilots in a simulated world: for dry runs, and for testing whatever drives an executor.

    executor = SimulatorExecutor("own-3")                        in this process
    python -m real_runs.executors.simulated --world own-3        as a runner: the spec on stdin, the record on stdout

Worlds are those of `race.simulator.worlds`, and ``posterior-<seed>``: a draw from what the calibrated simulator
believes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from race.errors import InvalidInput, RaceError
from race.records import STOPPED, Curve, PilotRecord, PilotSpec
from race.simulator import Worlds, run_world
from race.simulator.worlds import world
from real_runs.executors._base import Job, Outcome, first_target
from real_runs.executors.bookkeeping import Queue
from real_runs.executors.folder import JobFolder
from real_runs.executors.launcher import interrupts_deferred
from real_runs.executors.readings import PHASES
from real_runs.executors.results import broken_record, signed

World = Callable[[PilotSpec], PilotRecord]


def named_world(name: str) -> World:
    """``own-3``, ``alien-ridge-1``, ... or ``posterior-<seed>``.

    Raises
    ------
    InvalidInput
        There is no world of this name.
    """
    kind, _, number = name.partition("-")
    if kind != "posterior":
        return world(name)
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise InvalidInput(f"world: found {name!r}; allowed is posterior-<number>")
    drawn = Worlds.prior(1, seed=int(number))
    return lambda spec: run_world(drawn, spec, seed=spec.seed, name=name)


@dataclass
class _Task:
    job: Job
    folder: JobFolder
    started: float | None = None
    record: PilotRecord | None = None
    stopped: str | None = None


class SimulatorExecutor(Queue[_Task]):
    """See `real_runs.executors._base.Executor`.

    Parameters
    ----------
    world
        A name, or any callable from spec to record.
    delay
        Seconds that a pilot seems to take. Its curve and its FLOPs appear evenly over that time.
    """

    name = "simulator"

    def __init__(self, world: str | World, *, slots: int = 1, delay: float = 0.0) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise InvalidInput(f"slots: found {slots!r}; allowed is a whole number from 1")
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= 1e6:
            raise InvalidInput(f"delay: found {delay!r}; allowed is a number of seconds from 0 to 1e6")
        super().__init__()
        self.slots, self._delay = slots, delay
        self._world = named_world(world) if isinstance(world, str) else world

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.clear()

    def progress(self, job: Job) -> float | None:
        """See `Executor.progress`."""
        record, share = self._so_far(job)
        return None if record is None else float(record.flops.total * share)

    def curve(self, job: Job) -> Curve | None:
        """See `Executor.curve`."""
        record, share = self._so_far(job)
        curve = None if record is None else record.curves.get(first_target(job))
        return None if record is None or curve is None else _until(curve, record.flops.total * share)

    def stop(self, job: Job, *, reason: str) -> None:
        """See `Executor.stop`."""
        task = self._tasks.get(job.id)
        if task is not None and task.stopped is None:
            task.stopped = reason

    def _accept(self, job: Job, folder: JobFolder) -> _Task:
        return _Task(job, folder)

    def _look(self, block: float) -> None:
        started = [task.started for task in self._tasks.values() if task.started is not None]
        if block and started:
            time.sleep(min(block, max(0.0, min(started) + self._delay - time.monotonic())))
        with interrupts_deferred():
            self._advance()

    def _begin(self) -> None:
        free = self.slots - sum(task.started is not None for task in self._tasks.values())
        for task in [task for task in self._tasks.values() if task.started is None][:free]:
            task.started = time.monotonic()
            try:
                task.record = self._world(task.job.spec)
            except RaceError as error:
                # What a real runner would say as it exits: a failed pilot, not the end of the loop.
                reason = f"{type(error).__name__}: {error}"
                task.record = broken_record(task.job, "failed", reason, evidence="simulated", started=False)

    def _advance(self) -> None:
        for task in list(self._tasks.values()):
            done = task.started is not None and time.monotonic() >= task.started + self._delay
            if done or task.stopped is not None:
                self._conclude(task, done=done)
        self._begin()

    def _conclude(self, task: _Task, *, done: bool) -> None:
        seconds = 0.0 if task.started is None else time.monotonic() - task.started
        attempts = int(task.started is not None)
        record = task.record if done else self._cut_short(task)
        assert record is not None
        given = {} if record.id == task.job.id else {"run_id": record.id}
        record = PilotRecord.from_dict(
            {**record.to_dict(), "id": task.job.id, "provenance": {**record.provenance, **given}}
        )
        record = signed(record, name=self.name, attempts=attempts, seconds=round(seconds, 3), exit_code=None)
        task.folder.keep(record)
        self._done.append(Outcome(task.job, record, seconds, attempts))
        del self._tasks[task.job.id]

    def _cut_short(self, task: _Task) -> PilotRecord:
        record, share = self._so_far(task.job)
        if record is not None and record.health.status != "failed":
            _append(task.folder.progress, progress_lines(record, 0.0, share))
        return broken_record(
            task.job,
            "failed",
            f"stopped: {task.stopped}",
            evidence="simulated",
            flags=(STOPPED,),
            started=False,
        )

    def _so_far(self, job: Job) -> tuple[PilotRecord | None, float]:
        task = self._tasks.get(job.id)
        if task is None or task.record is None or task.started is None:
            return None, 0.0
        passed = time.monotonic() - task.started
        return task.record, min(1.0, passed / self._delay) if self._delay else 1.0


def progress_lines(record: PilotRecord, since: float, until: float) -> str:
    """What a runner appends to its progress file on the way from one share of its FLOPs to another."""
    total = record.flops.total
    points: dict[int, dict[str, object]] = {}
    for target, curve in record.curves.items():
        for step, at, value, se in zip(curve.step, curve.flops, curve.value, curve.se, strict=True):
            if since <= at / max(total, 1) < until or (until >= 1 and at >= total):
                line = points.setdefault(
                    step, {"flops": _part(record, at / max(total, 1)), "step": step, "values": {}}
                )
                line["values"][target] = [value, se]  # type: ignore[index]
    lines = [*(points[step] for step in sorted(points)), {"flops": _part(record, until)}]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _part(record: PilotRecord, share: float) -> dict[str, float]:
    return {phase: getattr(record.flops, phase) * min(share, 1.0) for phase in PHASES}


def _until(curve: Curve, flops: float) -> Curve | None:
    count = sum(at <= flops for at in curve.flops)
    if not count:
        return None
    return Curve(curve.step[:count], curve.flops[:count], curve.value[:count], curve.se[:count])


def main() -> None:
    """A simulated pilot as a runner of the `command` executor."""
    parser = argparse.ArgumentParser(
        description="Runs a spec (stdin) in a simulated world; the record on stdout."
    )
    parser.add_argument("--world", required=True)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long it pretends to work")
    parser.add_argument("--progress", type=Path, help="file to append progress lines to")
    given = parser.parse_args()
    try:
        spec = PilotSpec.from_dict(json.load(sys.stdin))
        record = named_world(given.world)(spec)
    except RaceError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    start, told = time.monotonic(), 0.0
    _append(given.progress, json.dumps({"flops": _part(record, 0.0)}) + "\n")
    while told < 1:
        time.sleep(min(0.05, given.seconds))
        now = min(1.0, (time.monotonic() - start) / given.seconds) if given.seconds else 1.0
        _append(given.progress, progress_lines(record, told, now))
        told = now
    print(json.dumps(record.to_dict()))


def _append(path: Path | None, text: str) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
