"""The ledger: an append-only JSONL file that says where every FLOP of a run went.

Each phase is written twice: ``begin`` with the most it can cost, ``end`` with what it did cost. A process that dies
in between leaves the ``begin``, so its work is charged even though nobody saw the end of it.

    {"event": "attempt", "attempt": 2, "step": 7}            a process took over after step 7
    {"event": "begin", "attempt": 2, "step": 8, "phase": "search", "bound": 81920}
    {"event": "end", "attempt": 2, "step": 8, "phase": "search", "flops": 60416, "executed": 69632, "seconds": 0.05}
    {"event": "step", "attempt": 2, "step": 8, "search": 60416, "learning": ..., "reward": 0, "total": ..., ...}

``flops`` counts matmuls on true lengths with attention over unmasked pairs (`race.flops`, causal); ``executed`` is what
the kernels multiplied, padding and masked pairs included. Lines of an earlier attempt about steps that a later one
did again are *lost work*: they stay in the file and are reported beside the budget. A torn last line (the process
died while writing it) is closed with a newline, skipped and counted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from race.allocation import Allocation
from race.errors import CannotDo

CONVENTION = (
    "matmul FLOPs (2mnk) on true lengths, attention over unmasked pairs (causal); embeddings, norms and softmax "
    "are not counted"
)
_COLUMN = {"search": "search", "reward": "reward", "eval": "eval", "old_logprobs": "learning",
           "reference": "learning", "update": "learning"}


@dataclass
class Account:
    """FLOPs by column, exact ints."""

    search: int = 0
    learning: int = 0
    reward: int = 0
    eval: int = 0

    def add(self, phase: str, flops: int) -> None:
        """Book ``flops`` of a phase on its column."""
        column = _COLUMN[phase]
        setattr(self, column, getattr(self, column) + flops)

    @property
    def total(self) -> int:
        """C_total; evaluation is beside it."""
        return self.search + self.learning + self.reward

    @property
    def allocation(self) -> Allocation:
        """The three phases of C_total."""
        return Allocation(self.search, self.learning, self.reward)

    def to_dict(self) -> dict[str, int]:
        """Columns by name."""
        return {"search": self.search, "learning": self.learning, "reward": self.reward, "eval": self.eval}

    @classmethod
    def from_dict(cls, data: Mapping[str, int]) -> Account:
        """Columns by name, as `to_dict` wrote them."""
        return cls(**{name: int(data[name]) for name in ("search", "learning", "reward", "eval")})


@dataclass
class LedgerView:
    """A ledger as read back.

    Attributes
    ----------
    useful
        What the final weights cost.
    lost
        What was done again after a crash, unfinished phases at their bound.
    executed, seconds
        Of the useful work, by phase.
    steps
        The ``step`` lines of the useful work, in order.
    attempts
        Processes that worked on the run.
    torn
        Lines that could not be read.
    """

    useful: Account = field(default_factory=Account)
    lost: Account = field(default_factory=Account)
    executed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    attempts: int = 0
    torn: int = 0


def read_ledger(path: Path, *, up_to: int | None = None) -> LedgerView:
    """Read a ledger; ``up_to`` treats work after that step as lost (a resume from that step's checkpoint)."""
    view = LedgerView()
    lines = []
    for line in _lines(path):
        if line is None:
            view.torn += 1
        else:
            lines.append(line)
    # For each line, the lowest step that any later attempt restarted from: work beyond it was done again.
    limit = float("inf") if up_to is None else float(up_to)
    redone: list[float] = []
    for line in reversed(lines):
        redone.append(limit)
        if line["event"] == "attempt":
            limit = min(limit, line["step"])
    pending: dict[tuple[int, int, str], int] = {}
    for line, keep_to in zip(lines, reversed(redone), strict=True):
        event = line["event"]
        if event == "attempt":
            view.attempts += 1
            continue
        useful = line["step"] <= keep_to
        if event == "step":
            if useful:
                view.steps.append(line)
            continue
        key = (line["attempt"], line["step"], line["phase"])
        if event == "begin":
            pending[key] = line["bound"]
            continue
        pending.pop(key, None)
        (view.useful if useful else view.lost).add(line["phase"], line["flops"])
        if useful:
            phase = line["phase"]
            view.executed[phase] = view.executed.get(phase, 0) + (line["executed"] or 0)
            view.seconds[phase] = view.seconds.get(phase, 0.0) + line["seconds"]
    for (_, _, phase), bound in pending.items():
        view.lost.add(phase, bound)
    return view


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    if not path.exists():
        return
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise CannotDo(f"ledger: cannot read {path}: {error.strerror or error}") from error
    for raw in text.split("\n"):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except json.JSONDecodeError:
            yield None
            continue
        yield line if isinstance(line, dict) and "event" in line else None


@dataclass
class Phase:
    """What a phase cost; filled in by whoever runs it."""

    flops: int = 0
    executed: int | None = 0
    seconds: float = 0.0


class Ledger:
    """Appends to a ledger file. One process at a time; the run's lock sees to that.

    Without a path it only meters: for the processes of a run that do not write.
    """

    def __init__(self, path: Path | None, *, attempt: int, step: int) -> None:
        self._attempt = attempt
        self._file: FileIO | None = None
        if path is None:
            return
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = FileIO(path, "ab")
        if torn:
            self._file.write(b"\n")
        self._write({"event": "attempt", "attempt": attempt, "step": step, "convention": CONVENTION})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def begin(self, step: int, phase: str, bound: int) -> None:
        """A phase starts that costs at most ``bound`` FLOPs."""
        self._write({"event": "begin", "attempt": self._attempt, "step": step, "phase": phase, "bound": bound})

    @contextmanager
    def phase(self, step: int, name: str, bound: int) -> Iterator[Phase]:
        """Meter a phase: ``begin`` now, ``end`` when the block is left without an exception.

        Raises
        ------
        CannotDo
            The phase cost more than its bound: then no budget could be kept, so nothing goes on. Evaluation has no
            budget, and a judge may not know its bound, so there it is not enforced.
        """
        phase = Phase()
        self.begin(step, name, bound)
        start = time.perf_counter()
        yield phase
        phase.seconds = time.perf_counter() - start
        self.end(step, name, phase.flops, phase.executed, phase.seconds)
        if phase.flops > bound and name != "eval":
            raise CannotDo(
                f"{name}: step {step} cost {phase.flops} FLOPs, above its own bound of {bound}; "
                "the bound of this reward or backend is wrong"
            )

    def end(self, step: int, phase: str, flops: int, executed: int | None, seconds: float) -> None:
        """The phase is over and cost ``flops``."""
        self._write({"event": "end", "attempt": self._attempt, "step": step, "phase": phase, "flops": flops,
                     "executed": executed, "seconds": round(seconds, 6)})

    def step(self, step: int, account: Account, total: int, seconds: Mapping[str, float],
             metrics: Mapping[str, float]) -> None:
        """One step in one line: its FLOPs by column, C_total after it, seconds by phase, what it measured."""
        self._write({"event": "step", "attempt": self._attempt, "step": step, **account.to_dict(), "total": total,
                     "seconds": {k: round(v, 6) for k, v in seconds.items()}, "metrics": dict(metrics)})

    def sync(self) -> None:
        """Force what was written to the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def _write(self, line: Mapping[str, Any]) -> None:
        # One write call per line: a killed process tears at most the last one.
        if self._file is not None:
            self._file.write((json.dumps(line) + "\n").encode())
