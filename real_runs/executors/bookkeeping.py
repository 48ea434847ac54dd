"""What every executor keeps in the same way: jobs in hand, and outcomes that nobody has taken yet.

An implementation says how a job becomes a task (`_accept`), starts what has room (`_begin`) and looks what has happened
(`_look`). The rest of the contract that is about bookkeeping is here once.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from race.errors import InvalidInput
from real_runs.executors._base import Job, Outcome
from real_runs.executors.folder import JobFolder
from real_runs.executors.launcher import interrupts_deferred


class Task(Protocol):
    """A job in hand."""

    job: Job


T = TypeVar("T", bound=Task)


class Queue(ABC, Generic[T]):
    """Jobs by id, in the order of submission, and the outcomes since the last `wait`."""

    # The job's folder may hold a real run of ours, whose record counts as well.
    ours = False

    def __init__(self) -> None:
        self._tasks: dict[str, T] = {}
        self._done: list[Outcome] = []

    def submit(self, job: Job) -> None:
        """See `Executor.submit`."""
        if job.id in self._tasks:
            raise InvalidInput(
                f"job.id: {job.id!r} is running already; allowed is one job of an id at a time"
            )
        folder = JobFolder.of(job)
        finished = folder.prepare(job, ours=self.ours)
        with interrupts_deferred():
            if finished is not None:
                self._done.append(Outcome(job, finished, 0.0, 0))
                return
            self._tasks[job.id] = self._accept(job, folder)
            self._begin()

    def wait(self, timeout: float | None) -> list[Outcome]:
        """See `Executor.wait`."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        block = 0.0
        while True:
            self._look(block)
            with interrupts_deferred():
                if self._done:
                    outcomes, self._done = self._done, []
                    return outcomes
            block = end - time.monotonic()
            if not self._tasks or block <= 0:
                return []

    def running(self) -> list[Job]:
        """See `Executor.running`."""
        return [task.job for task in self._tasks.values()]

    def _wind_down(self, seconds: float) -> None:
        """Ask everything to stop and give it some time."""
        for job in reversed(self.running()):  # those that wait must not start when a slot becomes free
            self.stop(job, reason="the executor was closed")
        end = time.monotonic() + seconds
        while self._tasks and time.monotonic() < end:
            self.wait(0.5)

    @abstractmethod
    def stop(self, job: Job, *, reason: str) -> None:
        """See `Executor.stop`."""

    @abstractmethod
    def _accept(self, job: Job, folder: JobFolder) -> T:
        """A task for a job whose folder is ready."""

    @abstractmethod
    def _begin(self) -> None:
        """Start what waits and has room; interrupts are deferred."""

    @abstractmethod
    def _look(self, block: float) -> None:
        """Take in what has happened, waiting up to ``block`` seconds (possibly without end) for the next thing."""
