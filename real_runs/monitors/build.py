"""Monitors by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from race.errors import CannotDo, InvalidInput
from real_runs.monitors._base import Monitor
from real_runs.monitors.tensorboard import TensorBoard
from real_runs.monitors.trackers import Trackio, Wandb

MONITORS: dict[str, Callable[[], Monitor]] = {"tensorboard": TensorBoard, "wandb": Wandb, "trackio": Trackio}


def build_monitors(names: Sequence[str] | None) -> list[Monitor]:
    """Monitors that ``names`` asks for.

    Parameters
    ----------
    names
        Of `MONITORS`; ``["none"]`` is none; ``None`` is TensorBoard where it is installed.

    Raises
    ------
    InvalidInput
        An unknown name.
    CannotDo
        One that was asked for and is not installed.
    """
    if names is None:
        names = ["tensorboard"] if find_spec("tensorboard") else []
    if list(names) == ["none"]:
        return []
    for name in names:
        if name not in MONITORS:
            raise InvalidInput(f"monitor: found {name!r}; allowed are {', '.join(MONITORS)}, or none")
        if find_spec(name) is None:
            raise CannotDo(f"monitor: {name} is not installed here; install it with: pip install {name}")
    return [MONITORS[name]() for name in dict.fromkeys(names)]
