"""From observations to a posterior: hyperparameters, doubtful runs, components.

1. Hyperparameters by MAP on all points, or on a subset of long curves (`inference`).
2. Runs that fit neither the simulator nor the others get a larger noise, if the likelihood pays for it: a
   scale mixture, so a Student-t, by closed-form leave-one-run-out prediction.
3. Evaluation noise is moved to the latent scale at the fitted value instead of the measured one, so that a
   lucky point does not look precise.
4. One `Component` per hyperparameter draw, weighted by prior x likelihood / proposal.
5. The spread of the whole, by how well it foretells settings left out (`calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surrogate.calibration import spread_factor
from surrogate.hyperparameters import Hyperparameters, log_prior, prior_draws
from surrogate.inference import draw, learn, subset
from surrogate.kernels import Gram
from surrogate.linalg import cholesky, solve_lower
from surrogate.link import latent_sd, to_value
from surrogate.pending import Pending
from surrogate.points import Data, FloatArray
from surrogate.posterior import Component, Posterior, share

BANDWIDTHS = (0.25, 0.45, 0.75)
# Hyperparameter draws carried, by number of points up to which: a fit stays within half a second at 300 points and
# within seconds at 2,000.
DRAWS = ((800, 9), (1500, 5), (10**9, 3))
PRIOR_DRAWS = 12
PRIOR_BANDWIDTH = 0.2

# Amplitudes beyond which runs contradict each other or the simulator, several times what any own or alien world or
# published curve gives (run .06, level .3, shape .1); records of random values exceed at least one of them.
STRAIN = {"run": 0.3, "level": 1.5, "shape": 1.0}
MIN_RUNS_TO_DOUBT = 4
_FACTORS = np.array([1.0, 4.0, 16.0, 64.0, 256.0])
_ROUNDS = 3
_LEAST_WEIGHT = 5e-3  # draws below this share change no answer and cost as much as the others
_TAIL = 4.0  # degrees of freedom of the Student-t that the inflation stands for


@dataclass(frozen=True)
class Fit:
    """Data, noise and posterior; all that prediction needs beside the worlds.

    Attributes
    ----------
    variance
        Latent evaluation variance, shape (n,).
    inflation
        Noise factor of each run, shape (runs,).
    """

    data: Data
    variance: FloatArray
    inflation: FloatArray
    posterior: Posterior | Pending

    @property
    def doubted(self) -> list[tuple[int, float]]:
        """(run, factor) of every run whose noise was inflated."""
        return [(int(i), float(f)) for i, f in enumerate(self.inflation) if f > 1]

    @property
    def oddness(self) -> float:
        """Mean noise factor of the runs, by which a fresh run's noise is larger than that of one nobody doubts: it may
        turn out as odd as those that were doubted."""
        return float(self.inflation.mean()) if len(self.inflation) else 1.0

    @property
    def strained(self) -> bool:
        """Whether the data only fit with errors that neither seeds nor the simulator are known to make."""
        if not len(self.data) or isinstance(self.posterior, Pending):
            return False
        components, weights = self.posterior.components, self.posterior.weights
        typical = Hyperparameters(weights @ np.stack([c.theta for c in components]))
        return any(getattr(typical, name) > most for name, most in STRAIN.items())


def fit(data: Data, *, seed: int) -> Fit:
    """Posterior given observations; the prior when there are none."""
    nothing = np.empty(0)
    if not len(data):
        thetas = prior_draws(PRIOR_DRAWS, seed=seed)
        components = tuple(Component(data, t, PRIOR_BANDWIDTH, nothing, nothing) for t in thetas)
        return Fit(data, nothing, nothing, Posterior(components, np.full(len(components), 1 / len(components))))
    runs = len(data.blocks)
    inflation = np.ones(runs)
    variance = latent_sd(data.value, data.se) ** 2
    theta, spread = _learn(data, variance, inflation)
    for _ in range(_ROUNDS):
        component = Component(data, theta, 1.0, variance, inflation)
        variance = latent_sd(to_value(component.fitted()), data.se) ** 2
        doubted = _inflate(component, inflation) if runs >= MIN_RUNS_TO_DOUBT else inflation
        if np.array_equal(doubted, inflation):
            break
        # An outlier first hides behind a large seed variance; once it is doubted that variance falls, and the
        # next look sees the outlier plainer.
        inflation = doubted
        theta, spread = _learn(data, variance, inflation)
    count = next(draws for points, draws in DRAWS if len(data) <= points)
    thetas, shared = draw(theta, spread, count, seed=seed), share(data, data)
    components = tuple(
        Component(data, t, BANDWIDTHS[i % len(BANDWIDTHS)], variance, inflation, shared) for i, t in enumerate(thetas)
    )
    precision = np.linalg.inv(spread)
    proposal = np.array([-0.5 * (t - theta) @ precision @ (t - theta) for t in thetas])
    target = np.array([c.evidence + log_prior(t)[0] for c, t in zip(components, thetas, strict=True)])
    weights = np.exp(target - proposal - (target - proposal).max())
    weights /= weights.sum()
    kept = np.flatnonzero(weights > _LEAST_WEIGHT)
    components, weights = tuple(components[i] for i in kept), np.asarray(weights[kept] / weights[kept].sum())
    return Fit(data, variance, inflation, Posterior(components, weights, spread_factor(components, weights, data)))


def _learn(data: Data, variance: FloatArray, inflation: FloatArray) -> tuple[FloatArray, FloatArray]:
    chosen = subset(data)
    part = data[chosen]
    runs = np.unique(part.run, return_index=False)
    return learn(Gram(part, variance[chosen], inflation[np.searchsorted(np.unique(data.run), runs)]))


def _inflate(component: Component, before: FloatArray) -> FloatArray:
    """Noise factor of each run: the best of `_FACTORS` by leave-one-run-out likelihood x prior.

    With the left-out prediction's covariance S = L L' and the run's own noise N, L^-1 N L^-T = Q diag(l) Q' makes
    the likelihood of every factor f a sum over 1 + (f - 1) l. The component carries the factors ``before`` in N.
    """
    data = component.data
    inverse_factor = solve_lower(component.factor, np.eye(len(data)))
    alpha = component.alpha[:, 0]
    prior = -0.5 * _TAIL * (np.log(_FACTORS) + 1 / _FACTORS)
    out = np.ones(len(data.blocks))
    for i, block in enumerate(data.blocks):
        # Rows above the block are zero there: the factor's inverse is lower triangular.
        part = inverse_factor[block.start :, block]
        left_out = np.linalg.inv(part.T @ part)
        lower = cholesky(0.5 * (left_out + left_out.T))
        whiten = np.linalg.inv(lower)
        share, axes = np.linalg.eigh(whiten @ component.noise_blocks[i] @ whiten.T)
        error = axes.T @ (whiten @ (left_out @ alpha[block]))
        raised = np.maximum(1 + (_FACTORS[:, None] / before[i] - 1) * np.maximum(share, 0), 1e-9)
        score = -0.5 * np.sum(error**2 / raised + np.log(raised), axis=1)
        out[i] = _FACTORS[int(np.argmax(score + prior))]
    return out
