"""Worlds without dynamics: the local response that the paper fits, a bump in the log of the update ratio.

The simulator's worlds differ in numbers, not in form, so however many of them there are, none says what a response of
another form would look like. These do: at N parameters, update ratio a and D distinct samples

    value = base + A(N) (1 - base) (1 - (1 + D / s(N))^-p) exp(-(ln a - m)^2 / (2 w^2))

with the base model taken from the simulator, and a centre m, width w, amplitude A, sample scale s and power p that no
published number informs (all priors below are assumptions, wide on purpose). What they keep is what everybody's
pilots rest on: a base model, saturating gains, and an optimum somewhere that is shared between sizes and budgets.

Notation: L local worlds, n settings.
"""

from __future__ import annotations

import numpy as np

from race.simulator import Settings
from race.simulator.settings import REWARDS
from surrogate.points import FloatArray

_SEED = 0x10CA1
_REFERENCE = 3.09e9
_TARGETS = ("native", "judge", "pass@1")
# name: (mean, sd) of a normal
_PRIORS = {
    "amplitude": (-0.4, 1.0),  # logit of A at the reference size
    "amplitude_size": (0.0, 0.3),  # ... per e-fold of size
    "scale": (8.0, 1.8),  # ln of s at the reference size: 3,000 samples, within a factor of six
    "scale_size": (-0.3, 0.3),  # ... per e-fold of size: larger models need fewer
    "power": (-0.4, 0.5),  # ln p
    "centre": (0.0, 0.8),  # m
    "width": (0.1, 0.4),  # ln w
    **{f"centre_{reward}": (0.0, 0.4) for reward in REWARDS},
    **{f"centre_{target}": (0.0, 0.3) for target in _TARGETS},
}


class LocalResponses:
    """The local responses of some worlds; world number i has the same one in every ensemble."""

    def __init__(self, numbers: np.ndarray) -> None:
        count = int(numbers.max()) + 1 if len(numbers) else 0
        z = np.random.default_rng(_SEED).standard_normal((count, len(_PRIORS)))[numbers]
        self._values = {name: (m + s * z[:, [i]]) for i, (name, (m, s)) in enumerate(_PRIORS.items())}

    def __len__(self) -> int:
        return len(self._values["centre"])

    def gain(self, settings: Settings, target: str, samples: FloatArray) -> FloatArray:
        """Share of the room above the base that is gained, shape (L, n), after ``samples`` distinct ones, (n,)."""
        v = self._values
        size = np.log(settings.params / _REFERENCE)
        amplitude = 1 / (1 + np.exp(-(v["amplitude"] + v["amplitude_size"] * size)))
        scale = np.exp(v["scale"] + v["scale_size"] * size)
        centre = np.take_along_axis(
            v["centre"] + np.concatenate([v[f"centre_{name}"] for name in REWARDS], axis=1),
            np.broadcast_to(settings.reward, (len(self), len(settings))),
            axis=1,
        )
        centre = centre + v[f"centre_{target.partition(':')[0]}"]
        growth = -np.expm1(-np.exp(v["power"]) * np.log1p(samples / scale))
        bump = np.exp(-0.5 * ((np.log(settings.a) - centre) / np.exp(v["width"])) ** 2)
        return np.asarray(amplitude * growth * bump)
