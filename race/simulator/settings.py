"""Settings: what the simulator needs to know about a run, as arrays.

A setting is one (model, recipe, budget). The simulator never sees an architecture: it sees sizes, the knobs
of the recipe, and what one step costs in each phase, priced by `race.allocation.unit_costs`. That is the only
way in which cost reaches the dynamics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from race.allocation import REGIMES, UnitCosts, regime_of, unit_costs
from race.errors import InvalidInput
from race.flops import Architecture
from race.ladders import Ladder, LadderModel
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.rewards import REWARD_SYSTEMS

FloatArray = npt.NDArray[np.float64]
REWARDS: tuple[str, ...] = tuple(REWARD_SYSTEMS)


@dataclass(frozen=True, eq=False)
class Settings:
    """A table of n settings; every field has shape (n,).

    Attributes
    ----------
    params
        N, parameters of the policy.
    reward
        Index into `REWARDS`.
    reward_params
        Parameters of the reward model; 0 for rules.
    prompts, group
        P and G: groups per step and samples per group.
    a
        Update ratio, samples trained on per sample generated. Not rounded to whole samples.
    lr
        Learning rate relative to the tuned one.
    kl
        1 when beta > 0, else 0.
    rank
        LoRA rank; infinite for full fine-tuning.
    search, learning, reward_cost
        FLOPs of one step by phase.
    budget
        C_total in FLOPs.
    """

    params: FloatArray
    reward: npt.NDArray[np.int64]
    reward_params: FloatArray
    prompts: FloatArray
    group: FloatArray
    a: FloatArray
    lr: FloatArray
    kl: FloatArray
    rank: FloatArray
    search: FloatArray
    learning: FloatArray
    reward_cost: FloatArray
    budget: FloatArray

    def __len__(self) -> int:
        return int(self.params.shape[0])

    def __getitem__(self, index: int | slice | npt.ArrayLike) -> Settings:
        """Rows by position, slice, index array or boolean mask; an int gives a table of one row."""
        rows = np.atleast_1d(np.arange(len(self))[index])  # type: ignore[index]
        return Settings(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @property
    def samples(self) -> FloatArray:
        """S = P G, samples generated per step."""
        return self.prompts * self.group

    @property
    def step_flops(self) -> FloatArray:
        """FLOPs of one step, all phases."""
        return self.search + self.learning + self.reward_cost

    @property
    def steps(self) -> FloatArray:
        """Steps that the budget pays for; real-valued, may be below 1."""
        return self.budget / self.step_flops

    @property
    def rho(self) -> FloatArray:
        """Update fraction."""
        return self.learning / self.step_flops

    @property
    def sigma(self) -> FloatArray:
        """Search share."""
        return self.search / self.step_flops

    @property
    def phi(self) -> FloatArray:
        """Reward share."""
        return self.reward_cost / self.step_flops

    @property
    def feasible(self) -> npt.NDArray[np.bool_]:
        """Whether a is inside [1/16, 16] (up to rounding)."""
        low, high = MIN_UPDATE_RATIO * (1 - 1e-12), MAX_UPDATE_RATIO * (1 + 1e-12)
        return (self.a >= low) & (self.a <= high)

    @property
    def regime(self) -> npt.NDArray[np.int64]:
        """Index into `race.allocation.REGIMES` of each setting's own shares."""
        names = [regime_of(*shares) for shares in zip(self.rho, self.sigma, self.phi, strict=True)]
        return np.array([REGIMES.index(name) for name in names], dtype=np.int64)

    def with_budget(self, budget: npt.ArrayLike) -> Settings:
        """Return the same settings at another budget (a scalar or shape (n,))."""
        return replace(
            self, budget=np.broadcast_to(np.asarray(budget, dtype=np.float64), (len(self),)).copy()
        )

    @classmethod
    def concat(cls, parts: Sequence[Settings]) -> Settings:
        """Stack tables."""
        if not parts:
            return cls.build([])
        return cls(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)})

    @classmethod
    def build(cls, rows: Sequence[tuple[LadderModel, Recipe, int]]) -> Settings:
        """One setting per (model, recipe, budget)."""
        parts = [
            _table(model, recipe, np.array([recipe.update_ratio]), np.array([float(budget)]))
            for model, recipe, budget in rows
        ]
        if not parts:
            columns: dict[str, Any] = {f.name: np.empty(0) for f in fields(cls)}
            return cls(**columns | {"reward": np.empty(0, dtype=np.int64)})
        return cls.concat(parts)

    @classmethod
    def grid(
        cls,
        ladder: Ladder,
        recipe: Recipe,
        *,
        rhos: npt.ArrayLike,
        budgets: npt.ArrayLike,
        models: Sequence[str] | None = None,
    ) -> Settings:
        """Every model x budget x rho, in that (C) order: shape (models * budgets * rhos,).

        ``recipe.update_ratio`` is ignored: a is solved from each rho. A rho that no allowed a reaches keeps
        its row, with that a and ``feasible`` false, so that the table keeps its shape.
        """
        rho = np.atleast_1d(np.asarray(rhos, dtype=np.float64))
        if not np.all((rho > 0) & (rho < 1)):
            raise InvalidInput(
                "rhos: found a value outside (0, 1); allowed are update fractions inside (0, 1)"
            )
        budget = np.atleast_1d(np.asarray(budgets, dtype=np.float64))
        parts = []
        for name in models if models is not None else [m.name for m in ladder.models]:
            model = ladder[name]
            a = price(model.architecture, recipe).update_ratio(rho)
            parts.append(_table(model, recipe, np.tile(a, budget.size), np.repeat(budget, rho.size)))
        return cls.concat(parts)

    @classmethod
    def sweep(
        cls, models: Sequence[LadderModel], recipe: Recipe, *, ratios: npt.ArrayLike, budget: float
    ) -> Settings:
        """Every model x update ratio at one budget, model-major: shape (models * ratios,)."""
        a = np.atleast_1d(np.asarray(ratios, dtype=np.float64))
        return cls.concat([_table(m, recipe, a, np.full(a.size, float(budget))) for m in models])


def price(architecture: Architecture, recipe: Recipe) -> UnitCosts:
    """`unit_costs`, which do not depend on a, so that one cache entry serves every a."""
    return unit_costs(architecture, recipe.with_update_ratio(1.0))


@lru_cache(maxsize=256)
def _reward_params(name: str | None) -> float:
    return 0.0 if name is None else float(Architecture.from_config(name).params())


def _table(model: LadderModel, recipe: Recipe, a: FloatArray, budget: FloatArray) -> Settings:
    costs = price(model.architecture, recipe)
    n = a.size
    generated = float(recipe.samples_per_step)

    def full(value: float) -> FloatArray:
        return np.full(n, float(value))

    return Settings(
        params=full(model.params),
        reward=np.full(n, REWARDS.index(recipe.reward), dtype=np.int64),
        reward_params=full(_reward_params(recipe.reward_model)),
        prompts=full(recipe.prompts_per_step),
        group=full(recipe.group_size),
        a=a.astype(np.float64),
        lr=full(recipe.learning_rate),
        kl=full(recipe.kl),
        rank=full(np.inf if recipe.lora is None else recipe.lora.rank),
        search=full(recipe.prompts_per_step * float(costs.search_group)),
        learning=costs.learning(a) * generated,
        reward_cost=full(generated * float(costs.reward)),
        budget=budget.astype(np.float64),
    )
