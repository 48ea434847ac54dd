"""TensorBoard: event files under ``tensorboard/`` in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """Writes scalars for ``tensorboard --logdir``."""

    name = "tensorboard"

    def __init__(self) -> None:
        self._writer: Any = None

    def start(self, folder: Path, run: str, config: Mapping[str, Any], *, step: int) -> None:
        """Open an event file; steps after ``step`` that an interrupted process logged are purged from view."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(log_dir=str(folder / "tensorboard"), purge_step=step + 1)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """One point per scalar."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush to the disk."""
        self._writer.close()
