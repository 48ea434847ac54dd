"""Is the posterior as sure as it may be? Its own errors on settings left out say, and widen it where it is not.

    z_g^2    = mean over targets and budgets of  (mean measured end - predicted from all other groups)^2 / its variance
    lambda^2 = max(1, (n0 + sum_g min(z_g^2, 9)) / (n0 + groups)),     n0 = 5

A group is one setting (model, reward, update fraction, recipe) at all budgets and seeds: seeds of one setting foretell
each other however wrong the model is, and their mean has little noise to hide behind. Where the posterior is right z^2
is 1 on average and lambda stays near 1; where measurements lie farther from their predictions than stated, all its
standard deviations are multiplied by lambda. Metrology does the same with measurements that disagree (the Birge ratio,
Birge 1932). For a Gaussian process it is exactly the posterior under a prior and a noise that are lambda times as wide
as believed, which have the same mean.

Three things keep it modest: n0 groups that were predicted well are believed in before any is seen, so that two or three
pilots change little; no group counts for more than three standard deviations, since a single odd run has a larger noise
of its own (`surrogate.fitting`); and it only widens.

It cannot see what no pilot shows: an error that begins beyond the largest pilot is not in it.
"""

from __future__ import annotations

import numpy as np

from surrogate.kernels import BUDGET
from surrogate.left_out import LeftOut, shares
from surrogate.points import Data, FloatArray, IntArray
from surrogate.posterior import Component

BELIEVED = 5.0  # n0
MOST = 9.0  # of a group's z^2
MAX_SPREAD = MOST**0.5
WORTH_SAYING = 1.1
_DIGITS = 6  # to which two runs of one setting agree


def spread_factor(components: tuple[Component, ...], weights: FloatArray, data: Data) -> float:
    """lambda, from 1 to `MAX_SPREAD`."""
    found = errors_left_out(components, weights, data)
    squared = (BELIEVED + np.minimum(found, MOST).sum()) / (BELIEVED + len(found))
    return float(np.sqrt(max(1.0, squared)))


def errors_left_out(components: tuple[Component, ...], weights: FloatArray, data: Data) -> FloatArray:
    """z^2 of every setting, shape (groups,); empty where there is one alone and nothing to predict it from."""
    groups = settings_of(data)
    if len(groups) < 2:
        return np.empty(0)
    views, last = [LeftOut(component) for component in components], _ends(data)
    out = []
    for group in groups:
        told = [view.predict(group) for view in views]
        share = shares(told, components, weights)
        ends = np.flatnonzero(np.isin(group, last))
        average = _averages(data, group[ends])
        mean, second = np.zeros(len(average)), np.zeros(len(average))
        for forecast, weight in zip(told, share, strict=True):
            means = forecast.means[:, ends] @ average.T
            mean += weight * (forecast.weights @ means)
            noise = np.einsum("ai,ij,aj->a", average, forecast.covariance[np.ix_(ends, ends)], average)
            second += weight * (noise + forecast.weights @ means**2)
        variance = np.maximum(second - mean**2, 1e-12)
        out.append(float(np.mean((average @ data.latent[group][ends] - mean) ** 2 / variance)))
    return np.array(out)


def _averages(data: Data, ends: IntArray) -> FloatArray:
    """Weights that average the ends of one target and nearly one budget, shape (averages, ends)."""
    key = np.column_stack([data.target[ends], np.round(data.x[ends, BUDGET], 1)])
    _, which = np.unique(key, axis=0, return_inverse=True)
    member = np.asarray(which).ravel() == np.arange(which.max() + 1)[:, None]
    return np.asarray(member / member.sum(axis=1, keepdims=True))


def settings_of(data: Data) -> list[IntArray]:
    """Indices of the points of each setting."""
    key = np.column_stack([data.x[:, :2], data.recipe, data.reward])
    _, which = np.unique(np.round(key, _DIGITS), axis=0, return_inverse=True)
    which = np.asarray(which).ravel()
    return [np.flatnonzero(which == i) for i in range(int(which.max()) + 1)] if len(data) else []


def _ends(data: Data) -> IntArray:
    """Index of the last point of every curve."""
    curve = data.run * (int(data.target.max()) + 1) + data.target
    _, last = np.unique(curve[::-1], return_index=True)
    return np.asarray(len(data) - 1 - last)


def spread_note(spread: float) -> str | None:
    """Plain words on a posterior that had to be widened."""
    if spread < WORTH_SAYING:
        return None
    return (
        "settings left out lie farther from their predictions than the fit states: intervals and probabilities here "
        f"are widened {spread:.1f} times"
    )
