"""What a running pilot lets us see: FLOPs spent and learning curves, read from its folder.

A real run of ours has a ledger and checkpoints in ``run/``. Any other runner may append lines to ``progress.jsonl``:

    {"flops": 2.5e15, "step": 40, "values": {"native": [0.41, 0.012]}}

``flops`` is what its current weights cost so far (a number, or an object by ``search``, ``learning`` and ``reward``),
``values`` holds pairs of value and standard error by target, and everything but ``flops`` may be missing. Increases are
summed up. Where the number falls, the runner went back to a checkpoint and goes on from there, so a runner that
restarts writes a first line with what it restarts from; what it does again is counted again, as it is spent again.
A torn or unreadable line is skipped and counted, and so is one with more than twice the pilot's budget.

Whoever starts a runner again adds a line of its own, so that an attempt that told nothing is seen:

    {"race:restart": {"search": 1e15, "learning": 3e15, "reward": 0}}

with what the attempt before is charged because it told nothing, or with no phases when it did tell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from race.allocation import Allocation
from race.errors import CannotDo, InvalidInput
from race.records import Curve
from real_runs.executors.folder import JobFolder
from real_runs.ledger import read_ledger

PHASES = ("search", "learning", "reward")
_STEP, _FLOPS, _VALUE, _SE = "step", "flops", "value", "se"
RESTART = "race:restart"
# Runs end within one step of their budget. More than this is another unit or another run.
MOST_OF_BUDGET = 2.0


@dataclass
class Lines:
    """The complete lines of a growing JSONL file, each handed out once."""

    path: Path
    unreadable: int = 0
    _offset: int = 0

    def new(self) -> list[dict[str, Any]]:
        """Objects on lines that came since the last call; a line without its end yet is left for the next one."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            # Not there yet, or not visible from this machine: nothing is known, which is what the caller says.
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for raw in whole.splitlines():
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                line = None
            if isinstance(line, dict):
                found.append(line)
            elif raw.strip():
                self.unreadable += 1
        return found


@dataclass
class Points:
    """Curves under construction; a point at or before the last step (done again after a crash) is left out."""

    by_target: dict[str, list[tuple[int, float, float, float]]] = field(default_factory=dict)

    def add(self, target: str, step: int, flops: float, value: float, se: float) -> None:
        """One more point."""
        points = self.by_target.setdefault(target, [])
        if not points or (step > points[-1][0] and flops >= points[-1][1]):
            points.append((step, flops, value, se))

    def curves(self) -> dict[str, Curve]:
        """As records hold them; points that a `Curve` refuses are none."""
        found = {}
        for target, points in self.by_target.items():
            try:
                found[target] = Curve(*(tuple(column) for column in zip(*points, strict=True)))
            except InvalidInput:
                continue
        return found


class RunReadings:
    """Of a real run of ours."""

    def __init__(self, folder: JobFolder) -> None:
        self._run = folder.run
        self._lines = Lines(folder.run / "ledger.jsonl")
        self._spent: float | None = None
        self._curves: dict[str, Curve] = {}
        self._read_from: str | None = None
        self.steps = 0

    def spent(self) -> float | None:
        """FLOPs of every phase that has ended, lost work included, evaluation not."""
        for line in self._lines.new():
            if line.get("event") == "end" and line.get("phase") != "eval":
                self._spent = (self._spent or 0) + line["flops"]
            elif line.get("event") == "attempt":
                self._spent = self._spent or 0
            elif line.get("event") == "step":
                self.steps = max(self.steps, line["step"])
        return self._spent

    def curves(self) -> dict[str, Curve]:
        """Of the newest checkpoint; those read before when it vanished meanwhile (only the newest two are kept)."""
        try:
            names = sorted(
                p.name for p in (self._run / "checkpoints").iterdir() if p.name.startswith("step-")
            )
        except OSError:
            return self._curves
        for name in reversed(names):
            if name == self._read_from:
                break
            folder = self._run / "checkpoints" / name
            if not (folder / "COMPLETE").exists():
                continue
            try:
                state = json.loads((folder / "state.json").read_bytes())
            except (OSError, ValueError):
                continue
            self._curves = {target: _columns(curve) for target, curve in state["curves"].items()}
            self._read_from = name
            break
        return self._curves

    def bill(self) -> Allocation:
        """Everything spent, by phase; a phase that was cut off is charged at its bound. For a run that has ended."""
        view = read_ledger(self._run / "ledger.jsonl")
        return view.useful.allocation + view.lost.allocation


