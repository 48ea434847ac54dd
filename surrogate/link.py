"""The latent scale: a logit that stays finite at 0 and 1.

    z = logit(e + (1 - 2 e) y),   y = (sigmoid(z) - e) / (1 - 2 e) clipped to [0, 1],   e = 0.01

The plain logit sends a measured 0 or 1 to infinity and gives a simulated success rate of 1e-6 the weight of
fourteen logits; neither tells anything about where compute should go. With e = 0.01 the scale is a logit to
within 0.02 between 0.2 and 0.8, flattens towards the ends, and all of [0, 1] lies in [-4.6, 4.6].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

SOFTNESS = 0.01
_SPAN = 1 - 2 * SOFTNESS
LATENT_MAX = float(np.log((1 - SOFTNESS) / SOFTNESS))


def to_latent(value: npt.ArrayLike) -> FloatArray:
    """Latent z of values in [0, 1] (broadcasts); values outside are clipped first."""
    p = SOFTNESS + _SPAN * np.clip(np.asarray(value, dtype=np.float64), 0, 1)
    return np.log(p / (1 - p))


def to_value(latent: npt.ArrayLike) -> FloatArray:
    """Value in [0, 1] of a latent z (broadcasts); latents beyond the ends give exactly 0 or 1."""
    z = np.asarray(latent, dtype=np.float64)
    return np.clip((0.5 + 0.5 * np.tanh(0.5 * z) - SOFTNESS) / _SPAN, 0, 1)


def latent_sd(value: npt.ArrayLike, sd: npt.ArrayLike) -> FloatArray:
    """Latent standard deviation of a value with standard deviation ``sd`` (broadcasts).

    A secant over value +- sd instead of the derivative at the value: near 0 and 1 the derivative changes by
    an order of magnitude within one standard error.
    """
    value = np.asarray(value, dtype=np.float64)
    width = np.maximum(np.asarray(sd, dtype=np.float64), 1e-6)
    low, high = np.clip(value - width, 0, 1), np.clip(value + width, 0, 1)
    slope = (to_latent(high) - to_latent(low)) / (high - low)
    return np.asarray(slope * np.asarray(sd, dtype=np.float64))
