"""How likely a run is to collapse: the simulator's hazard, corrected by what runs did.

    logit P(collapse | world w, offset b) = logit p_w(setting) + b,    b ~ N(0, OFFSET_SD^2)

with p_w the simulator's collapse probability. Every run that ended well or collapsed reweights worlds and offset by its
Bernoulli likelihood: worlds carry what depends on the setting, the offset what the simulator gets wrong altogether. A
run that failed for reasons of its own (a crash, a full disk) says nothing here.

Collapse is kept apart from the response surface, which is about runs that stay healthy: averaging the two would
hide both.
"""

from __future__ import annotations

import numpy as np

from surrogate.points import FloatArray

OFFSET_SD = 2.0
_OFFSETS = np.linspace(-3 * OFFSET_SD, 4 * OFFSET_SD, 57)
_LEAST = 1e-6
_NOTHING = 1e-12  # offsets that weigh less change no digit that anybody prints


def _logit(p: FloatArray) -> FloatArray:
    p = np.clip(p, _LEAST, 1 - _LEAST)
    return np.asarray(np.log(p / (1 - p)))


def collapse_risk(seen: FloatArray, collapsed: FloatArray, asked: FloatArray) -> FloatArray:
    """Posterior mean probability of collapse.

    Parameters
    ----------
    seen
        Simulated collapse probability of each run in each world, shape (W, r).
    collapsed
        1 where the run collapsed, 0 where it did not, shape (r,).
    asked
        Simulated collapse probability of each setting asked about, shape (W, n).

    Returns
    -------
    Shape (n,).
    """
    return mean_risk(offset_weights(seen, collapsed), asked)


def offset_weights(seen: FloatArray, collapsed: FloatArray) -> FloatArray:
    """Posterior probability of each (world, offset), shape (W, offsets), from the runs of `collapse_risk`."""
    logit = _logit(seen)[:, None, :] + _OFFSETS[None, :, None]
    # log sigmoid(x) and log sigmoid(-x), without overflow
    log_likelihood = -np.sum(np.logaddexp(0, np.where(collapsed > 0, -logit, logit)), axis=2)
    log_weight = log_likelihood - 0.5 * (_OFFSETS / OFFSET_SD) ** 2
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def mean_risk(weight: FloatArray, asked: FloatArray) -> FloatArray:
    """`collapse_risk` from the weights of `offset_weights`, shape (n,)."""
    odds = _logit(asked)
    out = np.zeros(asked.shape[1])
    for column in np.flatnonzero(weight.sum(axis=0) > _NOTHING):
        out += weight[:, column] @ (0.5 + 0.5 * np.tanh(0.5 * (odds + _OFFSETS[column])))
    return out
