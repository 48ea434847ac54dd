"""The contract of a monitor, and the fan-out that keeps a failing one away from training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from race.errors import CannotDo

if TYPE_CHECKING:
    from real_runs.run import Progress


class Monitor(Protocol):
    """Draws scalars by step. ``name`` is what users call it."""

    name: str

    def start(self, folder: Path, run: str, config: Mapping[str, Any], *, step: int) -> None:
        """Begin, or go on after ``step`` when a run is resumed; whatever it raises stops the run."""
        ...

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Scalars of one step; steps never decrease."""
        ...

    def close(self) -> None:
        """Flush and let go."""
        ...


class RunMonitors:
    """A progress callback that feeds monitors.

    Parameters
    ----------
    folder
        The run's folder. Nothing is written to it before the first call: until then it may not be this run's.
    run, config
        Name of the run, and its spec and options as plain data; the run's id is added.
    complain
        Told once, in words, about a monitor that fell silent.
    """

    def __init__(
        self,
        monitors: Sequence[Monitor],
        *,
        folder: Path,
        run: str,
        config: Mapping[str, Any],
        complain: Callable[[str], None],
    ) -> None:
        self._monitors = list(monitors)
        self._folder, self._run, self._config, self._complain = folder, run, config, complain
        self._step = -1
        self._values: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        """Start on the first call, then pass on what is new.

        Raises
        ------
        CannotDo
            A monitor cannot be started.
        """
        if self._step < 0:
            # The run's own id, so that a resumed run goes on where trackers have it.
            config = {**self._config, "id": _run_id(self._folder)}
            for monitor in self._monitors:
                try:
                    monitor.start(self._folder, self._run, config, step=progress.step)
                except Exception as error:  # a tracker's client may raise anything; here it must stop the run
                    raise CannotDo(
                        f"monitor: {monitor.name} cannot start ({_words(error)}); mend it, or choose another --monitor"
                    ) from error
            self._step = progress.step
        scalars: dict[str, float] = {}
        if progress.step > self._step:
            scalars |= progress.metrics
            total = sum(progress.flops[phase] for phase in ("search", "learning", "reward"))
            scalars |= {f"flops/{phase}": float(flops) for phase, flops in progress.flops.items()}
            scalars |= {"flops/total": float(total), "flops/share_of_budget": total / progress.budget}
        if dict(progress.values) != self._values:
            scalars |= {f"heldout/{target}": value for target, value in progress.values.items()}
        if scalars:
            self._step, self._values = progress.step, dict(progress.values)
            self._each(lambda monitor: monitor.log(progress.step, scalars))

    def close(self) -> None:
        """Close those that are still well."""
        if self._step >= 0:
            self._each(lambda monitor: monitor.close())

    def _each(self, act: Callable[[Monitor], None]) -> None:
        for monitor in list(self._monitors):
            try:
                act(monitor)
            except Exception as error:  # noqa: BLE001  whatever a tracker's client raises, training goes on
                self._monitors.remove(monitor)
                self._complain(f"monitor {monitor.name} failed and is left out from here on: {_words(error)}")


def _run_id(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_bytes())["id"])[:8]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
