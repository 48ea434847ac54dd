"""Locks between processes that end with their process, however it ends: of a file, and of a PostgreSQL database."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from pathlib import Path
from typing import IO, Any

from race.errors import CannotDo

# The database notices that a machine is gone after about a minute, and then frees its lock.
_KEEPALIVES = ("tcp_keepalives_idle = 30", "tcp_keepalives_interval = 10", "tcp_keepalives_count = 3")

# POSIX locks are per process: a second open file of the same process would be let in, and closing it would free the
# lock. So every locked path is also remembered here.
_HELD: set[str] = set()


class FileLock:
    """A lock on a file of its own, freed by the kernel when the process ends; not inherited by children."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Take the lock if it is free.

        Raises
        ------
        CannotDo
            The file cannot be written, or its file system has no locks.
        """
        key = str(self.path.resolve())
        if key in _HELD:
            return False
        try:
            file = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise CannotDo(f"storage: cannot write {self.path}: {error.strerror or error}") from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.close()
            return False
        except OSError as error:
            file.close()
            raise CannotDo(
                f"storage: {self.path} cannot be locked ({error.strerror or error}); its file system has no locks, so "
                "use a local disk or postgresql://"
            ) from error
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        self._file = file
        _HELD.add(key)
        return True

    def release(self) -> None:
        """Free the lock; nothing happens when it is not held."""
        if self._file is not None:
            _HELD.discard(str(self.path.resolve()))
            self._file.close()
            self._file = None

    def holder(self) -> str:
        """Who holds it, in words."""
        try:
            return self.path.read_text(encoding="utf-8").strip() or "another process"
        except OSError:
            return "another process"


class AdvisoryLock:
    """A PostgreSQL advisory lock of one session on a connection of its own."""

    def __init__(self, url: Any) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        self._engine = create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 10}
        )
        self._where = url.render_as_string(hide_password=True)
        self._connection: Any = None
        self._key: tuple[int, int] = (0, 0)

    def acquire(self, name: str) -> bool:
        """Take the lock of study ``name`` if it is free; `CannotDo` when the database does not answer."""
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError

        digest = hashlib.sha256(f"race study {name}".encode()).digest()
        # Two signed 32-bit keys, as pg_try_advisory_lock(int, int) takes them.
        self._key = int.from_bytes(digest[:4], signed=True), int.from_bytes(digest[4:8], signed=True)
        for fresh in (False, True):
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                    for setting in _KEEPALIVES:
                        self._connection.execute(text(f"SET {setting}"))
                found = self._connection.execute(
                    text("SELECT pg_try_advisory_lock(:a, :b)"), {"a": self._key[0], "b": self._key[1]}
                )
                return bool(found.scalar())
            except DBAPIError as error:
                # The server may have been restarted since the last time: once more, on a new connection.
                self.close()
                if fresh:
                    raise CannotDo(f"storage: {self._where} does not answer: {first_line(error)}") from error
        return False

    def release(self) -> None:
        """Free the lock."""
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError

        if self._connection is None:
            return
        try:
            self._connection.execute(
                text("SELECT pg_advisory_unlock(:a, :b)"), {"a": self._key[0], "b": self._key[1]}
            )
        except DBAPIError:
            self.close()  # the lock went with the connection

    def close(self) -> None:
        """Close the connection, and with it the lock."""
        from sqlalchemy.exc import DBAPIError

        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except DBAPIError:
                return  # it was gone already


def first_line(error: BaseException) -> str:
    """What an error says first; Optuna's own wrapping is looked through."""
    inner = error
    if type(error).__module__.startswith("optuna") and error.__cause__ is not None:
        inner = error.__cause__
    inner = getattr(inner, "orig", None) or inner  # the driver's own words, without SQLAlchemy's around them
    lines = str(inner).strip().splitlines() or [type(inner).__name__]
    return lines[0]
