"""The contract of executors: jobs go in, outcomes come out, whatever happens in between.

An executor runs pilots somewhere else: in child processes, on a Ray cluster, through a command line, in a simulated
world. It knows nothing of studies, stores or planners; the loop hands it jobs and takes outcomes.

What every implementation keeps, and the contract tests check for all of them:

- Each submitted job has exactly one `Outcome`, which comes through ``wait()``, also when it was stopped, killed, timed
  out or printed garbage. An outcome always carries a `PilotRecord`; what went wrong is its ``health``.
- ``outcome.record.id == outcome.job.id`` and ``outcome.record.spec == outcome.job.spec``. So a store that refuses a
  second record of one id cannot hold a pilot twice. The id that the runner itself gave is in
  ``provenance["run_id"]``.
- FLOPs count when they were spent: a failed record carries what the ledger in the job's folder (or the progress file
  of a foreign runner) says, lost work included.
- The same job submitted again resumes its folder; one that is finished there comes back at once, unchanged.
- Nothing outlives the executor: leaving the ``with`` block asks what still runs to checkpoint, then kills it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from race.errors import InvalidInput
from race.records import Curve, PilotRecord, PilotSpec

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True)
class Job:
    """One pilot to run.

    Attributes
    ----------
    id
        1 to 128 ASCII letters, digits, ``-`` and ``_``: file-name safe, and the id of the record. The same id with the
        same folder, submitted again, resumes what is there.
    spec
        What to run.
    folder
        Where everything about this job lives: ``spec.json``, ``record.json``, ``stderr.log``, and whatever the pilot
        keeps to resume (for real runs here, ``run/`` with checkpoints and the ledger). Made if missing. On several
        machines it lies on a file system that all of them see.
    """

    id: str
    spec: PilotSpec
    folder: Path

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise InvalidInput(
                f"job.id: found {self.id!r}; allowed are 1 to 128 ASCII letters, digits, '-' and '_'"
            )


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes
    ----------
    job
        As it was submitted.
    record
        Always there. ``failed`` and ``timeout`` are statuses with a reason; see `race.records.Health`.
    seconds
        Wall time from the start of the first attempt to the end of the last; 0 when it was finished before.
    attempts
        Times the pilot was started here; 0 when it was finished before.
    """

    job: Job
    record: PilotRecord
    seconds: float
    attempts: int

    @property
    def spent(self) -> int | float:
        """FLOPs to charge for this job: those of the record, and the work that crashes made it do again."""
        return self.record.spent


def first_target(job: Job) -> str:
    """The target whose curve is watched while the job runs; a spec without targets is watched for its reward."""
    return next(iter(job.spec.targets), "native")


@runtime_checkable
class Executor(Protocol):
    """Runs jobs, up to ``slots`` at a time. A context manager: leaving it stops everything it started.

    One thread uses an executor; it need not be thread-safe.

    Attributes
    ----------
    name
        As in `build_executor`: ``local``, ``command``, ``ray``, ``simulator``.
    slots
        How many jobs may run at once; submitting more is allowed, the rest wait in order.
    """

    name: str
    slots: int

    def __enter__(self) -> Self:
        """Get ready: connect, or start what is needed. Raises `CannotDo` when that fails."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, as `stop` does, and wait until it is gone."""
        ...

    def submit(self, job: Job) -> None:
        """Take a job. Returns at once.

        Raises
        ------
        InvalidInput
            A job of this id is running, or the folder holds another spec.
        CannotDo
            The folder cannot be written.
        """
        ...

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Outcomes since the last call, in the order they came in.

        Returns as soon as there is one, or with an empty list after ``timeout`` seconds (``None``: waits as long as a
        job runs; 0: only looks). With nothing running it returns at once. `KeyboardInterrupt` passes through and loses
        nothing: an outcome not returned is returned by the next call.
        """
        ...

    def running(self) -> list[Job]:
        """Jobs without an outcome yet, those waiting for a slot included, in the order of submission."""
        ...

    def progress(self, job: Job) -> float | None:
        """FLOPs the job has spent so far, evaluation excluded; ``None`` when nothing is known."""
        ...

    def curve(self, job: Job) -> Curve | None:
        """What it has measured so far of the spec's first target; ``None`` before the first point."""
        ...

    def stop(self, job: Job, *, reason: str) -> None:
        """Ask a job to checkpoint and end; it is killed after a grace period.

        Returns at once. The outcome comes through `wait`, unless the job finished first: a record flagged ``stopped``
        with the reason and the curve so far. Its status is ``timeout`` when there is a curve to learn from (a healthy
        run, cut short), else ``failed``. A job that is not running is left alone.
        """
        ...
