"""A loop's folder.

study.db         the study, unless --storage says otherwise
store/           one record per pilot, unless --store says otherwise
pilots/<job>/    where a pilot runs and resumes (`real_runs.executors`)
history.jsonl    what was believed after each pilot: for reports
decision.json    the newest decision: what ``race loop --json`` printed
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from race.errors import CannotDo


class LoopFolder:
    """Paths of a loop, and the files a report is made from."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.study = self.path / "study.db"
        self.store = self.path / "store"
        self.pilots = self.path / "pilots"
        self.history = self.path / "history.jsonl"
        self.decision = self.path / "decision.json"

    def prepare(self) -> None:
        """Make the folder.

        Raises
        ------
        CannotDo
            It cannot be written.
        """
        try:
            self.pilots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotDo(f"out: cannot write {self.path}: {error.strerror or error}") from error

    def note(self, line: Mapping[str, Any]) -> None:
        """Add a line to the history. Several loops may do so at once; a killed one leaves a torn line at most."""
        data = json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n"
        try:
            handle = os.open(self.history, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    data = "\n" + data
                os.write(handle, data.encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise CannotDo(f"out: cannot write {self.history}: {error.strerror or error}") from error

    def lines(self, study: str) -> list[dict[str, Any]]:
        """One study's history in order of pilots finished, each count once; unreadable lines are left out."""
        try:
            text = self.history.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CannotDo(f"out: cannot read {self.history}: {error.strerror or error}") from error
        found: dict[int, dict[str, Any]] = {}
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                if entry["study"] == study:
                    found[int(entry["finished"])] = entry
            except (ValueError, TypeError, KeyError):
                continue  # torn by a kill; the study has it all, this file is for plots
        return [found[count] for count in sorted(found)]

    def keep(self, decision: Mapping[str, Any]) -> None:
        """Write the decision, whole or not at all."""
        draft = self.decision.with_name(f".{self.decision.name}.{os.getpid()}.tmp")
        try:
            draft.write_text(json.dumps(decision, indent=1, allow_nan=False), encoding="utf-8")
            draft.replace(self.decision)
        except OSError as error:
            raise CannotDo(f"out: cannot write {self.decision}: {error.strerror or error}") from error
