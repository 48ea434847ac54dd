"""A loop while it runs: a live table on a terminal, plain lines anywhere else; always on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from race.cli.live import LiveTable, clock
from race.cli.output import facts, odds_of, table

if TYPE_CHECKING:
    from real_runs.loop import LoopState

LINE_EVERY = 15.0
DRAW_EVERY = 0.5
_BARS = " ▁▂▃▄▅▆▇█"


class LoopView(LiveTable):
    """What `real_runs.loop.Loop` is given as ``watch`` and ``tell``."""

    def __init__(self, title: str, history: list[tuple[float, float]] | None = None) -> None:
        super().__init__()
        self._title = title
        self._told = 0.0
        self._said: tuple[int, ...] = ()
        # (spent FLOPs, probability of the most probable regime) after each pilot
        self._path: list[tuple[float, float]] = list(history or [])

    def tell(self, line: str) -> None:
        """A line for people."""
        if self._live is not None:
            self._live.console.print(f"note: {line}")
        else:
            print(f"note: {line}", file=sys.stderr, flush=True)

    def __call__(self, state: LoopState) -> None:
        """Show where the loop stands."""
        counts = (state.progress.finished, len(state.running))
        if not self._said or counts[0] != self._said[0]:
            self._path.append((state.progress.spent, state.decision.certainty))
        now = time.monotonic()
        if self._live is not None:
            if now - self._told >= DRAW_EVERY or counts != self._said or state.ending is not None:
                self._told = now
                self._live.update(self._table(state), refresh=True)
        elif not self._said or counts[0] != self._said[0] or now - self._told >= LINE_EVERY:
            self._told = now
            self._say(state)
        self._said = counts

    def _say(self, state: LoopState) -> None:
        parts = [
            f"{state.progress.finished} pilots done, {len(state.running)} running"
            + (f", {state.elsewhere} elsewhere" if state.elsewhere > 0 else ""),
            f"{state.spent / state.budget:.0%} of the pilot budget",
            odds_of(_odds(state)),
            f"{state.decision.model} at rho {state.decision.rho.mean:.2f}",
            "ending" if state.ending is not None else f"ETA {clock(state.eta)}",
        ]
        print("  ".join(parts), file=sys.stderr, flush=True)

    def _table(self, state: LoopState) -> Any:
        from rich.console import Group

        from race.units import format_flops

        rows = table([self._title, ("rho", "right"), ("FLOPs", "right"), ("done", "right")])
        for job, spent in state.running:
            rows.add_row(
                f"running {job.spec.model}", f"{job.spec.rho:.2f}", format_flops(job.spec.budget),
                f"{spent / job.spec.budget:.0%}",
            )  # fmt: skip
        done = f"{state.progress.finished} done, {len(state.running)} running"
        lost = sum(p.state == "lost" for p in state.progress.pilots)
        done += f", {lost} lost" if lost else ""
        done += f", {state.elsewhere} in other loops" if state.elsewhere > 0 else ""
        used = format_flops(state.spent) if state.spent else "0"
        known = facts(
            ("pilots", done),
            ("pilot budget", f"{used} of {format_flops(state.budget)} ({state.spent / state.budget:.0%})"),
            ("regime", odds_of(_odds(state))),
            ("certainty", f"{_spark(self._path)}  over FLOPs spent"),
            ("best so far", f"{state.decision.model} at rho {state.decision.rho.mean:.2f}"),
            ("ETA", "ending: " + state.ending.reason if state.ending else f"at most {clock(state.eta)}"),
        )
        return Group(rows, known)


def _odds(state: LoopState) -> list[tuple[str, float]]:
    return sorted(state.decision.view.regimes.items(), key=lambda item: -item[1])


def _spark(path: list[tuple[float, float]], width: int = 40) -> str:
    """Certainty from 0 to 1 along the FLOPs spent, even in FLOPs."""
    if not path:
        return ""
    end = max(path[-1][0], 1.0)
    cells = []
    for cell in range(min(width, max(1, len(path)))):
        at = end * (cell + 1) / min(width, max(1, len(path)))
        known = [certainty for spent, certainty in path if spent <= at * 1.000001]
        cells.append(_BARS[round((known[-1] if known else 0.0) * 8)])
    return "".join(cells)
