"""An append-only folder of records that several processes may write to at once.

Layout
    <store>/race-store.json       says that this folder is a store, and of which schema
    <store>/records/<id>.json     one record each, never changed once there

There is no index and no lock: a record is written to a ``.part`` file, flushed to disk and then hard-linked to
its final name, which either appears whole or not at all and is never overwritten. A process killed at any
moment leaves at most a ``.part`` file behind. Reading trusts nothing: a file that is not a readable record of
this schema is reported by name with the reason, and the rest is still loaded.

What the store does not know: what a record means, whether two records contradict each other, and how to delete.
"""

from __future__ import annotations

import json
import os
import stat
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from race.records import PilotRecord

STORE_SCHEMA = "race.store/1"
MARKER = "race-store.json"
RECORDS = "records"

# A record with 10,000 points per target is about 1 MB; anything near this limit is not a record.
MAX_RECORD_BYTES = 64 * 2**20
# A ``.part`` file lives for the milliseconds of one write and flush; an older one belongs to a dead writer.
UNFINISHED_AFTER_S = 10.0


@dataclass(frozen=True)
class Problem:
    """A file that was skipped, and why."""

    file: str
    reason: str

    def __post_init__(self) -> None:
        # File names are bytes: newlines and undecodable ones must not break the message they appear in.
        if not self.file.isprintable():
            object.__setattr__(self, "file", ascii(self.file))

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True)
class LoadedRecords:
    """What a store holds.

    Attributes
    ----------
    records
        Every readable record, ordered by id: the same on every machine, whoever wrote first.
    problems
        Every file that was skipped, ordered by name.
    where
        The store's path, for messages.
    """

    records: tuple[PilotRecord, ...]
    problems: tuple[Problem, ...] = ()
    where: str = ""

    def __len__(self) -> int:
        return len(self.records)

    def require(self) -> tuple[PilotRecord, ...]:
        """Return the records; `CannotDo` when there is none."""
        if self.records:
            return self.records
        skipped = ""
        if self.problems:
            skipped = f" ({len(self.problems)} skipped; first {self.problems[0]})"
        raise CannotDo(
            f"store: {self.where} holds no readable record{skipped}; add some with race import, race simulate "
            "or race run"
        )


