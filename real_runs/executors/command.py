"""Runs any command line: a spec goes in as JSON, a record comes out as JSON.

A job goes through these states, all of them kept in memory only; the truth that survives a crash is in its folder.

    waiting -> starting -> running -> ended -> outcome
       ^                                |
       +------- crashed, tries left ----+

Nothing here waits: `CommandExecutor.wait` looks, acts, and blocks on the warden's socket until the next event or
deadline. Time is the monotonic clock, so a clock that is set does not time pilots out.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from race.errors import CannotDo, InvalidInput
from race.records import STOPPED, Curve, Evidence, PilotRecord, Status
from real_runs.executors._base import Job, Outcome, first_target
from real_runs.executors.bookkeeping import Queue
from real_runs.executors.folder import JobFolder
from real_runs.executors.launcher import Command, Event, Launcher, interrupts_deferred
from real_runs.executors.limits import HOPELESS_CODES, Limits
from real_runs.executors.readings import Readings, readings_of
from real_runs.executors.results import RefusedResult, broken_record, charged, last_line, read_result, signed
from real_runs.executors.template import filled, parse_command, places, reads_stdin


@dataclass
class _Task:
    """A job in hand. Times are of the monotonic clock."""

    job: Job
    folder: JobFolder
    readings: Readings | None = None
    slot: int | None = None
    attempts: int = 0
    stderr_from: int = 0
    first_start: float | None = None
    started: float | None = None
    not_before: float = 0.0
    locked_since: float | None = None
    kill_at: float | None = None
    killed: bool = False
    asked: tuple[Status, str, str] | None = None  # status, reason and flag of an end that we brought about


class CommandExecutor(Queue[_Task]):
    """See the module's text and `real_runs.executors._base.Executor`.

    Parameters
    ----------
    command
        Words with the places of `real_runs.executors.template`.
    slots
        How many run at once.
    limits
        Timeout, retries and patience.
    env
        Environment variables on top of ours; ``{slot}`` and the other places are filled in.
    warm
        Modules to import once in the process that pilots are forked from; only for commands that start with this
        interpreter and ``-m``.
    evidence
        What records are evidence of, where the runner does not say.
    ours
        The command keeps a real run of ours in ``{folder}/run``, whose ledger and checkpoints are then read.
    cwd
        Where commands run; default: where we run.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        slots: int = 1,
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        per_slot: Sequence[Mapping[str, str]] = (),
        warm: Sequence[str] = (),
        evidence: Evidence = "real",
        ours: bool = False,
        cwd: Path | None = None,
        name: str = "command",
    ) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= 10_000:
            raise InvalidInput(f"slots: found {slots!r}; allowed is a whole number from 1 to 10000")
        super().__init__()
        self.name, self.slots, self.ours = name, slots, ours
        self.limits = limits or Limits()
        self._command = parse_command(command)
        self._env, self._per_slot = dict(env or {}), tuple(per_slot)
        self._evidence: Evidence = evidence
        self._cwd = cwd
        self._launcher = Launcher(modules=warm, env=self._env, grace=self.limits.grace)
        self._free = list(range(slots - 1, -1, -1))

    # -- the contract ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._launcher.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wind_down(self.limits.grace)
        finally:
            # Also when Ctrl-C comes again: hanging up ends whatever is left.
            self._launcher.close()
            self._tasks.clear()
            self._free = list(range(self.slots - 1, -1, -1))

    def progress(self, job: Job) -> float | None:
        """See `Executor.progress`."""
        readings = self._readings(job)
        return None if readings is None else readings.spent()

    def curve(self, job: Job) -> Curve | None:
        """See `Executor.curve`."""
        readings = self._readings(job)
        return None if readings is None else readings.curves().get(first_target(job))

    def stop(self, job: Job, *, reason: str) -> None:
        """See `Executor.stop`."""
        task = self._tasks.get(job.id)
        if task is None or task.asked is not None:
            return
        with interrupts_deferred():
            self._ask(task, "failed", f"stopped: {reason}", STOPPED)
            self._advance()

    def set_environment(self, slot: int, env: Mapping[str, str]) -> None:
        """What the next commands in a slot get on top of everything else: the GPUs that a scheduler gave us."""
        per_slot = list(self._per_slot) or [{} for _ in range(self.slots)]
        per_slot[slot] = dict(env)
        self._per_slot = tuple(per_slot)

    # -- what it goes through --------------------------------------------------------------------------------------

    def _accept(self, job: Job, folder: JobFolder) -> _Task:
        return _Task(job, folder)

    def _begin(self) -> None:
        self._advance()

    def _look(self, block: float) -> None:
        if block:
            self._launcher.block(min(block, max(0.0, self._next_deadline() - time.monotonic())))
        with interrupts_deferred():
            self._advance()

    def _advance(self) -> None:
        """Take in what happened and do what is due. Never waits."""
        for event in self._launcher.events():
            task = self._tasks.get(event.key)
            if task is not None:
                self._happened(task, event)
        now = time.monotonic()
        for task in list(self._tasks.values()):
            self._due(task, now)
        for task in list(self._tasks.values()):
            if not self._free:
                break
            if task.slot is None and task.not_before <= now:
                self._start(task, now)

    def _due(self, task: _Task, now: float) -> None:
        if task.slot is None:
            if task.asked is not None:
                self._conclude(task, self._broken(task, *task.asked))
            return
        timeout = self.limits.timeout
        if (
            task.asked is None
            and timeout is not None
            and task.started is not None
            and now >= task.started + timeout
        ):
            self._ask(task, "timeout", f"ran for more than {timeout:g} s", "timed-out")
        if task.kill_at is not None and now >= task.kill_at and not task.killed:
            task.killed = True
            self._launcher.signal(task.job.id, signal.SIGKILL)

    def _ask(self, task: _Task, status: Status, reason: str, flag: str) -> None:
        task.asked = (status, reason, flag)
        if task.slot is not None:
            task.kill_at = time.monotonic() + self.limits.grace
            self._launcher.signal(task.job.id, signal.SIGTERM)

    def _start(self, task: _Task, now: float) -> None:
        task.slot = self._free.pop()
        task.first_start = task.first_start if task.first_start is not None else now
        task.kill_at, task.killed = None, False
        folder, slot = task.folder, task.slot
        try:
            # What an earlier attempt left must not pass for this one's.
            folder.result.unlink(missing_ok=True)
            task.stderr_from = folder.stderr.stat().st_size if folder.stderr.exists() else 0
        except OSError as error:
            reason = f"cannot write {folder.path}: {error.strerror or error}"
            self._conclude(task, self._broken(task, "failed", reason))
            return
        filling = places(task.job, slot)
        env = {f"RACE_{name.upper()}": filling[name] for name in ("spec", "record", "progress", "folder")}
        for given in (self._env, self._per_slot[slot] if self._per_slot else {}):
            env |= given
        self._launcher.launch(
            task.job.id,
            Command(
                argv=filled(self._command, task.job, slot),
                env=env,
                cwd=(self._cwd or Path.cwd()).absolute(),
                stdin=folder.spec if reads_stdin(self._command) else None,
                stdout=folder.stdout,
                stderr=folder.stderr,
                lock=folder.lock,
            ),
        )

    def _happened(self, task: _Task, event: Event) -> None:
        if event.kind == "started":
            task.attempts += 1
            task.started = time.monotonic()
            task.locked_since = None
            if task.asked is not None:  # asked before it had started
                self._launcher.signal(task.job.id, signal.SIGTERM)
            return
        self._leave_slot(task)
        if event.kind == "busy":
            self._wait_for_lock(task)
        elif event.kind == "refused":
            self._conclude(
                task, self._broken(task, "failed", f"cannot start {self._command[0]!r}: {event.why}")
            )
        else:
            if task.started is None:  # the warden was killed before it could say that it had started it
                task.attempts += 1
            self._ended(task, event.code)

    def _wait_for_lock(self, task: _Task) -> None:
        now = time.monotonic()
        task.locked_since = task.locked_since if task.locked_since is not None else now
        if now - task.locked_since >= self.limits.lock_wait:
            reason = f"another process has been running in {task.folder.path} for {self.limits.lock_wait:g} s"
            self._conclude(task, self._broken(task, "failed", reason))
            return
        task.not_before = now + 0.2

    def _ended(self, task: _Task, code: int) -> None:
        try:
            if code == 0:
                record = charged(read_result(task.job, evidence=self._evidence), task.job, task.attempts)
                self._conclude(task, record, code)
                return
            why = _in_words(code) + _quoted(last_line(task.folder.stderr, task.stderr_from))
        except RefusedResult as refused:
            why = f"exit code 0, but {refused}" if task.asked is None else str(refused)
        if task.asked is not None:
            self._conclude(task, self._broken(task, *task.asked), code)
        elif code in (0, *HOPELESS_CODES) or task.attempts > self.limits.retries:
            tried = f" (attempt {task.attempts} of {self.limits.retries + 1})" if self.limits.retries else ""
            self._conclude(task, self._broken(task, "failed", why + tried), code)
        else:
            task.started = None
            task.not_before = time.monotonic() + self.limits.retry_wait * 2 ** min(task.attempts - 1, 20)
            self._note(task, f"{why}; trying again")

    def _broken(self, task: _Task, status: Status, reason: str, flag: str = "") -> PilotRecord:
        flags = (flag,) if flag else ()
        return broken_record(
            task.job, status, reason, evidence=self._evidence, flags=flags, started=task.attempts > 0
        )

    def _conclude(self, task: _Task, record: PilotRecord, code: int | None = None) -> None:
        self._leave_slot(task)
        seconds = 0.0 if task.first_start is None else time.monotonic() - task.first_start
        record = signed(
            record, name=self.name, attempts=task.attempts, seconds=round(seconds, 3), exit_code=code
        )
        del self._tasks[task.job.id]
        self._done.append(Outcome(task.job, record, seconds, task.attempts))
        try:
            task.folder.keep(record)
        except CannotDo as error:
            # The record itself goes to the caller; the folder's copy only spares a rerun.
            self._note(task, str(error))

    def _leave_slot(self, task: _Task) -> None:
        if task.slot is not None:
            self._free.append(task.slot)
            task.slot = None

    def _next_deadline(self) -> float:
        """When something is due by itself, at the latest in a second."""
        now = time.monotonic()
        times = [now + 1.0]
        for task in self._tasks.values():
            if task.slot is None and task.not_before > now:
                times.append(task.not_before)
            elif task.kill_at is not None and not task.killed:
                times.append(task.kill_at)
            elif task.started is not None and self.limits.timeout is not None and task.asked is None:
                times.append(task.started + self.limits.timeout)
        return min(times)

    def _readings(self, job: Job) -> Readings | None:
        task = self._tasks.get(job.id)
        if task is None:
            return None
        fresh = readings_of(task.folder)
        if task.readings is None or type(task.readings) is not type(fresh):
            task.readings = fresh
        return task.readings

    def _note(self, task: _Task, text: str) -> None:
        """A line in the job's stderr.log, where people look."""
        try:
            with task.folder.stderr.open("a", encoding="utf-8") as log:
                log.write(f"--- executor, attempt {task.attempts}: {text}\n")
        except OSError:
            # The folder is unwritable, which `_conclude` reports in the record's stead.
            return


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _quoted(line: str) -> str:
    return f": {line}" if line else ""
