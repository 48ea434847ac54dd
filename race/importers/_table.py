"""Read a CSV file as a header and rows of text, trusting nothing; every refusal names file and line."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from race.errors import CannotDo, InvalidInput

MAX_BYTES = 64 * 2**20
MAX_ROWS = 100_000
# Python's float() also takes "nan", "1_0" and digits of other scripts, none of which belongs in a log.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FOREIGN_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Table:
    """A CSV file.

    Attributes
    ----------
    path, sha256
        The file, and what was in it.
    header
        Column names, stripped, distinct and not empty.
    rows
        ``(line, cells)``, with as many cells as the header has; blank lines are left out.
    """

    path: Path
    sha256: str
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def read_table(path: Path) -> Table:
    """Read ``path``; anything but a UTF-8 CSV file with a header and rows is one-line `InvalidInput`."""
    data = _read_bytes(path)
    text = _decode(path, data)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, tuple[str, ...]]] = []
    header: tuple[str, ...] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) and len(cells) <= 1:
                continue  # a blank line; a line of commas has cells, and is an error below
            if header is None:
                header = _header(path, reader.line_num, cells)
            elif len(cells) != len(header):
                raise InvalidInput(
                    f"{path}, line {reader.line_num}: found {len(cells)} cells; allowed are {len(header)}, one for "
                    f"each of {_shown(', '.join(header))}"
                )
            else:
                rows.append((reader.line_num, tuple(cell.strip() for cell in cells)))
                if len(rows) > MAX_ROWS:
                    raise InvalidInput(f"{path}: found more than {MAX_ROWS} rows; allowed are fewer: thin it")
    except csv.Error as error:
        raise InvalidInput(
            f"{path}, line {reader.line_num}: is not CSV ({error}); allowed is comma-separated text"
        ) from None
    if header is None:
        raise InvalidInput(f"{path}: is empty; allowed is a header line and at least one row")
    if not rows:
        raise InvalidInput(f"{path}: found a header and no rows; allowed is at least one row")
    return Table(path, hashlib.sha256(data).hexdigest(), header, tuple(rows))


def shown(cell: str) -> str:
    """A cell for a message: quoted, and cut when long."""
    return repr(_shown(cell))


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise InvalidInput(f"{path}: is a folder; allowed is a CSV file")
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such file; allowed is a CSV file")
    if not path.is_file():
        # A pipe or a device would block, or never end.
        raise InvalidInput(f"{path}: is not a regular file; allowed is a CSV file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CannotDo(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"{path}: is larger than {MAX_BYTES >> 20} MiB; allowed is a learning curve, not a raw log"
        )
    return data


def _decode(path: Path, data: bytes) -> str:
    if data.startswith(_FOREIGN_BOMS):
        raise InvalidInput(f"{path}: is UTF-16 or UTF-32 text; allowed is UTF-8 (save it as CSV UTF-8)")
    try:
        text = data.decode("utf-8-sig")  # spreadsheets write a byte order mark in front of UTF-8
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{path}, line {line}: is not UTF-8 text; allowed is a CSV file in UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(f"{path}, line {line}: holds binary data; allowed is a CSV file in UTF-8")
    return text


def _header(path: Path, line: int, cells: list[str]) -> tuple[str, ...]:
    header = tuple(cell.strip() for cell in cells)
    where = f"{path}, line {line}"
    if len(header) == 1:
        for mark, name in ((";", "semicolons"), ("\t", "tabs")):
            if mark in header[0]:
                raise InvalidInput(f"{where}: columns are separated by {name}; allowed are commas")
    if "" in header:
        raise InvalidInput(
            f"{where}, column {header.index('') + 1}: has no name; allowed is a name for each column"
        )
    for name in header:
        if header.count(name) > 1:
            raise InvalidInput(f"{where}: column {shown(name)} appears twice; allowed is each name once")
    return header
