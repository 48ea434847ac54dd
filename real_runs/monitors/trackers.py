"""Weights & Biases, and trackio, which speaks the same language."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = "race"


class Wandb:
    """A run on Weights & Biases; where it goes and whether it is online follow wandb's own environment variables."""

    name = "wandb"

    def __init__(self) -> None:
        self._run: Any = None

    def start(self, folder: Path, run: str, config: Mapping[str, Any], *, step: int) -> None:
        """Begin the run, or go on with it: the folder's own run id is used again."""
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(
            project=PROJECT, name=run, id=f"{run}-{config['id']}", config=dict(config), dir=str(folder), resume="allow"
        )

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """One row."""
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class Trackio:
    """A run in trackio, on this machine unless trackio is told otherwise."""

    name = "trackio"

    def __init__(self) -> None:
        self._module: Any = None

    def start(self, folder: Path, run: str, config: Mapping[str, Any], *, step: int) -> None:
        """Begin the run, or go on with it."""
        self._module = importlib.import_module("trackio")
        self._module.init(project=PROJECT, name=f"{run}-{config['id']}", config=dict(config), resume="allow")

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """One row."""
        self._module.log(dict(scalars), step=step)

    def close(self) -> None:
        """Send what is left."""
        self._module.finish()
