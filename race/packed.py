"""Records of a finished study in one small file, and the studies that ship with the package.

    line 1     {"schema": "race.pack/1", "name", "records", "flops", "rates", "sha256"}
    line 2...  one record each, as a store keeps it, ordered by id

The lines are gzipped; ``zcat FILE | jq`` reads them. The checksum covers all lines, whatever zlib compressed them, and
the sums over all records by phase must come out again. The same records give the same bytes.

What is left out, because it says something about a machine and nothing about the run: seconds, host names, and the
folders of paths. Everything else is kept to the last digit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from race.allocation import Allocation
from race.checks import check_object, check_whole
from race.errors import CannotDo, InvalidInput
from race.records import PilotRecord

PACK_SCHEMA = "race.pack/1"
SUFFIX = ".jsonl.gz"
# Unpacked: 400 records are 2 MB. A small file must not be able to ask for more memory than this.
MAX_BYTES = 2**28

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MACHINE = ("host", "seconds")  # of provenance["executor"]
_FOLDER = re.compile(r"(?<![\w.:/~-])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\:'\"]+[/\\])+")


@dataclass(frozen=True)
class Pack:
    """A packed study.

    Attributes
    ----------
    name
        Of the study.
    records
        Ordered by id.
    rates
        Learning rates the study had tuned, as its ``rates.json`` says them; ``None`` without tuning.
    sha256
        Of the content.
    path
        Where it was read from.
    """

    name: str
    records: tuple[PilotRecord, ...]
    rates: Mapping[str, Any] | None
    sha256: str
    path: Path

    @property
    def fitted(self) -> Path:
        """Folder beside the file where a surrogate fitted to it may lie."""
        return self.path.with_name(self.path.name.removesuffix(SUFFIX) + ".surrogate")


def portable(record: PilotRecord) -> PilotRecord:
    """``record`` without what says something about the machine only; see the module's text."""
    about = dict(record.provenance)
    if isinstance(about.get("executor"), Mapping):
        about["executor"] = {k: v for k, v in about["executor"].items() if k not in _MACHINE}
    health = replace(record.health, reason=_without_folders(record.health.reason))
    return replace(record, seconds={}, health=health, provenance=_without_folders(about))


def _without_folders(value: Any) -> Any:
    if isinstance(value, str):
        return _FOLDER.sub("", value)
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_folders(item) for item in value]
    return value


def pack(records: Iterable[PilotRecord], *, name: str, rates: Mapping[str, Any] | None = None) -> bytes:
    """The packed file's bytes.

    Raises
    ------
    InvalidInput
        No records, the same id twice, a name that is no file name, or what JSON cannot carry.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"pack.name: found {name!r}; allowed are 1 to 40 ASCII letters, digits, '-' and '_'")
    chosen = sorted((portable(record) for record in records), key=lambda record: record.id)
    if not chosen:
        raise InvalidInput("pack: found no records; allowed is at least one")
    for one, other in pairwise(chosen):
        if one.id == other.id:
            raise InvalidInput(f"pack: found id {one.id!r} twice; allowed is each id once")
    try:
        body = "".join(f"{_line(record.to_dict())}\n" for record in chosen).encode()
        head = {
            "schema": PACK_SCHEMA,
            "name": name,
            "records": len(chosen),
            "flops": _sums(chosen),
            "rates": rates,
        }
        first = _line({**head, "sha256": _checksum(head, body)})
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"pack: {error}; allowed are numbers (no NaN), text, lists and objects") from None
    buffer = io.BytesIO()
    # No name and no time inside: the same records are the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as file:
        file.write(first.encode() + b"\n" + body)
    return buffer.getvalue()


def read_pack(path: str | Path) -> Pack:
    """Read a packed study, checking everything.

    Raises
    ------
    CannotDo
        There is no such file, or it cannot be read.
    InvalidInput
        Not a pack, another schema, a changed file, or a record that a store would not take.
    """
    path = Path(path)
    where = f"pack: {path}"
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InvalidInput(f"{where} is not a whole gzip file; allowed is what race study pack wrote") from None
    except OSError as error:
        raise CannotDo(f"{where} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"{where} unpacks to more than {MAX_BYTES} bytes; allowed are no more")
    first, _, body = content.partition(b"\n")
    head = _parsed(first, f"{where} line 1")
    if not isinstance(head, dict) or head.get("schema") != PACK_SCHEMA:
        found = head.get("schema") if isinstance(head, dict) else type(head).__name__
        raise InvalidInput(f"{where} has schema {found!r}; allowed is {PACK_SCHEMA!r}")
    head = check_object(where, head, required=("schema", "name", "records", "flops", "rates", "sha256"))
    checksum = head.pop("sha256")
    if checksum != _checksum(head, body):
        raise InvalidInput(f"{where} is not as it was written: its checksum differs; get or make it again")
    if not isinstance(head["name"], str) or not _NAME.fullmatch(head["name"]):
        raise InvalidInput(f"{where}.name: found {head['name']!r}; allowed is the name of a study")
    if not isinstance(head["rates"], Mapping | None):
        raise InvalidInput(f"{where}.rates: found {type(head['rates']).__name__}; allowed is an object or null")
    lines = body.splitlines()
    if check_whole(f"{where}.records", head["records"], low=1, high=10**6) != len(lines):
        raise InvalidInput(f"{where} says {head['records']} records and holds {len(lines)}")
    records = tuple(
        PilotRecord.from_dict(_parsed(line, f"{where} line {n}"), where=f"{where} line {n}")
        for n, line in enumerate(lines, start=2)
    )
    if any(a.id >= b.id for a, b in pairwise(records)):
        raise InvalidInput(f"{where}: its records are not in order, each id once")
    if _sums(records) != head["flops"]:
        raise InvalidInput(f"{where}.flops: found {head['flops']}, but the records add up to {_sums(records)}")
    return Pack(head["name"], records, head["rates"], checksum, path)


def packaged() -> dict[str, Path]:
    """Name to file, of the studies that ship with the package."""
    folder = Path(str(files("race.data")))
    return dict(sorted((path.name.removesuffix(SUFFIX), path) for path in folder.glob(f"*{SUFFIX}")))


def packaged_study(name: str) -> Pack:
    """A study that ships with the package.

    Raises
    ------
    InvalidInput
        There is none of this name; the message lists those there are.
    """
    known = packaged()
    if name not in known:
        raise InvalidInput(f"evidence: found {name!r}; allowed are {', '.join(known) or 'none (none is packaged)'}")
    return read_pack(known[name])


def _sums(records: Iterable[PilotRecord]) -> dict[str, Any]:
    chosen = list(records)
    total = sum((record.flops for record in chosen), start=Allocation(0, 0, 0))
    return {**total.to_dict(), "eval": sum(record.eval_flops for record in chosen)}


def _line(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _checksum(head: Mapping[str, Any], body: bytes) -> str:
    return hashlib.sha256(_line(head).encode() + b"\n" + body).hexdigest()


def _parsed(line: bytes, where: str) -> Any:
    def constant(name: str) -> Any:
        raise ValueError(f"found {name}")

    try:
        return json.loads(line, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where} is not JSON that a record may hold: {error}") from None
