"""A run while it runs: a live table on a terminal, plain lines anywhere else; always on stderr."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from race.cli.output import console, facts, note, table

if TYPE_CHECKING:
    from race.records import PilotSpec
    from real_runs.run import Progress

PHASES = {"search": "search (rollouts)", "learning": "learning (updates)", "reward": "reward (scoring)"}
LINE_EVERY = 5.0


class LiveTable:
    """A table on a terminal that is redrawn in place, as a context manager: it stays on the screen as it was last."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._live: Any = None  # None where stderr is no terminal: then there are plain lines

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


class LiveRun(LiveTable):
    """A progress callback that shows where a run stands."""

    def __init__(self, spec: PilotSpec, title: str) -> None:
        super().__init__()
        self._spec, self._title = spec, title
        self._last: Progress | None = None
        self._said: tuple[int, dict[str, float]] | None = None
        self._told = 0.0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._live is None and self._last is not None:
            self._say(self._last)

    @property
    def step(self) -> int:
        """The last step that was reported."""
        return self._last.step if self._last else 0

    def __call__(self, progress: Progress) -> None:
        """Show ``progress``."""
        self._last = progress
        now = time.monotonic()
        if self._live is not None:
            if progress.note:
                self._live.console.print(f"note: {progress.note}")
            # Drawing costs milliseconds, a nano step not many more.
            if now - self._told >= 0.2 or progress.note:
                self._told = now
            self._live.update(self._table(progress), refresh=self._told == now)
            return
        if progress.note:
            note(progress.note)
        elif now - self._told >= LINE_EVERY:
            self._told = now
            self._say(progress)

    def _say(self, progress: Progress) -> None:
        state = (progress.step, dict(progress.values))
        if state == self._said:
            return
        self._said = state
        total = _total(progress)
        shares = ", ".join(f"{name} {progress.flops[name] / max(total, 1):.0%}" for name in PHASES)
        parts = [f"step {progress.step}", f"{total / progress.budget:.0%} of the budget ({shares})"]
        parts += [f"{name} {value}" for name, value in self._numbers(progress)]
        print("  ".join([*parts, f"ETA {clock(progress.eta)}"]), file=sys.stderr, flush=True)

    def _numbers(self, progress: Progress) -> list[tuple[str, str]]:
        kl = f"{progress.metrics.get('kl', 0.0):.4f}" if self._spec.recipe.kl else "off"
        reward = f"{progress.metrics['reward']:.3f}" if "reward" in progress.metrics else "-"
        # Beside a reward that is not itself the verdict: what it is worth.
        accuracy = progress.metrics.get("reward/accuracy")
        shown = accuracy is not None and self._spec.recipe.reward != "sparse"
        right = [("accuracy", f"{accuracy:.3f}")] if shown else []
        heldout = [(f"held-out {target}", f"{value:.3f}") for target, value in progress.values.items()]
        return [("reward", reward), *right, ("KL", kl), *heldout]

    def _table(self, progress: Progress) -> Any:
        from rich.console import Group

        from race.units import format_flops

        total = _total(progress)
        rows = table([self._title, ("FLOPs", "right"), ("share", "right")])
        for phase, label in PHASES.items():
            rows.add_row(
                label, format_flops(progress.flops[phase]), f"{progress.flops[phase] / max(total, 1):.1%}"
            )
        rows.add_section()
        rows.add_row("total", format_flops(total), f"{total / progress.budget:.1%} of budget")
        return Group(
            rows,
            facts(("step", f"{progress.step}"), *self._numbers(progress), ("ETA", clock(progress.eta))),
        )


def _total(progress: Progress) -> int:
    return sum(progress.flops[phase] for phase in PHASES)


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds, or ``?``."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def stops_between_steps(*, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Let the first Ctrl-C or SIGTERM wait for the end of the step; a second one stops at once.

    Yields a check to be called between steps, which raises `KeyboardInterrupt` when it is time.
    """
    asked = threading.Event()

    def check() -> None:
        if asked.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        if not quiet:
            note("stopping after this step; once more to stop at once")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def quiet_libraries() -> None:
    """No progress bars and advice from transformers: a log should hold our lines, and an error should stand alone."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Whatever libraries and engine processes print meanwhile goes to stderr: stdout is for the result alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
