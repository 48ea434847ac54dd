"""Rewards to advantages, within a group.

    A_i = r_i - mean(r),  optionally divided by (std(r) + 1e-4)

with the unbiased standard deviation, as in TRL. Without the division it is Dr. GRPO's (Liu et al. 2025,
arXiv 2503.20783). A group whose rewards are all *equal* gets exactly 0: float noise in the mean, divided by a
tiny deviation, must not turn a group without signal into one with.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
STD_FLOOR = 1e-4


def group_advantages(rewards: FloatArray, *, scale: bool) -> FloatArray:
    """Advantages of ``rewards``, shape (groups, G), G >= 2; same shape."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    if scale:
        centred = centred / (rewards.std(axis=1, ddof=1, keepdims=True) + STD_FLOOR)
    return np.where(silent_groups(rewards)[:, None], 0.0, centred)


def silent_groups(rewards: FloatArray) -> npt.NDArray[np.bool_]:
    """Groups with nothing to teach: every reward equal, exactly. Shape (groups,)."""
    return np.asarray((rewards == rewards[:, :1]).all(axis=1))
