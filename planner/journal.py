"""A journal file that a killed process, or a network file system, cannot spoil for everybody else.

Optuna's own file backend raises on a line that is not JSON, at every start from then on. Here

- a line without its end is not read yet: it is being written, or its writer is dead;
- whoever appends next ends such a line first, so that it stands alone;
- a whole line that is not JSON is skipped, by every process alike, and counted in `TolerantJournal.skipped`.

The format and the append lock are Optuna's, so that its dashboard and command line read the same file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend, JournalFileSymlinkLock

# An append takes milliseconds; after this long its lock belongs to a dead process.
GRACE_S = 10


class TolerantJournal(BaseJournalBackend):
    """Optuna's journal file, read tolerantly."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = JournalFileSymlinkLock(str(path), grace_period=GRACE_S)
        # Where each readable entry starts, and where reading goes on.
        self._starts: list[int] = []
        self._end = 0
        self.skipped = 0
        path.open("ab").close()

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Entries from number ``log_number_from`` on; unreadable lines have no number."""
        entries = []
        start = self._starts[log_number_from] if log_number_from < len(self._starts) else self._end
        with self._path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                entry = _entry(line)
                if start >= self._end:
                    self._end = start + len(line)
                    if entry is None:
                        self.skipped += bool(line.strip())
                    else:
                        self._starts.append(start)
                start += len(line)
                if entry is not None:
                    entries.append(entry)
        return entries

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries and flush them to the disk."""
        data = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        self._lock.acquire()
        try:
            with self._path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                if size:
                    file.seek(size - 1)
                    if file.read(1) != b"\n":
                        data = b"\n" + data
                file.seek(0, os.SEEK_END)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        finally:
            self._lock.release()


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "op_code" in entry else None
