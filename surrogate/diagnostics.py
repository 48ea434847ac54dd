"""How well the surrogate predicts what it was not shown.

Leave one run out is in closed form (`surrogate.left_out`). Leave one model out refits everything without the model,
hyperparameters included: it is the question a user asks before trusting an extrapolation in size.

Intervals here are for *measurements* (seed, wander and evaluation noise included), since these are what is compared,
and widened as all others are (`surrogate.calibration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from race.errors import InvalidInput
from surrogate.fitting import Fit, fit
from surrogate.hyperparameters import Hyperparameters
from surrogate.kernels import noise_block
from surrogate.left_out import Forecast, LeftOut, shares
from surrogate.link import latent_sd, to_value
from surrogate.points import Data, FloatArray
from surrogate.posterior import standard_draws


@dataclass(frozen=True)
class Check:
    """One measurement against its prediction from the other runs."""

    record: str
    model: str
    target: str
    flops: float
    observed: float
    mean: float
    lo: float
    hi: float

    @property
    def covered(self) -> bool:
        """Whether the interval contains the measurement."""
        return self.lo <= self.observed <= self.hi


@dataclass(frozen=True)
class Diagnostics:
    """Coverage and error of a set of checks.

    Attributes
    ----------
    left_out
        ``run`` or ``model``.
    level
        What the intervals claim to cover.
    coverage, rmse
        What they did cover, and the root mean square error of the means; NaN-free: ``None`` without checks.
    spread
        Root mean square distance of the measurements from their own mean: what ``rmse`` should stay below.
    """

    left_out: str
    level: float
    checks: tuple[Check, ...]

    @property
    def coverage(self) -> float | None:
        """Share of measurements inside their interval."""
        return float(np.mean([c.covered for c in self.checks])) if self.checks else None

    @property
    def rmse(self) -> float | None:
        """Root mean square error of the predicted means."""
        errors = [c.observed - c.mean for c in self.checks]
        return float(np.sqrt(np.mean(np.square(errors)))) if errors else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the measurements."""
        return float(np.std([c.observed for c in self.checks])) if self.checks else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "left_out": self.left_out,
            "level": self.level,
            "count": len(self.checks),
            "coverage": self.coverage,
            "rmse": self.rmse,
            "spread": self.spread,
            "checks": [{**asdict(c), "covered": c.covered} for c in self.checks],
        }


def leave_one_run_out(
    state: Fit, records: Sequence[str], models: Sequence[str], targets: Sequence[str], *, level: float = 0.9
) -> Diagnostics:
    """Predict the end of every curve from the other runs.

    Parameters
    ----------
    records, models
        Record id and model name of each run, in the order of ``state.data.blocks``.
    """
    _check_level(level)
    data = state.data
    if not len(data):
        return Diagnostics("run", level, ())
    components, weights = state.posterior.components, state.posterior.weights
    views = [LeftOut(c) for c in components]
    checks = []
    for run, block in enumerate(data.blocks):
        answers = [view.predict(np.arange(block.start, block.stop)) for view in views]
        share = shares(answers, components, weights)
        for end in _ends(data, block):
            values = to_value(_mixture(answers, share, end - block.start, state.posterior.spread))
            checks.append(_check(data, end, values, records[run], models[run], targets, level))
    return Diagnostics("run", level, tuple(checks))


def leave_one_model_out(
    state: Fit,
    records: Sequence[str],
    models: Sequence[str],
    targets: Sequence[str],
    *,
    level: float = 0.9,
    seed: int = 0,
) -> Diagnostics:
    """Predict every point of every curve of each model from the other models; same parameters as above."""
    _check_level(level)
    data = state.data
    names = np.array(models, dtype=object)[data.run] if len(data) else np.empty(0, dtype=object)
    checks = []
    levels, order = standard_draws()
    shuffled = np.random.default_rng(seed).permutation(levels)  # noise that does not know the draw it is added to
    for model in dict.fromkeys(models):
        out = np.flatnonzero(names == model)
        rest = fit(data[np.flatnonzero(names != model)], seed=seed)
        there = data[out]
        latent = rest.posterior.marginal_draws(there, levels, order)
        extra = rest.posterior.spread**2 * _measurement_variance(rest, there)
        latent = latent + shuffled[:, None] * np.sqrt(extra)
        values = to_value(latent)
        for column, point in enumerate(out):
            run = int(data.run[point])
            checks.append(_check(data, int(point), values[:, column], records[run], model, targets, level))
    return Diagnostics("model", level, tuple(checks))


def _mixture(answers: Sequence[Forecast], share: FloatArray, column: int, spread: float) -> FloatArray:
    """Stratified draws of one left-out measurement."""
    levels, order = standard_draws()
    means = np.concatenate([answer.means[:, column] for answer in answers])
    sds = np.concatenate([np.full(len(a.means), np.sqrt(a.variances[column])) for a in answers])
    weights = np.concatenate([s * answer.weights for s, answer in zip(share, answers, strict=True)])
    edges = np.cumsum(weights)
    pick = np.minimum(np.searchsorted(edges, order * edges[-1], side="right"), len(edges) - 1)
    centre = float(weights @ means / edges[-1])
    return np.asarray(centre + spread * (means[pick] + levels * sds[pick] - centre))


def _measurement_variance(state: Fit, points: Data) -> FloatArray:
    """Latent variance of measuring ``points`` in fresh runs, shape (n,)."""
    evaluation = latent_sd(points.value, points.se) ** 2
    total = np.zeros(len(points))
    for component, weight in zip(state.posterior.components, state.posterior.weights, strict=True):
        hyper = Hyperparameters(component.theta)
        for block in points.blocks:
            total[block] += weight * np.diag(noise_block(points, block, hyper, evaluation))
    return total


def _ends(data: Data, block: slice) -> list[int]:
    """Index of the last point of each target's curve in a run."""
    inside = np.arange(block.start, block.stop)
    return [int(inside[data.target[inside] == t][-1]) for t in np.unique(data.target[inside])]


def _check(
    data: Data, point: int, values: FloatArray, record: str, model: str, targets: Sequence[str], level: float
) -> Check:
    lo, hi = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Check(
        record=record,
        model=model,
        target=targets[int(data.target[point])],
        flops=float(np.exp(data.x[point, 2])),
        observed=float(data.value[point]),
        mean=float(values.mean()),
        lo=float(lo),
        hi=float(hi),
    )


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InvalidInput(f"level: found {level!r}; allowed is a number strictly between 0 and 1")
