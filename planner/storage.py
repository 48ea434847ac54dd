"""Where a study lives, and who may write to it when.

    kind        written as                      who may plan with it
    memory      nothing                         this planner
    sqlite      a path                          one process; `Storage.own` makes sure of it
    journal     a path in .journal or .log      several processes that see the file
    database    postgresql://user@host/name     several processes on several machines

Two promises hold for studies that several processes share. `Storage.exclusive` lets one of them at a time look at the
study and ask for a pilot, so that each proposal knows of those before it: an advisory lock of the database, or a lock
on a file beside the journal. Both end with the process that holds them, however it ends. And should such a lock ever
be lost unnoticed (a connection pooler, a network file system without locks), the order of trial numbers still keeps
the pilot budget, see `planner.memory`.

Of its own accord Optuna neither locks an SQLite study nor waits long for one: users report studies that several
processes wrote to as locked or corrupt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from optuna.storages import BaseStorage, JournalStorage, RDBStorage

from planner.journal import TolerantJournal
from planner.locks import AdvisoryLock, FileLock, first_line
from race.errors import CannotDo, InvalidInput, RaceError

Kind = Literal["memory", "sqlite", "journal", "database"]

JOURNALS = (".journal", ".log")
# A peer holds the lock for one proposal, less than a second. One that is stopped in the middle of it must not stop
# everybody else for good.
PATIENCE_S = 60.0
_POLL_S = 0.02


class Busy(CannotDo):
    """Another process is asking and does not come to an end; trying again later is all there is to do."""


class Storage:
    """A place for one study.

    Attributes
    ----------
    kind
        See the module's text.
    where
        For messages, without a password.
    optuna
        What Optuna is given; ``None`` is its storage in memory.
    """

    def __init__(self, kind: Kind, where: str, optuna: BaseStorage | None, *, path: Path | None = None) -> None:
        self.kind: Kind = kind
        self.where = where
        self.optuna = optuna
        self._path = path
        self._thread = threading.RLock()
        self._depth = 0
        self._owner: FileLock | None = None
        self._file: FileLock | None = None
        self._advisory: AdvisoryLock | None = None
        self._name = ""

    @property
    def shared(self) -> bool:
        """True when other processes may plan with the same study."""
        return self.kind in ("journal", "database")

    def own(self) -> None:
        """Make this process the only one that plans with an SQLite study, until `close`.

        Raises
        ------
        CannotDo
            Another process has it.
        InvalidInput
            A database of a kind that has no lock known here.
        """
        if self.kind == "database" and self._advisory is None:
            raise InvalidInput(
                f"storage: found {self.where}; allowed for a loop is a path (SQLite, or a journal file in .journal) or "
                "postgresql://"
            )
        if self.kind != "sqlite" or self._path is None or self._owner is not None:
            return
        lock = FileLock(self._path.with_name(self._path.name + ".owner"))
        if not lock.acquire():
            raise CannotDo(
                f"storage: {self._path} is in use by {lock.holder()}; one process owns an SQLite study: wait for it, "
                "or share a study through postgresql:// or a journal file (--storage NAME.journal)"
            )
        self._owner = lock

    def bind(self, study: str) -> None:
        """Say which study `exclusive` is about."""
        self._name = study

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be the only process that changes what pilots there are. Reentrant.

        Raises
        ------
        Busy
            Another process has not let go for `PATIENCE_S` seconds.
        CannotDo
            The database is out of reach.
        """
        with self._thread:
            if self._depth == 0:
                self._take()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._free()

    def close(self) -> None:
        """Let go of everything."""
        if self._owner is not None:
            self._owner.release()
            self._owner = None
        if self._advisory is not None:
            self._advisory.close()

    def _take(self) -> None:
        if self.kind == "journal" and self._path is not None:
            if self._file is None:
                self._file = FileLock(self._path.with_name(self._path.name + ".asking"))
            self._wait(self._file.acquire)
        elif self._advisory is not None:
            advisory = self._advisory
            self._wait(lambda: advisory.acquire(self._name))

    def _wait(self, acquire: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not acquire():
            if time.monotonic() > until:
                raise Busy(
                    f"storage: another process has been asking {self.where} for {PATIENCE_S:.0f} s; stop it if it hangs"
                )
            time.sleep(_POLL_S)

    def _free(self) -> None:
        if self._file is not None:
            self._file.release()
        elif self._advisory is not None:
            self._advisory.release()


def open_storage(storage: str | Path | BaseStorage | None) -> Storage:
    """Open a storage given as people write it.

    Raises
    ------
    CannotDo
        It cannot be opened: no such folder, not a database, a server out of reach, a missing driver.
    """
    if storage is None:
        return Storage("memory", "memory", None)
    if isinstance(storage, BaseStorage):
        return Storage("memory", type(storage).__name__, storage)
    text = str(storage)
    if "://" in text and not text.startswith("sqlite:///"):
        return _database(text)
    path = Path(text.removeprefix("sqlite:///"))
    if path.suffix in JOURNALS:
        with _said(text):
            return Storage("journal", str(path), JournalStorage(TolerantJournal(path)), path=path)
    with _said(text):
        # Half a minute for a dashboard that reads at the same moment.
        engine = {"connect_args": {"timeout": 30}}
        return Storage("sqlite", str(path), RDBStorage(f"sqlite:///{path}", engine_kwargs=engine), path=path)


def _database(text: str) -> Storage:
    from sqlalchemy.engine import make_url

    with _said(_without_password(text)):
        url = make_url(text.replace("postgres://", "postgresql://", 1) if text.startswith("postgres://") else text)
        where = url.render_as_string(hide_password=True)
    with _said(where):
        if url.get_backend_name() != "postgresql":
            return Storage("database", where, RDBStorage(text))
        if url.drivername == "postgresql":
            url = url.set(drivername=f"postgresql+{_driver()}")
        storage = Storage("database", where, None)
        storage._advisory = AdvisoryLock(url)
        # Several processes that start together would create the same tables at once.
        with storage.exclusive():
            storage.optuna = RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs={"pool_pre_ping": True, "pool_size": 2, "connect_args": {"connect_timeout": 10}},
            )
        return storage


def _driver() -> str:
    from importlib.util import find_spec

    for driver in ("psycopg", "psycopg2"):
        if find_spec(driver) is not None:
            return driver
    raise ImportError("PostgreSQL needs the extra 'postgres': pip install 'race-rl[postgres]'")


def _without_password(text: str) -> str:
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


@contextmanager
def _said(where: str) -> Iterator[None]:
    """Whatever goes wrong while opening becomes one line."""
    try:
        yield
    except RaceError:
        raise
    except storage_errors() as error:
        raise CannotDo(f"storage: {where} cannot be opened: {first_line(error)}") from error


def storage_errors() -> tuple[type[Exception], ...]:
    """What a storage raises when it is out of reach, unreadable or its driver is missing."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError  # of Optuna's own dependencies, and slow to import

    # ValueError is Optuna's for a URL it cannot read, ImportError for a database driver that is not installed.
    return OSError, ImportError, ValueError, SQLAlchemyError, StorageInternalError
