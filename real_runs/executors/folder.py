"""A job's folder: what was asked for, how it ended, and whether that was the end.

spec.json        what to run; another spec in the same folder is refused
record.json      the newest outcome, written when it is known
stdout.log       of the newest attempt; may carry the record
stderr.log       of all attempts
progress.jsonl   what a foreign runner tells while it runs (`real_runs.executors.readings`)
result.json      where a runner leaves its record, if not on stdout
lock             held by whoever runs here
run/             a real run of ours: checkpoints, ledger, adapter (`real_runs.folder`)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from race.records import PilotRecord, PilotSpec
from real_runs.executors._base import Job

# How a run may end so that there is nothing left to do. The others are run again when they are submitted again.
FINAL = ("ok", "collapsed", "diverged")


@dataclass(frozen=True)
class JobFolder:
    """Paths in a job's folder, all absolute."""

    path: Path

    @classmethod
    def of(cls, job: Job) -> JobFolder:
        """The folder of a job."""
        return cls(job.folder.absolute())

    @property
    def spec(self) -> Path:
        """What to run."""
        return self.path / "spec.json"

    @property
    def record(self) -> Path:
        """The newest outcome."""
        return self.path / "record.json"

    @property
    def result(self) -> Path:
        """Where a runner may leave its record."""
        return self.path / "result.json"

    @property
    def progress(self) -> Path:
        """What a runner tells while it runs."""
        return self.path / "progress.jsonl"

    @property
    def stdout(self) -> Path:
        """Of the newest attempt."""
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        """Of all attempts."""
        return self.path / "stderr.log"

    @property
    def lock(self) -> Path:
        """Held while a pilot runs here."""
        return self.path / "lock"

    @property
    def run(self) -> Path:
        """Of a real run of ours."""
        return self.path / "run"

    def prepare(self, job: Job, *, ours: bool = False) -> PilotRecord | None:
        """Make the folder and write the spec; returns the record if the job was finished before.

        ``ours`` makes ``run/`` too, which says that there will be a ledger.

        Raises
        ------
        InvalidInput
            The folder is another spec's.
        CannotDo
            It cannot be written or read.
        """
        try:
            (self.run if ours else self.path).mkdir(parents=True, exist_ok=True)
            if self.spec.exists():
                self._check(job)
            else:
                write_json(self.spec, job.spec.to_dict())
            return self._finished(job)
        except OSError as error:
            raise CannotDo(f"job {job.id}: cannot use {self.path}: {error.strerror or error}") from error

    def keep(self, record: PilotRecord) -> None:
        """Write down how the job ended.

        Raises
        ------
        CannotDo
            The disk is full or the folder is gone.
        """
        try:
            write_json(self.record, record.to_dict())
        except OSError as error:
            raise CannotDo(
                f"job {record.id}: cannot write {self.record}: {error.strerror or error}"
            ) from error

    def _check(self, job: Job) -> None:
        try:
            found = PilotSpec.from_dict(json.loads(self.spec.read_bytes()), where=str(self.spec))
        except ValueError as error:
            raise CannotDo(
                f"job {job.id}: cannot read {self.spec} ({error}); use another folder, or delete this one"
            ) from error
        different = difference(found.to_dict(), job.spec.to_dict(), "spec")
        if different:
            raise InvalidInput(
                f"job {job.id}: {self.path} holds another spec: {different}; use another folder"
            )

    def _finished(self, job: Job) -> PilotRecord | None:
        if not self.record.exists():
            return None
        try:
            record = PilotRecord.from_dict(json.loads(self.record.read_bytes()), where=str(self.record))
        except ValueError as error:
            raise CannotDo(
                f"job {job.id}: cannot read {self.record} ({error}); delete it to run the job again"
            ) from error
        return record if record.id == job.id and record.health.status in FINAL else None


def difference(found: Any, wanted: Any, where: str) -> str | None:
    """Where two JSON values differ first, in words; ``None`` when they are equal."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted(set(found) | set(wanted)):
            inside = difference(found.get(key), wanted.get(key), f"{where}.{key}")
            if inside:
                return inside
        return None
    return None if found == wanted else f"{where} is {found!r}, asked for was {wanted!r}"


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file that is there whole or not at all.

    (`real_runs.checkpoint.write_atomically` would import torch, which an executor's own process has no use for.)
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with draft.open("wb") as file:
        file.write(json.dumps(data, indent=1, allow_nan=False).encode())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
