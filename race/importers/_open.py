"""Open a log and find out what kind of file it is, by content and not by name. Nothing here trusts the file.

Files that are read whole (JSON objects, CSV) are bounded; line-wise ones are streamed with bounded lines, so a
2 GB console log costs no more memory than its metrics.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from race.errors import CannotDo, InvalidInput

Kind = Literal["json", "json lines", "csv", "events", "text"]

MAX_WHOLE = 256 * 2**20
MAX_LINE = 16 * 2**20
_HEAD = 2**16
_PACKED = (
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"7z\xbc\xaf", "a 7z archive"),
)
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
WHAT = (
    "a trainer_state.json, a JSON-lines or console log, a Weights & Biases export in CSV or JSON, or "
    "TensorBoard events"
)


def find_log(path: Path) -> Path:
    """The log that ``path`` names: itself, or the one log in a run's or checkpoint's folder.

    Raises
    ------
    InvalidInput
        Nothing there, not a regular file, or a folder without exactly one kind of log.
    """
    if path.is_dir():
        return _in_folder(path)
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such file; allowed is {WHAT}")
    if not path.is_file():
        # A pipe or a device would block, or never end.
        raise InvalidInput(f"{path}: is not a regular file; allowed is {WHAT}")
    return path


def _in_folder(folder: Path) -> Path:
    for name in ("trainer_state.json", "metrics.jsonl"):
        if (folder / name).is_file():
            return folder / name
    checkpoints = [
        (int(match[1]), p)
        for p in folder.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", p.name)) and (p / "trainer_state.json").is_file()
    ]
    if checkpoints:
        return max(checkpoints)[1] / "trainer_state.json"  # the newest holds the history of all
    events = sorted(p for p in folder.glob("*tfevents*") if p.is_file())
    if events:
        return events[0] if len(events) == 1 else folder
    raise InvalidInput(
        f"{folder}: is a folder without a log; allowed is one that holds trainer_state.json, metrics.jsonl, "
        f"checkpoint-N or TensorBoard events, or the log itself: {WHAT}"
    )


def head_of(path: Path) -> bytes:
    """The first 64 KiB."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise CannotDo(f"{path}: cannot be read: {error.strerror}") from None


def kind_of(path: Path) -> Kind:
    """What kind of file this is.

    Raises
    ------
    InvalidInput
        Empty, packed (whatever it would unpack to is never touched), a pickle, or another binary file.
    """
    if path.is_dir():
        return "events"
    head = head_of(path)
    if not head.strip():
        raise InvalidInput(f"{path}: is empty; allowed is {WHAT}")
    for magic, what in _PACKED:
        if head.startswith(magic):
            raise InvalidInput(f"{path}: is {what}, which is not opened; unpack it and name the log inside")
    if head.startswith(_PICKLES):
        raise InvalidInput(
            f"{path}: is a pickle, which could run anything and is never opened; allowed is {WHAT}"
        )
    if b"brain.Event:" in head[:64]:
        return "events"
    if head.startswith(_BOMS):
        raise InvalidInput(f"{path}: is UTF-16 or UTF-32 text; allowed is UTF-8")
    if b"\0" in head:
        raise InvalidInput(f"{path}: is a binary file of an unknown kind; allowed is {WHAT}")
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff")
    stripped = text.lstrip()
    if stripped.startswith("["):
        return "json" if re.match(r"\[\s*(\{|\]|$)", stripped) else "text"
    if stripped.startswith("{"):
        return _kind_of_object(stripped)
    return "csv" if _is_csv(stripped) else "text"


def _kind_of_object(text: str) -> Kind:
    """One JSON object, JSON lines, or the Python dicts that TRL prints."""
    first, newline, rest = text.partition("\n")
    if re.match(r"\{\s*'", first):
        return "text"
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return "json"  # an object over several lines, or a line longer than what was read
    return "json lines" if newline and rest.lstrip().startswith("{") else "json"


def _is_csv(text: str) -> bool:
    cells = text.partition("\n")[0].rstrip("\r").split(",")
    return any(
        cell.strip(' "').lower() in ("step", "_step", "global_step", "train/global_step") for cell in cells
    )


def read_whole(path: Path) -> tuple[bytes, str]:
    """All bytes of a file of bounded size, and their sha256."""
    size = path.stat().st_size
    if size > MAX_WHOLE:
        raise InvalidInput(
            f"{path}: has {size / 2**20:,.0f} MiB; allowed are {MAX_WHOLE >> 20} MiB for a file that is read whole: "
            "thin it, or export JSON lines, which are streamed"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CannotDo(f"{path}: cannot be read: {error.strerror}") from None
    return data, hashlib.sha256(data).hexdigest()


class Lines:
    """Iterates over ``(number, text)`` of a file's lines in bounded memory; afterwards ``sha256`` is set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256 = ""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        digest = hashlib.sha256()
        number = 0
        try:
            with self.path.open("rb") as file:
                while line := file.readline(MAX_LINE):
                    number += 1
                    digest.update(line)
                    if len(line) == MAX_LINE and not line.endswith(b"\n"):
                        raise InvalidInput(
                            f"{self.path}, line {number}: is longer than {MAX_LINE >> 20} MiB; allowed is {WHAT}"
                        )
                    # Console logs carry colours and whatever a model has printed; neither is a metric.
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
        except OSError as error:
            raise CannotDo(f"{self.path}: cannot be read: {error.strerror}") from None
        self.sha256 = digest.hexdigest()
