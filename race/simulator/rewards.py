"""How reward systems differ inside the simulator: lookup of per-reward parameters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from race.rewards import REWARD_SYSTEMS
from race.simulator.ensemble import Worlds
from race.simulator.settings import REWARDS, Settings

FloatArray = npt.NDArray[np.float64]

REWARD_MODEL_REFERENCE = 7e9
_SUFFIX = {
    "sparse": "sparse",
    "structured": "structured",
    "dense": "dense",
    "proxy-prm": "proxy",
    "prm": "prm",
}
# How much of a reward is a score rather than right/wrong: rule-based partial credit is half of each.
_CONTINUOUS = np.array([{"sparse": 0.0, "structured": 0.0, "dense": 0.5}.get(r, 1.0) for r in REWARDS])
_LEARNED = np.array([REWARD_SYSTEMS[r].learned for r in REWARDS])


def by_reward(worlds: Worlds, settings: Settings, prefix: str) -> FloatArray:
    """Parameter ``<prefix>_<reward>`` of each setting's reward system, shape (W, n).

    ``gain``, ``cap`` and ``noise`` are logarithms relative to sparse, for which they are 0.
    """
    relative = prefix != "bias"
    table = np.concatenate(
        [
            np.zeros((len(worlds), 1))
            if relative and name == "sparse"
            else worlds.column(f"{prefix}_{_SUFFIX[name]}")
            for name in REWARDS
        ],
        axis=1,
    )
    out: FloatArray = table[:, settings.reward]
    return out


def bias_of(worlds: Worlds, settings: Settings) -> FloatArray:
    """Loss of process quality per unit of drift, logits; smaller for larger reward models, shape (W, n)."""
    return by_reward(worlds, settings, "bias") * _quality(worlds, settings)


def noise_of(worlds: Worlds, settings: Settings) -> FloatArray:
    """Noise scale B_r in samples; smaller for larger reward models, shape (W, n)."""
    noise: FloatArray = worlds.column("b_noise") * np.exp(
        worlds.column("setup_noise") + by_reward(worlds, settings, "noise")
    )
    return noise * _quality(worlds, settings)


def _quality(worlds: Worlds, settings: Settings) -> FloatArray:
    """(N_rm / 7e9)^-rm_size for learned rewards, 1 for rules."""
    learned = _LEARNED[settings.reward]
    ratio = np.where(learned, np.maximum(settings.reward_params, 1.0) / REWARD_MODEL_REFERENCE, 1.0)
    out: FloatArray = ratio ** -worlds.column("rm_size")
    return out


def continuous_share(settings: Settings) -> FloatArray:
    """How much of each setting's reward is a graded score, in [0, 1], shape (n,)."""
    out: FloatArray = _CONTINUOUS[settings.reward]
    return out
