"""Which pilot buys most: expected reduction of decision regret at the real budget, per FLOP.

Regret now is E[max_d f(d)] - max_d E[f(d)] over the settings d of the slice at the real budget. A pilot moves only
the second term: after it the planner picks the best mean again. The expected gain is the knowledge gradient of
correlated beliefs (Frazier, Powell, Dayanik 2009),

    KG(c) = E_Z max_d (m_d + s_dc Z) - max_d m_d,    s_dc = Cov(f_d, z_c) / sqrt(Var(z_c) + noise_c),   Z ~ N(0, 1)

where z_c is what pilot c measures, at its own small budget. Four things are added:

- Cost. KG is divided by the pilot's FLOPs, since the pilot budget is a sum of FLOPs and not a number of trials.
- Replication. Information is not concave: one cheap noisy pilot may change no decision where four would, and a
  planner that asks only about the next pilot then sees no gain in any. As in Frazier's KG(*), the gain per FLOP is
  maximised over n = 1, 2, 4, ... repetitions that still fit the remaining budget.

- Targets. Where several are asked, every pilot measures all of them, and the gains are summed, each as a share of the
  range of its own target on the slice: targets have no common scale.

- Doubt. When no pilot could overturn the decision the gain is zero everywhere and says nothing about which pilot to
  run. It may also be the beliefs that are too sure of themselves: the simulator in the prior can be wrong in ways it
  does not know. So the covariance is inflated, standard deviations by 2, 4, ... up to 16, until the best pilot is
  expected to gain a thousandth of the slice's range: the pilot that would matter first if beliefs were too narrow is
  the one that tests them best.

Pilots that are running are conditioned on before anything is scored (`Surrogate.condition`): their outcome is
unknown, but not how much it will tell. This is what keeps parallel proposals apart.

Notation (shapes)
    D   settings of the decision         C   candidate pilots
    m   mean value on D, (D,)            s   swing of the mean values per unit of Z, (D, C)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

QUANTILES = 65
MAX_REPLICATES = 8
WORTH = 1e-3
LEAST_SPREAD = 1e-3  # a slice flatter than that is not worth a pilot, whatever share of it one might gain
MAX_DOUBT = 16.0
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / QUANTILES) for i in range(QUANTILES)])


@dataclass(frozen=True)
class Beliefs:
    """Joint Gaussian beliefs about the decision and about what pilots would measure.

    Attributes
    ----------
    mean
        Expected value of each setting of the decision, shape (D,).
    slope
        Change of that value per unit of its latent, shape (D,).
    cov
        Latent covariance of [decision; candidates], shape (D + C, D + C).
    noise
        Latent variance a single pilot adds, shape (C,).
    healthy
        Probability that a pilot reports at all instead of collapsing, shape (C,).
    """

    mean: FloatArray
    slope: FloatArray
    cov: FloatArray
    noise: FloatArray
    healthy: FloatArray


def expected_gain(mean: FloatArray, swing: FloatArray) -> FloatArray:
    """E_Z max_d (mean_d + swing_dc Z) - max_d mean_d for every pilot c.

    By the midpoint rule on the quantiles of Z, which is exact where the best setting never changes (the gain is then
    0, to rounding) and off by less than 2 % elsewhere; the exact sum over breakpoints is a sort per candidate and
    no more useful.

    Parameters
    ----------
    mean
        Shape (D,).
    swing
        s, shape (D, C).

    Returns
    -------
    Shape (C,), non-negative.
    """
    top = np.zeros(swing.shape[1])
    for at in _NORMAL:
        top += (mean[:, None] + swing * at).max(axis=0)
    gain: FloatArray = np.maximum(top / QUANTILES - mean.max(), 0.0)
    # Rounding of a sum of equal numbers must not look like information.
    gain[gain < 1e-12] = 0.0
    return gain


@dataclass(frozen=True)
class Scores:
    """What the acquisition says about every candidate, shapes (C,).

    Attributes
    ----------
    per_flop
        Best gain per FLOP over repetitions, under ``doubt``; what is maximised.
    single
        Expected gain of one pilot under the beliefs as they are.
    doubt
        Factor by which standard deviations had to be inflated for any pilot to matter; 1 is none.
    spread
        Range of the mean values on the slice, which gains are compared with.
    """

    per_flop: FloatArray
    single: FloatArray
    doubt: float
    spread: float


def score(beliefs: Beliefs, cost: FloatArray, remaining: float) -> Scores:
    """Score every candidate.

    Parameters
    ----------
    beliefs
        Given the pilots that are running.
    cost
        FLOPs of each candidate, shape (C,).
    remaining
        FLOPs left in the pilot budget.
    """
    per_flop, single = gain_per_flop(beliefs, cost, remaining)
    spread = float(np.ptp(beliefs.mean[beliefs.slope > 0])) if (beliefs.slope > 0).any() else 0.0
    first, doubt, most = single, 1.0, single
    while most.max() < WORTH * spread and doubt < MAX_DOUBT:
        doubt *= 2
        per_flop, most = gain_per_flop(replace(beliefs, cov=doubt**2 * beliefs.cov), cost, remaining)
    return Scores(per_flop, first, doubt, spread)


def together(scores: Sequence[Scores]) -> FloatArray:
    """Gain per FLOP over all targets, shape (C,): what to maximise. With one target, that target's own order."""
    return np.asarray(sum(s.per_flop / max(s.spread, LEAST_SPREAD) for s in scores))


def gain_per_flop(beliefs: Beliefs, cost: FloatArray, remaining: float) -> tuple[FloatArray, FloatArray]:
    """Best gain per FLOP over repetitions, and the gain of a single pilot.

    Parameters
    ----------
    beliefs
        Given the pilots that are running.
    cost
        FLOPs of each candidate, shape (C,).
    remaining
        FLOPs left in the pilot budget.

    Returns
    -------
    per_flop, single
        Shapes (C,).
    """
    decisions = len(beliefs.mean)
    cross = beliefs.slope[:, None] * beliefs.cov[:decisions, decisions:]
    variance = np.maximum(np.diag(beliefs.cov)[decisions:], 0.0)
    single = np.zeros(len(cost))
    best = np.full(len(cost), -np.inf)
    repeats = 1
    while repeats <= MAX_REPLICATES:
        fits = repeats * cost <= remaining
        if repeats > 1 and not fits.any():
            break
        swing = cross / np.sqrt(np.maximum(variance + beliefs.noise / repeats, 1e-18))
        # A collapsed pilot costs as much and says nothing about where healthy runs peak.
        gain = expected_gain(beliefs.mean, swing) * beliefs.healthy
        if repeats == 1:
            single = gain
        best = np.where(fits, np.maximum(best, gain / (repeats * cost)), best)
        repeats *= 2
    return best, single