class ForeignReadings:
    """Of a runner that writes ``progress.jsonl``, or does not."""

    def __init__(self, folder: JobFolder) -> None:
        self._lines = Lines(folder.progress)
        self._spec = folder.spec
        self._most: float | None = None
        self._last = dict.fromkeys((*PHASES, "all"), 0.0)
        self._sums = dict.fromkeys((*PHASES, "all"), 0.0)
        self._known = False
        self.told = False  # anything since the runner was started last
        self._points = Points()
        self.steps = 0

    def spent(self) -> float | None:
        """FLOPs spent so far, lost work included."""
        self._read()
        return sum(self._sums.values()) if self._known else None

    def curves(self) -> dict[str, Curve]:
        """What it has measured so far."""
        self._read()
        return self._points.curves()

    def bill(self) -> Allocation | float:
        """Everything spent, by phase if the runner said so, else as one number."""
        self._read()
        if self._sums["all"] or not self._known:
            return sum(self._sums.values())
        return Allocation(*(self._sums[phase] for phase in PHASES))

    def _read(self) -> None:
        for line in self._lines.new():
            if RESTART in line:
                self._restarted(line[RESTART])
                continue
            flops = line.get("flops")
            now: Mapping[str, Any] = flops if isinstance(flops, Mapping) else {"all": flops}
            if not now or any(name not in self._last or not _amount(n) for name, n in now.items()):
                self._lines.unreadable += 1
                continue
            if not sum(now.values()) <= self._limit():
                self._lines.unreadable += 1
                continue
            self._known = self.told = True
            for name, amount in now.items():
                self._sums[name] += max(0.0, amount - self._last[name])
                self._last[name] = float(amount)
            step, values = line.get("step"), line.get("values")
            if not _amount(step) or not isinstance(step, int):
                continue
            self.steps = max(self.steps, step)
            for target, pair in values.items() if isinstance(values, Mapping) else ():
                if isinstance(pair, list) and len(pair) == 2 and all(map(_amount, pair)) and max(pair) <= 1:
                    self._points.add(target, step, sum(self._last.values()), float(pair[0]), float(pair[1]))

    def _limit(self) -> float:
        """FLOPs that its current weights can have cost, as the folder's spec has it."""
        if self._most is None:
            try:
                self._most = MOST_OF_BUDGET * json.loads(self._spec.read_bytes())["budget"]
            except (OSError, ValueError, KeyError, TypeError):
                return math.inf  # a folder that this machine does not see, or of somebody else's
        return self._most

    def _restarted(self, untold: Any) -> None:
        self.told = False
        if not isinstance(untold, Mapping) or any(n not in PHASES or not _amount(a) for n, a in untold.items()):
            self._lines.unreadable += 1
            return
        for name, amount in untold.items():
            self._known = True
            self._sums[name] += amount


Readings = RunReadings | ForeignReadings


def readings_of(folder: JobFolder) -> Readings:
    """Whichever of the two the folder is for."""
    return RunReadings(folder) if folder.run.exists() else ForeignReadings(folder)


def bill(folder: JobFolder, shares: Mapping[str, float]) -> tuple[Allocation, bool]:
    """What a job is known to have spent in all, and whether its last attempt has told anything of it.

    Parameters
    ----------
    shares
        By phase, for a runner that tells only a total.
    """
    readings = readings_of(folder)
    try:
        found = readings.bill()
    except CannotDo:
        return Allocation(0, 0, 0), False
    # Our runs write their ledger before they spend anything.
    told = isinstance(readings, RunReadings) or readings.told
    if isinstance(found, Allocation):
        return found, told
    return Allocation(*(found * shares[phase] for phase in PHASES)), told


def note_restart(folder: JobFolder, untold: Mapping[str, float]) -> None:
    """Say in a foreign runner's progress file that it is started again, and what its silent attempt is charged.

    Raises
    ------
    CannotDo
        The disk is full, or the folder is gone.
    """
    try:
        with folder.progress.open("a", encoding="utf-8") as file:
            # On a line of its own, also where the attempt before was killed in the middle of one.
            file.write("\n" + json.dumps({RESTART: dict(untold)}) + "\n")
    except OSError as error:
        raise CannotDo(f"cannot write {folder.progress}: {error.strerror or error}") from error


def _amount(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < 1e31
        and math.isfinite(value)
    )


def _columns(curve: Mapping[str, Any]) -> Curve:
    return Curve(
        tuple(int(s) for s in curve[_STEP]), tuple(curve[_FLOPS]), tuple(curve[_VALUE]), tuple(curve[_SE])
    )  # fmt: skip
