"""Worlds: an ensemble of simulator parameters. A draw is a world."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from race.errors import CannotDo, InvalidInput
from race.simulator.parameters import NAMES, PARAMETERS

FloatArray = npt.NDArray[np.float64]
SCHEMA = "race.simulator.posterior/2"
_BLUR = 0.3
_LOG = np.array([p.scale == "log" for p in PARAMETERS])


@dataclass(frozen=True, eq=False)
class Worlds:
    """W parameter draws.

    Attributes
    ----------
    values
        Natural units, shape (W, number of parameters), columns in the order of `NAMES`.
    """

    values: FloatArray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(NAMES):
            raise InvalidInput(
                f"worlds: found an array of shape {self.values.shape}; allowed is (W, {len(NAMES)})"
            )

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __getitem__(self, index: int | slice | npt.ArrayLike) -> Worlds:
        """Worlds by position, slice, index array or mask; an int gives an ensemble of one."""
        rows = np.atleast_1d(np.arange(len(self))[index])  # type: ignore[index]
        return Worlds(self.values[rows])

    def column(self, name: str) -> FloatArray:
        """One parameter, shape (W, 1), ready to broadcast against settings."""
        return self.values[:, NAMES.index(name), None]

    def replace(self, **changes: float | npt.ArrayLike) -> Worlds:
        """Copy with some parameters set, in natural units."""
        values = self.values.copy()
        for name, value in changes.items():
            if name not in NAMES:
                raise InvalidInput(f"worlds: unknown parameter {name!r}; allowed are {', '.join(NAMES)}")
            values[:, NAMES.index(name)] = value
        return Worlds(values)

    @classmethod
    def from_unconstrained(cls, z: npt.ArrayLike) -> Worlds:
        """From the unconstrained scale (log or identity), shape (W, number of parameters)."""
        z = np.atleast_2d(np.asarray(z, dtype=np.float64))
        return cls(np.where(_LOG, np.exp(np.clip(z, -60, 60)), z))

    def unconstrained(self) -> FloatArray:
        """Inverse of `from_unconstrained`."""
        return np.where(_LOG, np.log(np.where(_LOG, self.values, 1.0)), self.values)

    @classmethod
    def uncalibrated(cls, n: int, *, seed: int = 0) -> Worlds:
        """Draws from the prior of `race.simulator.parameters`, before any published number."""
        center, sd = before_calibration()
        rng = np.random.default_rng(seed)
        return cls.from_unconstrained(center + sd * rng.standard_normal((n, len(NAMES))))

    @classmethod
    def prior(cls, n: int, *, seed: int = 0) -> Worlds:
        """Draws from the calibrated ensemble: what is believed before a user's first pilot.

        A smoothed bootstrap (West 1993): a member is drawn, pulled towards the mean and blurred, so that mean and
        covariance of the ensemble are kept and no two draws are the same world.
        """
        members, mean, root = _members()
        rng = np.random.default_rng(seed)
        picked = members[rng.integers(len(members), size=n)]
        blur = rng.standard_normal((n, len(NAMES))) @ root.T
        return cls.from_unconstrained(mean + np.sqrt(1 - _BLUR**2) * (picked - mean) + _BLUR * blur)

    @classmethod
    def central(cls) -> Worlds:
        """The one world at the centre of the calibrated ensemble."""
        return cls.from_unconstrained(_members()[1])


@lru_cache(maxsize=1)
def posterior() -> dict[str, Any]:
    """The shipped calibration as it was written by `race.simulator.calibrate`."""
    data: dict[str, Any] = json.loads(data_file("posterior.json"))
    if data["schema"] != SCHEMA or tuple(data["parameters"]) != NAMES:
        raise CannotDo(
            "posterior.json: does not belong to this version of the simulator; "
            "run python -m race.simulator.calibrate"
        )
    return data


@lru_cache(maxsize=1)
def _members() -> tuple[FloatArray, FloatArray, FloatArray]:
    """The shipped ensemble on the unconstrained scale, its mean, and a square root of its covariance."""
    members = np.array(posterior()["members"], dtype=np.float64)
    mean: FloatArray = members.mean(axis=0)
    root = np.linalg.cholesky(np.cov(members.T) + 1e-12 * np.eye(len(NAMES)))
    return members, mean, np.asarray(root, dtype=np.float64)


@lru_cache(maxsize=1)
def before_calibration() -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the uncalibrated prior on the unconstrained scale."""
    center = np.array([np.log(p.center) if p.scale == "log" else p.center for p in PARAMETERS])
    return center, np.array([p.sd for p in PARAMETERS])


def data_file(name: str) -> str:
    """Text of a data file shipped with the simulator."""
    return files("race.simulator").joinpath(name).read_text(encoding="utf-8")
