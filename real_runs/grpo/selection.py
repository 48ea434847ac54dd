"""Which samples are trained on, in which pass.

With S samples generated and T trained (a = T / S):

    a <= 1   one pass over T distinct samples, spread evenly over the groups
    a > 1    floor(a) passes over everything, then one over the T - floor(a) S that are left

Within a group, the subset is random, or the one with the largest reward variance: the k highest and m - k lowest
rewards for the best k (Xu et al. 2025, "PODS", arXiv 2504.13818). A remainder that does not divide by the number of
groups goes to random groups, or to those with the largest variance. Advantages come from the full group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from real_runs.config import Subset

IntArray = npt.NDArray[np.int64]


def passes(rewards: npt.NDArray[np.float64], trained: int, *, subset: Subset, seed: int) -> list[IntArray]:
    """Sample indices (group * G + member) of each pass, ascending.

    Parameters
    ----------
    rewards
        Shape (groups, G).
    trained
        T >= 1, over all passes.
    """
    generated = rewards.size
    rng = np.random.default_rng(seed)
    full, rest = divmod(trained, generated)
    chosen = [np.arange(generated) for _ in range(full)]
    if rest:
        chosen.append(_subset(rewards, rest, subset, rng))
    return chosen


def _subset(
    rewards: npt.NDArray[np.float64], count: int, subset: Subset, rng: np.random.Generator
) -> IntArray:
    groups, size = rewards.shape
    quota = np.full(groups, count // groups)
    order = rng.permutation(groups)
    if subset == "max-variance":
        # Stable sort of a random order: ties between equally informative groups are broken at random.
        order = order[np.argsort(-rewards[order].var(axis=1), kind="stable")]
    quota[order[: count % groups]] += 1
    picked = []
    for group, members in enumerate(quota):
        if members:
            row = rewards[group]
            shuffled = rng.permutation(size)
            inside = shuffled[:members] if subset == "random" else shuffled[widest(row[shuffled], int(members))]
            picked.append(group * size + inside)
    return np.sort(np.concatenate(picked))


def widest(values: Sequence[float] | npt.NDArray[np.float64], count: int) -> IntArray:
    """Indices of the ``count`` values with the largest variance.

    A single value has no variance; the one farthest from the mean is taken.
    """
    array = np.asarray(values, dtype=np.float64)
    if count == 1:
        return np.array([np.argmax(np.abs(array - array.mean()))])
    order = np.argsort(array, kind="stable")
    best, best_variance = order[:count], -1.0
    for high in range(count + 1):
        # The optimum always takes from both ends of the sorted values, so count + 1 candidates suffice.
        candidate = np.concatenate([order[: count - high], order[len(order) - high :]])
        variance = float(array[candidate].var())
        if variance > best_variance + 1e-15:
            best, best_variance = candidate, variance
    return best
