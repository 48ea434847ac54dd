"""Where the response surface is observed or asked: coordinates plus the ensemble's opinion there.

Notation (used throughout this package)
    n, m   data points, query points          W   worlds of the simulator ensemble
    x      (n, 3): log N, logit rho, log C     e   (W, n): latent value in each world
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Points:
    """Points of the response surface.

    Attributes
    ----------
    x
        Shape (n, 3): log parameters, logit of the update fraction, log FLOPs.
    recipe
        Shape (n, Q): what else of the recipe moves the response, scaled so that 1 is a different recipe.
    reward, target
        Shape (n,): index into `race.rewards.REWARD_SYSTEMS` and into the surrogate's targets.
    ensemble
        Shape (W, n): latent value in each simulated world.
    gain
        Shape (n,): root mean square over worlds of the latent gained since the base model.
    """

    x: FloatArray
    recipe: FloatArray
    reward: IntArray
    target: IntArray
    ensemble: FloatArray
    gain: FloatArray

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: npt.NDArray[np.intp] | slice) -> Self:
        return type(self)(
            **{
                f.name: getattr(self, f.name)[:, index] if f.name == "ensemble" else getattr(self, f.name)[index]
                for f in fields(self)
            }
        )

    @property
    def mean(self) -> FloatArray:
        """Ensemble mean, shape (n,)."""
        return np.asarray(self.ensemble.mean(axis=0))

    @property
    def deviations(self) -> FloatArray:
        """Members minus the mean, over sqrt(W - 1): D.T @ D is the sample covariance. Shape (W, n)."""
        return np.asarray((self.ensemble - self.mean) / np.sqrt(max(len(self.ensemble) - 1, 1)))


@dataclass(frozen=True)
class Data(Points):
    """Observed points, sorted by run.

    Attributes
    ----------
    value, se
        Shape (n,): observed value in [0, 1] and its evaluation standard error.
    latent
        Shape (n,): observed latent.
    growth
        Shape (n,): how far along its run a point is, 0 at the base model: seeds cannot differ there.
    run
        Shape (n,): index of the run, non-decreasing.
    """

    value: FloatArray
    se: FloatArray
    latent: FloatArray
    growth: FloatArray
    run: IntArray

    @property
    def blocks(self) -> list[slice]:
        """One slice per run, in order."""
        if not len(self):
            return []
        starts = np.flatnonzero(np.diff(self.run, prepend=self.run[0] - 1))
        return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], len(self)], strict=True)]
