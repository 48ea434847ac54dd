"""Hyperparameters of the response surface and their priors.

All are unconstrained reals: logs of positive quantities (latent units, i.e. soft logits; lengths in natural
logs of parameters and FLOPs, or logits of rho), logits of correlations. Priors are independent: Student-t for the
three amplitudes of the simulator's error, because a simulator that is plainly wrong must be able to say so, and
normal for all else. They are assumptions; the medians of the three say how wrong a calibrated simulator is
believed to be, and the marginal likelihood moves them as data come in.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# name: (prior mean, prior sd) on the unconstrained scale
_PRIORS: Final[dict[str, tuple[float, float]]] = {
    "scale": (0.0, 0.25),  # log: how much wider or narrower than the ensemble the simulator's family is
    "level": (np.log(0.25), 0.7),  # log sd: what the simulator gets wrong about base models
    "trend": (np.log(0.15), 0.8),  # log relative sd: ... about what is learned along size and budget
    "shape": (np.log(0.03), 1.5),  # log relative sd: ... along the update fraction too
    "length_size": (np.log(1.5), 0.5),
    "length_rho": (np.log(2.0), 0.4),
    "length_budget": (np.log(4.0), 0.5),
    "reward_correlation": (1.0, 1.0),  # logit: residuals under two reward systems
    "target_correlation": (0.5, 1.0),  # logit: residuals of two targets
    # Noise of a run is known far better than the simulator's error. Were it as free, a curve that the simulator did
    # not foresee would be called noise, and a measured 0.69 would not move a forecast of 0.09.
    # Together 0.07 at the end of a run: ten seeds of one published run spread by 0.5 to 1.3 points (PODS).
    "run": (np.log(0.055), 0.3),  # log sd: what a seed shifts for the rest of a run
    "curve": (np.log(0.045), 0.25),  # log sd: wander along a run, correlated in log FLOPs
    "white": (np.log(0.03), 0.3),  # log sd: point noise that `se` does not declare
}
NAMES: Final[tuple[str, ...]] = tuple(_PRIORS)
# Degrees of freedom: 3 for the amplitudes of error, as good as normal for the others. Seeds have the tail too: runs of
# one setting that contradict each other can only be told apart by them.
_TAIL: Final = np.array([3.0 if name in ("level", "trend", "shape", "run") else 1e6 for name in _PRIORS])
INDEX: Final[dict[str, int]] = {name: i for i, name in enumerate(NAMES)}
PRIOR_MEAN: Final[FloatArray] = np.array([m for m, _ in _PRIORS.values()])
PRIOR_SD: Final[FloatArray] = np.array([s for _, s in _PRIORS.values()])


class Hyperparameters:
    """Natural-scale view of one vector ``theta``, shape (len(NAMES),)."""

    __slots__ = ("theta",)

    def __init__(self, theta: FloatArray) -> None:
        self.theta = theta

    def __getattr__(self, name: str) -> float:
        value = float(self.theta[INDEX[name]])
        if name.endswith("_correlation"):
            return float(1 / (1 + np.exp(-value)))
        return float(np.exp(value))

    @property
    def lengths(self) -> FloatArray:
        """Length scales along (log N, logit rho, log C), shape (3,)."""
        return np.exp(self.theta[INDEX["length_size"] : INDEX["length_budget"] + 1])


def log_prior(theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Log density of the prior up to a constant, its gradient, and the (positive) curvature to step with."""
    scaled = (theta - PRIOR_MEAN) / PRIOR_SD
    tail = _TAIL + scaled**2
    log_density = -0.5 * float(np.sum((_TAIL + 1) * np.log1p(scaled**2 / _TAIL)))
    return log_density, -(_TAIL + 1) / tail * scaled / PRIOR_SD, (_TAIL + 1) / tail / PRIOR_SD**2


def prior_draws(count: int, *, seed: int) -> FloatArray:
    """Antithetic draws to answer with before any record, shape (count, d).

    Normal and no wider than 1: the tails are there for data to pull on, not to be believed in without any.
    """
    half = np.random.default_rng(seed).standard_normal((count // 2, len(PRIOR_MEAN))) * np.minimum(PRIOR_SD, 1)
    return np.asarray(PRIOR_MEAN + np.concatenate([half, -half]))
