"""`ReportData`: everything a report shows, as plain numbers and words.

Gathered by whoever has a surrogate (`planner.reporting`), drawn by `race.reports.page` and `race.reports.figures`.
Values lie in [0, 1], costs are FLOPs, shares add up to 1. Names and reasons are whatever records say: nothing in
here is safe to put into a page unescaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from race.allocation import UnitCosts
from race.recipe import Recipe

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One model along one IsoFLOP slice; arrays have shape (Q,), ``rho`` increasing.

    Attributes
    ----------
    mean, lo, hi
        Posterior mean and central interval of the expected value.
    probability
        That this model holds the optimum of the slice.
    rho_star
        ``mean``, ``lo``, ``hi`` of where this model's own optimum lies.
    regimes
        Probability of each regime at this model's own optimum.
    """

    model: str
    rho: FloatArray
    mean: FloatArray
    lo: FloatArray
    hi: FloatArray
    probability: float
    rho_star: Mapping[str, float]
    regimes: Mapping[str, float]


@dataclass(frozen=True)
class Slice:
    """All models at one budget, for one target.

    Attributes
    ----------
    rho_star
        ``mean``, ``lo``, ``hi`` of where the optimum over all models lies.
    regimes
        Probability of each regime.
    """

    target: str
    budget: float
    lines: tuple[Line, ...]
    rho_star: Mapping[str, float]
    regimes: Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """One record, as evidence.

    Attributes
    ----------
    used
        Whether it entered the response surface.
    curves
        Per target ``(flops, value, se)``, each of one length.
    """

    id: str
    model: str
    reward: str
    evidence: str
    status: str
    reason: str
    seed: int
    search: float
    learning: float
    scoring: float
    steps: int
    used: bool
    curves: Mapping[str, tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]]

    @property
    def flops(self) -> float:
        """C_total."""
        return self.search + self.learning + self.scoring

    @property
    def shares(self) -> tuple[float, float, float]:
        """``(sigma, rho, phi)``; zeros when nothing was spent."""
        total = self.flops
        return (self.search / total, self.learning / total, self.scoring / total) if total else (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scored:
    """A reward system with its scorer on the what-if page; ``costs`` by model."""

    reward: str
    scorer: str | None
    scorer_params: int
    recipe: Recipe
    costs: tuple[UnitCosts, ...]


@dataclass(frozen=True)
class WhatIf:
    """The surrogate's answers at listed settings; arrays have shape (targets, variants, models, budgets, rhos).

    ``collapse`` lacks the targets' axis. NaN where a setting cannot be run.
    """

    targets: tuple[str, ...]
    variants: tuple[Scored, ...]
    models: tuple[tuple[str, int], ...]
    budgets: tuple[int, ...]
    rhos: tuple[float, ...]
    mean: FloatArray
    lo: FloatArray
    hi: FloatArray
    collapse: FloatArray
    level: float


@dataclass(frozen=True)
class ReportData:
    """One report.

    Attributes
    ----------
    store, surrogate
        Paths as the reader may type them; ``surrogate`` is what ``race query`` takes.
    decision
        `planner.Decision.to_dict()`.
    cost
        `race.hardware.HardwareCost.to_dict()` of the recommended run.
    budget_note
        Where the budget comes from, if nobody gave one.
    slices
        IsoFLOP slices by budget, for every target.
    models
        Name and parameters, ascending.
    paths
        Per (model, reward) the straight line of allocations its update ratio can reach: two ends (sigma, rho, phi).
    runs
        Every record.
    checks
        `surrogate.Diagnostics.to_dict()` of leaving one run out.
    minds, largest_pilot
        Pilots that could change the decision, most likely first, and the FLOPs of the largest that was considered.
    assumptions
        Title and text.
    """

    store: str
    surrogate: str
    decision: Mapping[str, Any]
    cost: Mapping[str, Any] | None
    budget_note: str
    models: tuple[tuple[str, int], ...]
    slices: tuple[Slice, ...]
    paths: tuple[tuple[str, str, tuple[float, float, float], tuple[float, float, float]], ...]
    runs: tuple[Run, ...]
    checks: Mapping[str, Any]
    minds: tuple[Mapping[str, Any], ...]
    largest_pilot: int
    assumptions: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...]
    what_if: WhatIf | None

    @property
    def budget(self) -> int:
        """FLOPs the decision is about."""
        return int(self.decision["budget"])

    @property
    def target(self) -> str:
        """The target decided on."""
        return str(self.decision["target"])

    @property
    def reward(self) -> str:
        """The reward system decided on."""
        return str(self.decision["reward"])

    @property
    def targets(self) -> tuple[str, ...]:
        """Targets with slices, the decided one first."""
        return tuple(dict.fromkeys((self.target, *(s.target for s in self.slices))))

    def slices_of(self, target: str) -> tuple[Slice, ...]:
        """Slices of one target, ascending in budget."""
        return tuple(sorted((s for s in self.slices if s.target == target), key=lambda s: s.budget))
