"""Checkpoints that are either whole or not there.

    checkpoints/step-00000012/policy.safetensors      trained weights
                              optimizer.safetensors   AdamW's moments
                              state.json              everything else
                              COMPLETE                sizes and digests of the three; written last

The folder is filled under another name and renamed; the marker comes after. A folder without a marker, or whose files
do not match it, is torn: it is named, skipped, and never trusted. The newest complete one wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from race.errors import CannotDo

MARKER = "COMPLETE"
_FILES = ("policy.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint, in memory."""

    step: int
    policy: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    step: int,
    *,
    policy: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
) -> None:
    """Write the checkpoint of ``step``, then drop all but the newest ``keep`` complete ones.

    Raises
    ------
    CannotDo
        The disk is full or the folder cannot be written; complete checkpoints are untouched.
    """
    contents = {
        "policy.safetensors": save(dict(policy)),
        "optimizer.safetensors": save(dict(optimizer)),
        "state.json": json.dumps(state).encode(),
    }
    target = folder / f"step-{step:08d}"
    draft = folder / f".step-{step:08d}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in (draft, target):
            if leftover.exists():
                shutil.rmtree(leftover)
        draft.mkdir()
        for name, content in contents.items():
            write_synced(draft / name, content)
        draft.rename(target)
        marker = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in contents.items()
        }
        write_atomically(target / MARKER, json.dumps(marker).encode())
        _drop_old(folder, keep)
    except OSError as error:
        raise CannotDo(
            f"checkpoint: could not write step {step} under {folder}: {error.strerror or error}; "
            "earlier checkpoints are intact, free space and run the same command again"
        ) from error


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest complete checkpoint, and why each newer folder was skipped."""
    skipped: list[str] = []
    if not folder.exists():
        return None, skipped
    try:
        names = sorted((p.name for p in folder.iterdir() if p.name.startswith("step-")), reverse=True)
    except OSError as error:
        raise CannotDo(f"checkpoint: cannot read {folder}: {error.strerror or error}; not restarted") from error
    for name in names:
        try:
            return _read(folder / name), skipped
        except _TornError as reason:
            skipped.append(f"{name}: {reason}")
        except OSError as error:
            raise CannotDo(
                f"checkpoint: cannot read {folder / name}: {error.strerror or error}; not restarted from an older one"
            ) from error
    return None, skipped


class _TornError(Exception):
    """A checkpoint folder that is not complete."""


def _read(path: Path) -> Checkpoint:
    if not (path / MARKER).exists():
        raise _TornError(f"no {MARKER} marker, so it was not finished")
    try:
        marker = json.loads((path / MARKER).read_bytes())
        promised = {name: (marker[name]["bytes"], marker[name]["sha256"]) for name in _FILES}
    except (ValueError, KeyError, TypeError):
        raise _TornError(f"its {MARKER} marker is unreadable") from None
    contents = {}
    for name in _FILES:
        if not (path / name).exists():
            raise _TornError(f"{name} is missing")
        contents[name] = (path / name).read_bytes()
        if (len(contents[name]), hashlib.sha256(contents[name]).hexdigest()) != promised[name]:
            raise _TornError(f"{name} does not match its marker")
    state = json.loads(contents["state.json"])
    return Checkpoint(
        int(state["step"]), load(contents["policy.safetensors"]), load(contents["optimizer.safetensors"]), state
    )


def _drop_old(folder: Path, keep: int) -> None:
    complete = sorted((p for p in folder.glob("step-*") if (p / MARKER).exists()), reverse=True)
    for path in complete[keep:]:
        # The marker goes first: a folder caught half-deleted must read as torn.
        (path / MARKER).unlink()
        shutil.rmtree(path)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and force it to the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, then rename it into place."""
    draft = path.with_name(f".{path.name}.tmp")
    write_synced(draft, content)
    draft.replace(path)
