"""Where the optimum of an IsoFLOP slice lies, read off joint posterior draws.

Every draw is one way the whole slice may look; its highest point has a model, an update fraction and a regime.
The spread of these over draws is the answer; no draw's optimum is averaged before it has been found.

Notation (shapes)
    S   joint draws        L   models that the budget pays a step of        Q   update fractions per model
    V   (S, L, Q) values of the draws

Three things keep the answer honest. A flat top gives a wide interval for rho*, and says beside it which update
fractions lose next to nothing (`Optimum.near`), since that is what a user can act on. An optimum at the end of
the feasible range is reported as such (`Optimum.edge`): beyond the range the recipe does not exist, so the
true peak may be cut off there. And the setting recommended is the one with the greatest mean value, which
minimises expected regret; it need not be at the mean of rho*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from race.allocation import REGIMES
from race.errors import InvalidInput
from race.recipe import Recipe
from surrogate.points import FloatArray
from surrogate.slices import POINTS, Slice

if TYPE_CHECKING:
    from surrogate.model import Surrogate

__all__ = ["DRAWS", "NEAR", "POINTS", "Interval", "ModelOptimum", "Optimum", "Slice", "optimum"]

DRAWS = 2000
NEAR = 0.01  # of the range of mean values on the slice: what `near` calls next to nothing
_EDGE_WARNING = 0.2


@dataclass(frozen=True)
class Interval:
    """A mean with a central interval that contains it."""

    mean: float
    lo: float
    hi: float

    @classmethod
    def of(cls, draws: FloatArray, level: float) -> Interval:
        """Mean and quantiles of ``draws``, shape (S,)."""
        lo, hi = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        mean = float(draws.mean())
        return cls(mean, min(float(lo), mean), max(float(hi), mean))

    def to_dict(self) -> dict[str, float]:
        """Plain JSON types."""
        return {"mean": self.mean, "lo": self.lo, "hi": self.hi}


@dataclass(frozen=True)
class ModelOptimum:
    """One model's part of the slice.

    Attributes
    ----------
    probability
        That this model holds the optimum of the slice.
    rho, value
        Where this model's own optimum lies, and its expected value at its own best setting.
    best_rho
        Update fraction with the greatest mean value on this model.
    """

    model: str
    probability: float
    rho: Interval
    value: Interval
    best_rho: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "model": self.model,
            "probability": self.probability,
            "rho": self.rho.to_dict(),
            "value": self.value.to_dict(),
            "best_rho": self.best_rho,
        }


@dataclass(frozen=True)
class Optimum:
    """The optimum of one slice for one target.

    Attributes
    ----------
    budget, target, level
        The question.
    model, recommended_rho, update_ratio
        The setting with the greatest mean value.
    rho
        Distribution of rho*, over all models.
    value
        Expected value at the recommended setting.
    regimes
        Probability of each regime; they sum to 1.
    models
        Every model the budget pays for, ascending in size.
    regret
        Value lost by the recommended setting against each draw's own optimum.
    near
        Update fractions of the recommended model whose mean value is within 1 % of the slice's range of the
        best: (lo, hi).
    edge
        Probability that the optimum lies at an end of the feasible range.
    notes
        Plain words on models left out, flat tops and cut-off peaks.
    """

    budget: float
    target: str
    level: float
    model: str
    recommended_rho: float
    update_ratio: float
    rho: Interval
    value: Interval
    regimes: Mapping[str, float]
    models: tuple[ModelOptimum, ...]
    regret: Interval
    near: tuple[float, float]
    edge: float
    notes: tuple[str, ...]

    @property
    def regime(self) -> str:
        """The most probable regime."""
        return max(self.regimes, key=lambda name: self.regimes[name])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "budget": self.budget,
            "target": self.target,
            "level": self.level,
            "model": self.model,
            "recommended_rho": self.recommended_rho,
            "update_ratio": self.update_ratio,
            "rho_star": self.rho.to_dict(),
            "value": self.value.to_dict(),
            "regime": {"label": self.regime, "probabilities": dict(self.regimes)},
            "models": [m.to_dict() for m in self.models],
            "regret": self.regret.to_dict(),
            "near": {"lo": self.near[0], "hi": self.near[1]},
            "edge": self.edge,
            "notes": list(self.notes),
        }


def optimum(
    surrogate: Surrogate,
    *,
    budget: float,
    target: str = "native",
    models: Sequence[str] | None = None,
    recipe: Recipe | None = None,
    level: float = 0.9,
    points: int = POINTS,
    draws: int = DRAWS,
    seed: int = 0,
) -> Optimum:
    """Distribution of the optimum of the slice at ``budget``.

    Parameters
    ----------
    models
        Names on the surrogate's ladder; all of them by default.
    recipe
        What the slice is run with, at any update ratio; the surrogate's own by default.
    points
        Update fractions per model, at least 5.

    Raises
    ------
    InvalidInput
        A level outside (0, 1), too few points or draws, an unknown model or target.
    CannotDo
        The budget pays for no step of any model.
    """
    if not 0 < level < 1:
        raise InvalidInput(f"level: found {level!r}; allowed is a number strictly between 0 and 1")
    if points < 5 or draws < 20:
        raise InvalidInput(f"points, draws: found {points}, {draws}; allowed are at least 5 and at least 20")
    ladder = surrogate.ladder
    rungs = ladder.models if models is None else tuple(ladder[name] for name in models)
    on = Slice.build(rungs, recipe or surrogate.recipe, budget, points=points)
    flat = surrogate.sample(on.settings, target, draws=draws, seed=seed)
    values = flat.reshape(draws, *on.rhos.shape)
    rho, peak, at_end = on.peaks(values)
    line = peak.argmax(axis=1)
    each = np.arange(draws)
    rho_star = rho[each, line]
    counts = np.bincount(on.regimes(line, rho_star), minlength=len(REGIMES)) / draws
    mean = np.where(on.affordable, values.mean(axis=0), -np.inf)
    best, where = np.unravel_index(int(mean.argmax()), mean.shape)
    near = _near(mean, int(best), int(where), on.rhos)
    edge = float(at_end[each, line].mean())
    found = tuple(
        ModelOptimum(
            model.name,
            float(np.mean(line == i)),
            Interval.of(rho[:, i], level),
            Interval.of(values[:, i, int(mean[i].argmax())], level),
            float(on.rhos[i, int(mean[i].argmax())]),
        )
        for i, model in enumerate(on.models)
    )
    answer = Optimum(
        budget=float(budget),
        target=target,
        level=level,
        model=on.models[best].name,
        recommended_rho=float(on.rhos[best, where]),
        update_ratio=float(on.settings.a[best * on.rhos.shape[1] + where]),
        rho=Interval.of(rho_star, level),
        value=Interval.of(values[:, best, where], level),
        regimes={name: float(share) for name, share in zip(REGIMES, counts, strict=True)},
        models=found,
        regret=Interval.of(np.maximum(peak.max(axis=1) - values[:, best, where], 0), level),
        near=near,
        edge=edge,
        notes=on.left_out,
    )
    return replace(answer, notes=(*on.left_out, *_caveats(answer)))


def _near(mean: FloatArray, line: int, where: int, rhos: FloatArray) -> tuple[float, float]:
    """The stretch around the best setting whose mean value is within `NEAR` of the slice's range of it."""
    finite = mean[np.isfinite(mean)]
    bar = mean[line, where] - NEAR * float(np.ptp(finite))
    good = mean[line] >= bar
    low = high = where
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(good) - 1 and good[high + 1]:
        high += 1
    return float(rhos[line, low]), float(rhos[line, high])


def _caveats(found: Optimum) -> list[str]:
    notes = []
    if found.edge > _EDGE_WARNING:
        notes.append(
            f"the optimum lies at an end of the feasible update fractions with probability {found.edge:.2f}: the peak "
            "may be cut off by what the recipe can reach"
        )
    if found.near[1] - found.near[0] > 0.2:
        notes.append(
            f"flat top: on {found.model} every update fraction from {found.near[0]:.2f} to {found.near[1]:.2f} is "
            "expected to lose next to nothing"
        )
    return notes