class Store:
    """A folder of `PilotRecord` files.

    Parameters
    ----------
    path
        The folder. Nothing is touched until the first `add` or `records`.
    create
        Let the first `add` make the folder. Reading never creates anything.

    Raises
    ------
    InvalidInput
        On use: the path is a file, or a folder with something else in it, or a store of another schema.
    CannotDo
        On use: there is no store there, it cannot be read, or the disk refuses a write.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        self.create = create
        # Records never change, so a file that looks the same need not be parsed again: a loop that refits
        # after every pilot reads only what is new.
        self._parsed: dict[str, tuple[tuple[int, int, int], PilotRecord | Problem]] = {}

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def add(self, record: PilotRecord) -> Path:
        """Write one record and return its file.

        The record is on disk, whole, when this returns.

        Raises
        ------
        InvalidInput
            Its id is already there, or it holds something that JSON cannot carry.
        CannotDo
            The folder cannot be written, or the disk is full; the store is then as it was.
        """
        return self.add_all([record])[0]

    def add_all(self, records: Iterable[PilotRecord]) -> list[Path]:
        """Write several records; all are checked before the first is written.

        Only the disk can stop this half-way; the error then says how many were written.
        """
        batch = [(record.id, _encode(record)) for record in records]
        seen: set[str] = set()
        for name, _ in batch:
            if name in seen:
                raise InvalidInput(
                    f"id: found {name!r} twice among the records to add; allowed is each id once"
                )
            seen.add(name)
        self._open_for_writing()
        folder = self.path / RECORDS
        for name, _ in batch:
            if os.path.lexists(folder / f"{name}.json"):
                raise _duplicate(name, self.path)
        written: list[Path] = []
        for name, data in batch:
            target = folder / f"{name}.json"
            try:
                _publish(target, data)
            except FileExistsError:
                raise _duplicate(name, self.path) from None
            except OSError as error:
                done = f"; {len(written)} of {len(batch)} records were written" if len(batch) > 1 else ""
                raise _cannot_write(target, error, done) from error
            written.append(target)
        _flush_folder(folder)
        return written

    def __contains__(self, record_id: object) -> bool:
        return isinstance(record_id, str) and os.path.lexists(self.path / RECORDS / f"{record_id}.json")

    def records(self) -> LoadedRecords:
        """Read every record; files that are not one are named in ``problems``, never fatal.

        Raises
        ------
        InvalidInput
            The path is not a store, or a store of another schema.
        CannotDo
            There is nothing at the path, or the folder cannot be listed.
        """
        self._check_marker()
        folder = self.path / RECORDS
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            found = []  # the marker is written first: a store nobody has added to yet
        except OSError as error:
            raise CannotDo(f"store: cannot list {folder}: {error.strerror}") from error
        records: list[PilotRecord] = []
        problems: list[Problem] = []
        for entry in found:
            result = self._load(entry)
            if isinstance(result, PilotRecord):
                records.append(result)
            elif result is not None:
                problems.append(result)
        # By id, not by file name: ".json" sorts after "-" and would put "a-b" before "a".
        records.sort(key=lambda record: record.id)
        return LoadedRecords(tuple(records), tuple(problems), str(self.path))

    def _load(self, entry: os.DirEntry[str]) -> PilotRecord | Problem | None:
        name = entry.name
        try:
            info = entry.stat(follow_symlinks=False)
            if name.endswith(".part"):
                return _unfinished(name, info)
            if not stat.S_ISREG(info.st_mode):
                return Problem(name, "is not a regular file")
            if not name.endswith(".json"):
                return Problem(name, "is not a record: its name does not end in .json")
            if info.st_size > MAX_RECORD_BYTES:
                return Problem(name, f"is {info.st_size} bytes; a record is at most {MAX_RECORD_BYTES}")
            key = (info.st_mtime_ns, info.st_size, info.st_ino)
            known = self._parsed.get(name)
            if known is None or known[0] != key:
                known = (key, _decode(name, Path(entry.path).read_bytes()))
                self._parsed[name] = known
        except FileNotFoundError:
            return None  # a writer finished and removed its .part file while we were listing
        except OSError as error:
            return Problem(name, f"cannot be read: {error.strerror}")
        return known[1]

    def _check_marker(self) -> None:
        """Raise unless the path is a store of this schema."""
        marker = self.path / MARKER
        try:
            with marker.open("rb") as file:
                data = json.loads(file.read(4096))
        except FileNotFoundError:
            raise self._no_store() from None
        except NotADirectoryError:
            raise InvalidInput(f"store: {self.path} is a file; allowed is a folder") from None
        except OSError as error:
            raise CannotDo(f"store: cannot read {marker}: {error.strerror}") from error
        except (ValueError, RecursionError):
            raise InvalidInput(
                f"store: {marker} is not readable JSON; allowed is the marker of a store with schema "
                f"{STORE_SCHEMA!r}"
            ) from None
        found = data.get("schema") if isinstance(data, dict) else None
        if found != STORE_SCHEMA:
            raise InvalidInput(
                f"store: {self.path} has schema {found!r}; allowed is {STORE_SCHEMA!r}, which this version "
                "reads and writes"
            )

    def _no_store(self) -> Exception:
        try:
            inside = [entry.name for entry in self.path.iterdir() if entry.suffix != ".part"]
        except FileNotFoundError:
            return CannotDo(
                f"store: there is nothing at {self.path}; make one with race import, race simulate or race run"
            )
        except NotADirectoryError:
            return InvalidInput(f"store: {self.path} is a file; allowed is a folder")
        except OSError as error:
            return CannotDo(f"store: cannot list {self.path}: {error.strerror}")
        if inside:
            return InvalidInput(
                f"store: {self.path} holds other files ({min(inside)}, ...) and no {MARKER}; allowed is a store, "
                "or a new or empty folder"
            )
        return CannotDo(f"store: {self.path} is an empty folder, with no record in it yet")

    def _open_for_writing(self) -> None:
        """Make the folder and its marker if need be and allowed; several processes may do so at once."""
        if self.create and not os.path.lexists(self.path / MARKER):
            problem = self._no_store()
            if isinstance(problem, InvalidInput):
                raise problem
            marker = {"schema": STORE_SCHEMA, "what": "records of RACE, one file each; see race.store"}
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                _publish(self.path / MARKER, json.dumps(marker, indent=1).encode())
                _flush_folder(self.path)
            except FileExistsError:
                pass  # another process was first; its marker is checked below like any other
            except OSError as error:
                raise _cannot_write(self.path / MARKER, error) from error
        self._check_marker()
        try:
            (self.path / RECORDS).mkdir(exist_ok=True)
        except OSError as error:
            raise _cannot_write(self.path / RECORDS, error) from error


def _publish(target: Path, data: bytes) -> None:
    """Write ``data`` to a new file that appears at ``target`` whole or not at all.

    Raises `FileExistsError` when there is something at ``target``: a hard link, unlike a rename, never
    replaces.
    """
    part = target.with_name(f".{uuid.uuid4().hex}.{target.name[:100]}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.link(part, target)
    finally:
        part.unlink()


def _flush_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut; once for a whole batch, since a flush costs milliseconds."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    finally:
        os.close(handle)


def _encode(record: PilotRecord) -> bytes:
    """Serialise, and prove that what is written will be read back as it is."""
    try:
        text = json.dumps(record.to_dict(), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"record {record.id}: {error}; allowed are numbers (no NaN), text, lists and objects"
        ) from None
    data = text.encode()
    if len(data) > MAX_RECORD_BYTES:
        raise InvalidInput(
            f"record {record.id}: is {len(data)} bytes; allowed are at most {MAX_RECORD_BYTES}: thin its curves"
        )
    read = _decode(f"{record.id}.json", data)
    if isinstance(read, Problem):
        raise InvalidInput(f"record {record.id}: {read.reason}")
    return data


def _decode(name: str, data: bytes) -> PilotRecord | Problem:
    if not data:
        return Problem(name, "is empty")
    try:
        parsed = json.loads(data, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return Problem(name, "is not UTF-8 text")
    except json.JSONDecodeError as error:
        return Problem(name, f"is not whole JSON: {error.msg} at line {error.lineno} column {error.colno}")
    except (ValueError, RecursionError) as error:
        return Problem(name, f"is not JSON that a record may hold: {error}")
    try:
        record = PilotRecord.from_dict(parsed)
    except InvalidInput as error:
        return Problem(name, str(error))
    if f"{record.id}.json" != name:
        return Problem(name, f"holds the record {record.id!r}: a renamed or copied file")
    return record


def _no_constant(name: str) -> Any:
    raise ValueError(f"found {name}")


def _unfinished(name: str, info: os.stat_result) -> Problem | None:
    if time.time() - info.st_mtime < UNFINISHED_AFTER_S:
        return None
    return Problem(name, "is an unfinished write, left by a process that died; nothing refers to it")


def _duplicate(record_id: str, path: Path) -> InvalidInput:
    return InvalidInput(
        f"id: found {record_id!r}, which is already in {path}; allowed is a new id, since a store only grows"
    )


def _cannot_write(path: Path, error: OSError, done: str = "") -> CannotDo:
    return CannotDo(f"store: cannot write {path}: {error.strerror or error}{done}")
