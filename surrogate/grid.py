"""The what-if grid: predictions and exact prices at settings that a page can list, without the surrogate at hand.

A page cannot carry the posterior, and a value interpolated between far-apart settings would not be what
``race query`` says. So the grid's axes are values that are *listed* (budgets, update fractions, reward models), the
page offers exactly these, and every number on it is the surrogate's own answer there.

Shares and recipes need no grid: unit costs are exact, and any update fraction follows from them.

Notation (shapes)
    T  targets   V  variants: a reward system with its scorer   L  models   B  budgets   Q  update fractions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from race.allocation import UnitCosts, trained_samples, unit_costs
from race.flops import Architecture
from race.ladders import LadderModel
from race.recipe import Recipe
from race.rewards import REWARD_SYSTEMS
from race.simulator import Settings
from surrogate.points import FloatArray

if TYPE_CHECKING:
    from surrogate.model import Surrogate

# Finest first: update fractions and budgets, as shares of the budget asked about.
_FINE = tuple(round(0.05 * i, 2) for i in range(1, 20))
_COARSE = (0.05, *(round(0.1 * i, 1) for i in range(1, 10)), 0.95)
_WIDE = ((1, 100), (3, 100), (1, 10), (3, 10), (1, 1), (3, 1), (10, 1))
_NARROW = ((1, 10), (3, 10), (1, 1), (3, 1), (10, 1))
_FEW = ((1, 10), (1, 1), (10, 1))
LEVELS = ((_FINE, _WIDE), (_FINE, _NARROW), (_COARSE, _NARROW), (_COARSE, _FEW))

# Rough milliseconds: simulating a setting, and predicting it per target from nothing and per data point. They choose
# how fine the grid is and nothing else; a choice by the clock would make pages differ from machine to machine.
_SIMULATE_MS, _PREDICT_MS, _PREDICT_MS_PER_POINT = 1.3, 0.1, 2.5e-4
_MOST_MS, _FIT_MS_PER_POINT = 5000.0, 0.5  # a large fit leaves less time for the grid

# Scorers that are worth asking about beside a reward system's own, by family of the ladder.
OTHER_SCORERS = {
    "prm": ("Qwen2.5-PRM-0.5B", "Qwen2.5-PRM-1.5B", "Qwen2.5-Math-PRM-7B"),
    "proxy-prm": ("Qwen2.5-PRM-0.5B", "Qwen2.5-PRM-1.5B"),
}
_NANO_SCORERS = {"prm": ("nano-prm", "nano-l"), "proxy-prm": ("nano-proxy-prm", "nano-l")}


@dataclass(frozen=True)
class Variant:
    """A reward system with the model that scores, if any, and the recipe that runs it."""

    reward: str
    scorer: str | None
    scorer_params: int
    recipe: Recipe


@dataclass(frozen=True)
class WhatIfGrid:
    """Predictions at every listed setting; ``mean``, ``lo``, ``hi`` have shape (T, V, L, B, Q).

    They are NaN where the recipe cannot reach the update fraction or the budget pays for no step. ``collapse``, shape
    (V, L, B, Q), is the probability that such a run collapses. ``costs`` has shape (V, L).
    """

    targets: tuple[str, ...]
    variants: tuple[Variant, ...]
    models: tuple[LadderModel, ...]
    budgets: tuple[int, ...]
    rhos: tuple[float, ...]
    costs: tuple[tuple[UnitCosts, ...], ...]
    mean: FloatArray
    lo: FloatArray
    hi: FloatArray
    collapse: FloatArray
    level: float


def variants(surrogate: Surrogate, recipe: Recipe) -> tuple[Variant, ...]:
    """Every reward system under ``recipe``, each with its own scorer first and then other sizes of it."""
    ladder, out = surrogate.ladder, []
    others = _NANO_SCORERS if ladder.name == "nano" else OTHER_SCORERS
    for name in REWARD_SYSTEMS:
        own = ladder.under(recipe, name)
        scorers: list[str | None] = [own.reward_model]
        if own.reward_model is not None:
            known = own.reward_model.lower()
            scorers += [other for other in others.get(name, ()) if other.lower() != known]
        for scorer in scorers:
            params = 0 if scorer is None else Architecture.from_config(scorer).params()
            out.append(Variant(name, scorer, params, replace(own, reward_model=scorer)))
    return tuple(out)


def what_if_grid(
    surrogate: Surrogate, *, budget: int, recipe: Recipe | None = None, level: float = 0.9
) -> WhatIfGrid:
    """Ask the surrogate about every listed setting around ``budget``.

    Parameters
    ----------
    recipe
        What settings are run with, under every reward system; the surrogate's own by default.
    """
    kinds = variants(surrogate, surrogate.recipe if recipe is None else recipe)
    rungs, targets = surrogate.ladder.models, surrogate.targets
    rhos, shares = _fineness(len(kinds) * len(rungs), len(targets), len(surrogate.state.data))
    budgets = tuple(dict.fromkeys(max(1, budget * top // bottom) for top, bottom in shares))
    costs = tuple(tuple(unit_costs(m.architecture, v.recipe) for m in rungs) for v in kinds)
    shape = (len(kinds), len(rungs), len(budgets), len(rhos))
    settings = Settings.concat(
        [Settings.grid(surrogate.ladder, v.recipe, rhos=rhos, budgets=budgets) for v in kinds]
    )
    runs = settings.feasible & _pays(settings, kinds, costs, shape)
    asked = np.flatnonzero(runs)
    # One simulation serves all targets, if the ensemble knows of all of them before it is first asked.
    ensemble = surrogate.ensemble
    ensemble.targets = tuple(dict.fromkeys((*ensemble.targets, *targets)))
    out = np.full((3, len(targets), runs.size), np.nan)
    for t, target in enumerate(targets):
        found = surrogate.predict(settings[asked], target, level=level)
        for k, values in enumerate((found.mean, found.lo, found.hi)):
            out[k, t, asked] = values
    mean, lo, hi = out.reshape(3, len(targets), *shape)
    collapse = np.full(runs.size, np.nan)
    collapse[asked] = surrogate.collapse_risk(settings[asked])
    return WhatIfGrid(targets, kinds, rungs, budgets, rhos, costs, mean, lo, hi, collapse.reshape(shape), level)


def _fineness(
    lines: int, targets: int, data: int
) -> tuple[tuple[float, ...], Sequence[tuple[int, int]]]:
    """The finest axes whose predictions are expected to stay within `_MOST_MS`."""
    each = _SIMULATE_MS + targets * (_PREDICT_MS + _PREDICT_MS_PER_POINT * data)
    most = _MOST_MS - _FIT_MS_PER_POINT * data
    for rhos, shares in LEVELS:
        if lines * len(rhos) * len(shares) * each <= most:
            break
    return rhos, shares


def _pays(
    settings: Settings, kinds: Sequence[Variant], costs: Sequence[Sequence[UnitCosts]], shape: tuple[int, ...]
) -> np.ndarray:
    """True where the budget pays for one step in whole samples, as `race.allocation.size_run` demands."""
    ratio = settings.a.reshape(shape)
    step = np.empty(shape)
    for v, variant in enumerate(kinds):
        recipe = variant.recipe
        for m, price in enumerate(costs[v]):
            for q in range(shape[3]):
                trained = trained_samples(float(ratio[v, m, 0, q]), recipe.samples_per_step)
                step[v, m, :, q] = price.step(recipe.prompts_per_step, trained).total
    return np.asarray(step.ravel() <= settings.budget)
