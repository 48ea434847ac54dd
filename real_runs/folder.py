"""A run's folder: who works in it, and what it was started for.

    run.json       recipe, options, base model, task, reward: written once, compared on every resume
    lock           held by the one process that works here
    ledger.jsonl   checkpoints/   adapter/   record.json
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from real_runs.checkpoint import write_atomically

SCHEMA = "race.run/1"


class RunFolder:
    """Paths of one run, and its identity."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = path / "run.json"
        self.ledger = path / "ledger.jsonl"
        self.checkpoints = path / "checkpoints"
        self.adapter = path / "adapter"
        self.record = path / "record.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process.

        Raises
        ------
        CannotDo
            It cannot be written, or another process holds it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("w")
        except OSError as error:
            raise CannotDo(f"out: cannot write {self.path}: {error.strerror or error}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CannotDo(
                    f"out: another process is running in {self.path}; wait for it or use another folder"
                ) from None
            yield

    def identify(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``run.json``, or check that the one here says the same; returns what is in it.

        Raises
        ------
        InvalidInput
            The folder holds a run of something else; the first difference is named.
        CannotDo
            The folder holds files but no readable ``run.json``: it is not restarted from the beginning.
        """
        wanted = json.loads(json.dumps({"schema": SCHEMA, **identity}))
        if not self.manifest.exists():
            others = sorted(p.name for p in self.path.iterdir() if p.name not in ("lock", ".run.json.tmp"))
            if others:
                raise CannotDo(
                    f"out: {self.path} holds {others[0]} but no run.json, so it is not a run that can be resumed; "
                    "use an empty folder"
                )
            try:
                write_atomically(self.manifest, json.dumps(wanted, indent=1).encode())
            except OSError as error:
                raise CannotDo(f"out: cannot write {self.manifest}: {error.strerror or error}") from error
            return dict(wanted)
        try:
            found = json.loads(self.manifest.read_bytes())
        except (OSError, ValueError) as error:
            raise CannotDo(f"out: cannot read {self.manifest} ({error}); not restarted from the beginning") from error
        for key in wanted:
            if key == "id":
                continue
            difference = _difference(key, found.get(key), wanted[key])
            if difference:
                raise InvalidInput(
                    f"{difference}; resuming needs the recipe the run was started with: use it, or another folder"
                )
        return dict(found)


def _difference(where: str, found: Any, wanted: Any) -> str | None:
    """Where two JSON values differ, in words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted(set(found) | set(wanted)):
            inside = _difference(f"{where}.{key}", found.get(key), wanted.get(key))
            if inside:
                return inside
        return None
    return None if found == wanted else f"{where}: found {wanted!r}, the folder's run has {found!r}"
