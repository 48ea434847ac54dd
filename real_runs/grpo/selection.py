"""Which samples are trained on, in which pass.

With S samples generated and T trained (a = T / S):

    a <= 1   one pass over T distinct samples, spread evenly over the groups
    a > 1    floor(a) passes over everything, then one over the T - floor(a) S that are left

Within a group, the subset is random, or the one with the largest reward variance: the k highest and m - k lowest
rewards for the best k (Xu et al. 2025, "PODS", arXiv 2504.13818). A remainder that does not divide by the number of
groups goes to random groups, or to those with the largest variance. Advantages come from the full group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from real_runs.config import Subset

IntArray = npt.NDArray[np.int64]
Cost = Callable[[int, int], int]


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


def affordable(chosen: Sequence[IntArray], cost: Cost, left: int) -> tuple[list[IntArray], int]:
    """The passes without the samples that ``left`` FLOPs do not pay for, and what they cost.

    ``cost(sample, times)`` is that of training on a sample once more after ``times`` times. A sample that is too dear
    is left out and the next one tried, so what remains of a budget goes to shorter ones.
    """
    kept: list[IntArray] = []
    seen: dict[int, int] = {}
    spent = 0
    for indices in chosen:
        part = []
        for i in indices.tolist():
            price = cost(i, seen.get(i, 0))
            if spent + price <= left:
                spent += price
                seen[i] = seen.get(i, 0) + 1
                part.append(i)
        if part:
            kept.append(np.array(part))
    return kept, spent


def topped_up(
    chosen: Sequence[IntArray], generated: int, cost: Cost, *, least: int, left: int
) -> list[IntArray]:
    """The passes with samples added until at least ``least`` more FLOPs are spent, and never more than ``left``.

    The last pass is filled up first, then further ones follow; the dearest sample that fits goes first, which leaves
    the smallest rest.
    """
    passes_ = [set(indices.tolist()) for indices in chosen] or [set()]
    spent = 0
    while spent < least:
        times = [sum(i in p for p in passes_) for i in range(generated)]
        free = [i for i in range(generated) if i not in passes_[-1]]
        added = 0
        for i in sorted(free, key=lambda i: (-cost(i, times[i]), i)):
            price = cost(i, times[i])
            if spent < least and spent + price <= left:
                spent += price
                passes_[-1].add(i)
                added += 1
        if not added and free and len(free) == generated:
            passes_.pop()
            break
        if spent < least:
            passes_.append(set())
    return [np.array(sorted(p)) for p in passes_ if p]


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
