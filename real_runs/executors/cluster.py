"""Pilots on a Ray cluster, an existing one or one that is started here.

Each job is one Ray task with the resources of a pilot. On its worker, the task runs the same `local` or `command`
executor that a single machine would, so that timeouts, retries, logs and records are the same everywhere. A worker or
node that dies costs an attempt, and the job is tried again, elsewhere if need be; on a file system that all nodes share
it goes on from its last checkpoint, otherwise from the beginning.

Tasks and driver talk through a `Mailbox`, an actor without resources: progress one way, requests to stop the other.
What is sent is JSON text.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from race.errors import CannotDo, InvalidInput
from race.records import STOPPED, Curve, Evidence, PilotRecord
from real_runs.executors._base import Job, Outcome
from real_runs.executors.bookkeeping import Queue
from real_runs.executors.folder import JobFolder
from real_runs.executors.launcher import interrupts_deferred
from real_runs.executors.limits import WORKER_LOST, Limits
from real_runs.executors.local import run_command
from real_runs.executors.results import broken_record
from real_runs.executors.template import parse_command
from real_runs.executors.worker import Mailbox, run_task

_CONNECT_SECONDS = 5.0
# Beyond a pilot's own grace: for the task to write its record and return it.
_MARGIN = 10.0


@dataclass
class _Task:
    job: Job
    folder: JobFolder
    ref: Any = None
    attempts: int = 0
    started: float | None = None
    not_before: float = 0.0
    stopped: str | None = None
    kill_at: float | None = None


class RayExecutor(Queue[_Task]):
    """See the module's text and `real_runs.executors._base.Executor`.

    Parameters
    ----------
    address
        ``host:port`` or ``ray://host:port`` of a cluster, ``auto`` for the one this machine belongs to; ``None`` starts
        one here.
    slots
        Jobs at a time; default: as many as the cluster's resources hold. Say it for a cluster that grows.
    cpus, gpus, resources
        What Ray sets aside for each pilot.
    command
        A command line as of the `command` executor; default: ``race run`` with ``config`` and ``arguments``.
    limits
        As for every executor; ``retries`` counts for workers that die as for commands that crash.
    """

    name = "ray"

    def __init__(
        self,
        *,
        address: str | None = None,
        slots: int | None = None,
        cpus: float = 1.0,
        gpus: float = 0.0,
        resources: Mapping[str, float] | None = None,
        command: str | Sequence[str] | None = None,
        config: Path | Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        threads: int | None = None,
        env: Mapping[str, str] | None = None,
        warm: bool = True,
        evidence: Evidence = "real",
        cwd: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        for what, value in (("cpus", cpus), ("gpus", gpus), *(resources or {}).items()):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e6:
                raise InvalidInput(f"executor.{what}: found {value!r}; allowed is a number from 0 to 1e6")
        if slots is not None and (isinstance(slots, bool) or not isinstance(slots, int) or slots < 1):
            raise InvalidInput(f"slots: found {slots!r}; allowed is a whole number from 1")
        super().__init__()
        self.slots = slots or 1
        self.limits = limits or Limits(retries=2)
        self._address, self._fixed_slots = address, slots
        self._demand = {"CPU": float(cpus), "GPU": float(gpus), **dict(resources or {})}
        self._evidence: Evidence = evidence
        self._how = json.dumps(self._inner(command, config, arguments, threads, env, warm, evidence, cwd))
        self._ray: Any = None
        self._ours = False
        self._mailbox: Any = None

    def _inner(
        self, command: str | Sequence[str] | None, config: Path | Mapping[str, Any] | None, arguments: Sequence[str],
        threads: int | None, env: Mapping[str, str] | None, warm: bool, evidence: Evidence, cwd: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        """What a worker needs to build its executor, as JSON types."""
        limits = asdict(self.limits)
        if command is not None:
            here = str((cwd or Path.cwd()).absolute())
            return {"command": parse_command(command), "env": dict(env or {}), "evidence": evidence, "cwd": here,
                    "limits": limits}  # fmt: skip
        if env:
            raise InvalidInput("executor.env: found it without a command; allowed is one with command")
        parse_command(run_command(config, arguments))
        return {
            "command": None, "config": str(Path(config).absolute()) if isinstance(config, (str, Path)) else config,
            "arguments": list(arguments), "threads": threads or max(1, int(self._demand["CPU"])), "warm": warm,
            "limits": limits,
        }  # fmt: skip

    # -- the contract ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if find_spec("ray") is None:
            raise CannotDo(
                "executor: Ray is not installed here; install it with: pip install 'race-rl[dist]'"
            )
        import ray

        self._ray = ray
        self._connect()
        try:
            self.slots = self._fixed_slots or self._room()
            self._mailbox = ray.remote(Mailbox).options(num_cpus=0, max_restarts=-1).remote()
        except BaseException:
            self._disconnect()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wind_down(self.limits.grace + _MARGIN)
        finally:
            for task in self._tasks.values():
                self._cancel(task, force=True)
            self._tasks.clear()
            self._disconnect()

    def progress(self, job: Job) -> float | None:
        """See `Executor.progress`."""
        spent = self._news(job).get("spent")
        return None if spent is None else float(spent)

    def curve(self, job: Job) -> Curve | None:
        """See `Executor.curve`."""
        curve = self._news(job).get("curve")
        return None if curve is None else Curve.from_dict(curve, where="curve")

    def stop(self, job: Job, *, reason: str) -> None:
        """See `Executor.stop`."""
        task = self._tasks.get(job.id)
        if task is None or task.stopped is not None:
            return
        task.stopped = reason
        if task.ref is None:
            self._conclude_broken(task)
            return
        task.kill_at = time.monotonic() + self.limits.grace + _MARGIN
        self._mailbox.stop.remote(job.id, reason)
        if not self._news(job):
            # Ray may not have found room for it yet; a task that has started goes on until it hears from the mailbox.
            self._cancel(task, force=False)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _accept(self, job: Job, folder: JobFolder) -> _Task:
        return _Task(job, folder)

    def _begin(self) -> None:
        now = time.monotonic()
        busy = sum(task.ref is not None for task in self._tasks.values())
        for task in self._tasks.values():
            if busy >= self.slots:
                return
            if task.ref is None and task.not_before <= now:
                self._start(task)
                busy += 1

    def _start(self, task: _Task) -> None:
        job = {"id": task.job.id, "spec": task.job.spec.to_dict(), "folder": str(task.folder.path)}
        extra = {name: n for name, n in self._demand.items() if name not in ("CPU", "GPU") and n}
        remote = self._ray.remote(run_task).options(
            num_cpus=self._demand["CPU"], num_gpus=self._demand["GPU"], resources=extra or None, max_retries=0,
            name=f"race:{task.job.id}",
        )  # fmt: skip
        task.started = task.started if task.started is not None else time.monotonic()
        task.ref = remote.remote(json.dumps(job), self._how, self._mailbox)

    def _look(self, block: float) -> None:
        block = min(block, 1.0)
        by_ref = {task.ref: task for task in self._tasks.values() if task.ref is not None}
        try:
            ready = self._ray.wait(list(by_ref), num_returns=1, timeout=block)[0] if by_ref else []
        except (self._ray.exceptions.RaySystemError, ConnectionError) as error:
            self._lost_cluster(error)
            return
        if not by_ref and block:
            time.sleep(min(block, 0.05))  # all of them wait for their next attempt
        with interrupts_deferred():
            for ref in ready:
                self._ended(by_ref[ref])
            now = time.monotonic()
            for task in list(self._tasks.values()):
                if task.ref is not None and task.kill_at is not None and now >= task.kill_at:
                    task.kill_at = None
                    self._cancel(task, force=True)
            self._begin()

    def _ended(self, task: _Task) -> None:
        ref, task.ref = task.ref, None
        try:
            told = json.loads(self._ray.get(ref))
        except self._ray.exceptions.RayTaskError as error:
            task.attempts += 1
            # Raised by our own code on the worker: it would be raised again.
            self._conclude_broken(task, f"on the worker: {error.cause or error}")
        except self._ray.exceptions.RayError as error:
            task.attempts += 1
            if task.stopped is not None or task.attempts > self.limits.retries:
                self._conclude_broken(task, _in_words(error), WORKER_LOST)
            else:
                task.not_before = time.monotonic() + self.limits.retry_wait * 2 ** min(task.attempts - 1, 20)
        else:
            task.attempts += told["attempts"]
            record = PilotRecord.from_dict(told["record"])
            self._conclude(task, record)

    def _conclude_broken(self, task: _Task, reason: str = "", *flags: str) -> None:
        if task.stopped is not None:
            reason, flags = f"stopped: {task.stopped}", (STOPPED,)
        record = broken_record(
            task.job, "failed", reason, evidence=self._evidence, flags=flags, started=task.attempts > 0
        )
        self._conclude(task, record)

    def _conclude(self, task: _Task, record: PilotRecord) -> None:
        seconds = 0.0 if task.started is None else time.monotonic() - task.started
        about = {**record.provenance.get("executor", {}), "name": self.name, "attempts": task.attempts,
                 "seconds": round(seconds, 3)}  # fmt: skip
        record = replace(record, provenance={**record.provenance, "executor": about})
        del self._tasks[task.job.id]
        self._done.append(Outcome(task.job, record, seconds, task.attempts))
        if self._mailbox is not None:
            self._mailbox.forget.remote(task.job.id)
        task.folder.keep(record)

    def _lost_cluster(self, error: Exception) -> None:
        """The cluster itself is gone: every job ends, and says so."""
        self._mailbox = None
        for task in list(self._tasks.values()):
            task.attempts += task.ref is not None
            self._conclude_broken(task, f"the Ray cluster is gone ({_in_words(error)})")

    def _cancel(self, task: _Task, *, force: bool) -> None:
        if task.ref is None:
            return
        try:
            self._ray.cancel(task.ref, force=force, recursive=True)
        except (self._ray.exceptions.RayError, ConnectionError, ValueError):
            # It ended meanwhile, or the cluster did; `_look` sees which.
            return

    def _news(self, job: Job) -> dict[str, Any]:
        if job.id not in self._tasks or self._mailbox is None:
            return {}
        try:
            news = self._ray.get(self._mailbox.news.remote(job.id), timeout=5)
        except (self._ray.exceptions.RayError, ConnectionError):
            return {}
        found: dict[str, Any] = {} if news is None else json.loads(news)
        return found

    # -- the cluster -----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        _check_reachable(self._address)
        if self._address == "auto":
            _check_own_cluster()
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            # Not a cluster that happens to be named in the environment: that is address = "auto".
            quiet |= {"include_dashboard": False, "address": "local"}
        else:
            quiet["address"] = self._address
        try:
            self._ray.init(**quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = "start one here" if self._address is None else f"connect to {self._address!r}"
            raise CannotDo(f"executor: Ray cannot {where}: {' '.join(str(error).split())[:300]}") from error
        self._ours = True

    def _disconnect(self) -> None:
        if self._mailbox is not None:
            self._ray.kill(self._mailbox)
            self._mailbox = None
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    def _room(self) -> int:
        """Pilots that the cluster holds at once, node by node."""
        count = 0
        for node in self._ray.nodes():
            if node["Alive"]:
                has = node["Resources"]
                fits = [has.get(name, 0) // need for name, need in self._demand.items() if need]
                count += int(min(fits, default=1))
        if count < 1:
            wanted = ", ".join(f"{need:g} {name}" for name, need in self._demand.items() if need)
            raise CannotDo(
                f"executor: no node of the Ray cluster has {wanted}; ask for less, or give slots if it can grow"
            )
        return count


def _check_reachable(address: str | None) -> None:
    """Ask the port ourselves: Ray's own attempt takes a minute, and may end the process."""
    if address is None or address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise InvalidInput(
            f"executor.address: found {address!r}; allowed are host:port, ray://host:port and auto"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise CannotDo(
            f"executor: nothing answers at {address!r} ({error}); is the cluster up, and the port open from here?"
        ) from error


def _check_own_cluster() -> None:
    """The address that ``auto`` stands for may be of a cluster that has ended; Ray itself waits minutes for it."""
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address("auto")
    except (ConnectionError, ValueError) as error:
        raise CannotDo(f"executor: Ray finds no cluster of this machine: {_in_words(error)}") from error
    if found is not None:
        _check_reachable(found)


def _in_words(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:200]}"
