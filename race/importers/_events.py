"""TensorBoard event files, through the reader of the ``tensorboard`` package, which checks every record's checksum."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from race.importers._open import MAX_WHOLE
from race.importers._rows import Row, Rows, number, whole_step


def read_events(path: Path) -> Rows:
    """Scalars of one event file, or of all in one folder (a resumed run writes several).

    Raises
    ------
    CannotDo
        ``tensorboard`` is not installed.
    InvalidInput
        Too large, or no scalar in it.
    """
    files = [path] if path.is_file() else sorted(p for p in path.glob("*tfevents*") if p.is_file())
    size = sum(p.stat().st_size for p in files)
    if size > MAX_WHOLE:
        raise InvalidInput(
            f"{path}: has {size / 2**20:,.0f} MiB; allowed are {MAX_WHOLE >> 20} MiB of TensorBoard events"
        )
    digest = hashlib.sha256()
    rows: list[Row] = []
    notes: tuple[str, ...] = ()
    for file in files:
        digest.update(file.read_bytes())
        points, cut = _points(file)
        if cut:
            notes += (f"{file.name} is damaged or still being written; what follows the damage was left out",)
        order: dict[int, Row] = {}
        for step, tag, value in points:
            parsed = number(value)
            if parsed is not None:
                at = whole_step(step, f"{path}: {tag}")
                order.setdefault(at, Row(at, {}, len(rows) + len(order) + 1)).values[tag] = parsed
        rows += order.values()
    if not rows:
        raise InvalidInput(
            f"{path}: found no scalar in these TensorBoard events; allowed is a run that logged some"
        )
    return Rows("TensorBoard events", digest.hexdigest(), rows, notes=notes)


def _points(file: Path) -> tuple[list[tuple[int, str, Any]], bool]:
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util import tensor_util
    except ImportError:
        raise CannotDo(
            "tensorboard: not installed, and event files are read with it; pip install tensorboard"
        ) from None
    from google.protobuf.message import DecodeError

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    points: list[tuple[int, str, Any]] = []
    cut = False
    frames, whole = _frames(file)
    events = 0
    try:
        for event in EventFileLoader(str(file)).Load():
            events += 1
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    points.append((event.step, value.tag, value.simple_value))
                elif kind == "tensor" and value.metadata.plugin_data.plugin_name == "scalars":
                    array = tensor_util.make_ndarray(value.tensor)
                    if array.size == 1:
                        points.append((event.step, value.tag, float(array.reshape(()))))
    except (DecodeError, ValueError, TypeError):
        cut = True
    # The reader ends at a wrong checksum or a torn record as if the file did, and says nothing.
    return points, cut or not whole or events < frames


def _frames(file: Path) -> tuple[int, bool]:
    """Records in an event file by their stated lengths, and whether the last one ends where the file does.

    A record is its length (8 bytes), a checksum of that (4), the event, and its checksum (4).
    """
    size, at, count = file.stat().st_size, 0, 0
    with file.open("rb") as stream:
        while at + 12 <= size:
            stream.seek(at)
            end = at + 16 + int.from_bytes(stream.read(8), "little")
            if end > size:
                break
            at, count = end, count + 1
    return count, at == size
