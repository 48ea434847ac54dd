"""The paper's findings as predictions: where the best update fraction lies, by reward system and target.

Only directions and a few rounded numbers of arXiv 2607.13389 are known (abstract and digests). What its set-up was
where they do not say is assumed here: the package's default lengths (the paper's L = 2048 is a maximum, and the mean
response is shorter), four prompts a step, rank 16, no KL term, the named 7B PRM, a 1.5B scorer as the proxy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from race.ladders import ladder
from race.simulator.dynamics import simulate
from race.simulator.ensemble import Worlds
from race.simulator.settings import Settings

FloatArray = npt.NDArray[np.float64]

PAPER_BUDGET = 10**16.2
PAPER_GROUP = 2
RATIOS = 2.0 ** (np.arange(-24, 25) / 6)  # 1/16 to 16, with the kinks 1 and 2 on the grid


def paper_settings(reward: str, a: FloatArray, *, reward_model: str | None = None) -> Settings:
    """The paper's IsoFLOP slice under one reward: 3 models x update ratios, model-major."""
    sizes = ladder()
    changes = {"reward_model": reward_model} if reward_model is not None else {}
    recipe = sizes.recipe(reward, group_size=PAPER_GROUP, **changes)
    return Settings.sweep(sizes.models, recipe, ratios=a, budget=PAPER_BUDGET)


def best_rho(values: FloatArray, a: FloatArray, rho: FloatArray) -> FloatArray:
    """rho at the best of the update ratios ``a``, refined by a parabola in ln a.

    ``values`` (..., K), ``rho`` broadcasts against it, ``a`` (K,) evenly spaced in ln a. At a = 1 and a = 2 costs
    have a kink, where a parabola would be wrong: an optimum there stays there.
    """
    k = np.clip(values.argmax(axis=-1), 1, a.size - 2)
    below, top, above = (np.take_along_axis(values, (k + i)[..., None], -1)[..., 0] for i in (-1, 0, 1))
    curvature = below - 2 * top + above
    shift = np.where(curvature < 0, 0.5 * (below - above) / np.where(curvature < 0, curvature, 1), 0)
    shift = np.where(np.isclose(a[k], 1) | np.isclose(a[k], 2), 0.0, np.clip(shift, -1, 1))
    rho = np.broadcast_to(rho, values.shape)
    left, mid, right = (np.take_along_axis(rho, (k + i)[..., None], -1)[..., 0] for i in (-1, 0, 1))
    out: FloatArray = mid + shift * np.where(shift > 0, right - mid, mid - left)
    return out


def paper_rhos(
    worlds: Worlds, reward: str, targets: Sequence[str], *, reward_model: str | None = None
) -> dict[str, FloatArray]:
    """rho* of each model on the paper's slice, per target, shape (W, 3)."""
    settings = paper_settings(reward, RATIOS, reward_model=reward_model)
    shape = (len(worlds), 3, RATIOS.size)
    rho = settings.rho.reshape(shape[1:])
    values = simulate(worlds, settings, targets=tuple(targets))
    return {t: best_rho(v.reshape(shape), RATIOS, rho) for t, v in values.items()}
