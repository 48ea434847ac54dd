"""Recipe <-> allocation: what a recipe costs, and which recipe buys a given update fraction.

Notation (DESIGN words; per step unless said otherwise)
    S      samples generated, P * G
    a      update ratio; a*S samples are trained on, min(a, 1)*S of them distinct
    s, q   search and reward FLOPs per generated sample
    u      update FLOPs per trained sample (forward + backward + recompute)
    o      one adapter-on forward: old log-probs, for each sample that is trained on again
    k      one adapter-off forward: reference log-probs, for each distinct trained sample, if beta > 0

    learning(a) / S = u*a + o*clip(a - 1, 0, 1) + k*min(a, 1)
    rho(a)          = learning / (learning + S*(s + q))

The first pass of an on-policy step needs no old log-probs: one optimiser step per pass means the first pass
*is* the old policy. A sample used again needs them once. (A recipe that recomputes them for all, as verl does,
pays o on min(a, 1) instead of clip(a - 1, 0, 1).) Either way learning(a) continuous, piecewise linear
and strictly increasing, so rho -> a has a closed form and the round trip is exact.

Everything accepts numpy arrays for ``a``, ``rho`` and budgets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from race.errors import InvalidInput
from race.flops import Architecture, CostFunctions, LoraSpec, cost_functions
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.units import format_flops

Attention = Literal["causal", "full"]
Regime = Literal["search-heavy", "update-heavy", "reward-heavy"]
REGIMES: tuple[Regime, ...] = ("search-heavy", "update-heavy", "reward-heavy")
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Allocation:
    """FLOPs by phase. ``rho`` + ``sigma`` + ``phi`` = 1; all three are NaN when nothing was spent."""

    search: int | float
    learning: int | float
    reward: int | float

    @property
    def total(self) -> int | float:
        """C_total = C_search + C_learning + C_reward, in FLOPs."""
        return self.search + self.learning + self.reward

    @property
    def rho(self) -> float:
        """Update fraction, C_learning / C_total."""
        return float(self.learning / self.total) if self.total else math.nan

    @property
    def sigma(self) -> float:
        """Search share, C_search / C_total."""
        return float(self.search / self.total) if self.total else math.nan

    @property
    def phi(self) -> float:
        """Reward share, C_reward / C_total."""
        return float(self.reward / self.total) if self.total else math.nan

    @property
    def shares(self) -> dict[str, float]:
        """The three shares by phase name."""
        return {"search": self.sigma, "learning": self.rho, "reward": self.phi}

    def __add__(self, other: Allocation) -> Allocation:
        return Allocation(
            self.search + other.search, self.learning + other.learning, self.reward + other.reward
        )

    def __mul__(self, times: int) -> Allocation:
        return Allocation(self.search * times, self.learning * times, self.reward * times)

    def to_dict(self) -> dict[str, int | float]:
        """Phases and total as plain numbers."""
        return {
            "search": self.search,
            "learning": self.learning,
            "reward": self.reward,
            "total": self.total,
        }


@dataclass(frozen=True)
class UnitCosts:
    """FLOPs of one unit of each kind of work; exact ints when the recipe's lengths are ints.

    Attributes
    ----------
    group_size
        G.
    search_group
        One prompt group: its prefill (once, or G times without prefix caching) and G cached decodes.
    reward
        q, one reward-model forward over prompt + completion.
    update, old_logprobs, reference
        u, o and k of the module notation; ``reference`` is 0 when beta = 0.
    recompute_old_logprobs
        Whether o is paid for every distinct trained sample or only for those trained on again.
    """

    group_size: int
    search_group: int | float
    reward: int | float
    update: int | float
    old_logprobs: int | float
    reference: int | float
    recompute_old_logprobs: bool = False

    @property
    def _distinct(self) -> int | float:
        """FLOPs beside the update that each distinct trained sample takes."""
        return self.reference + (self.old_logprobs if self.recompute_old_logprobs else 0)

    @property
    def _again(self) -> int | float:
        """FLOPs beside the update that each sample trained on again takes."""
        return 0 if self.recompute_old_logprobs else self.old_logprobs

    @property
    def overhead(self) -> float:
        """s + q: what a generated sample costs before anything is learned from it."""
        return self.search_group / self.group_size + self.reward

    def step(self, prompts: int, trained: float) -> Allocation:
        """FLOPs of a step of ``prompts`` groups of which ``trained`` samples are trained on."""
        generated = prompts * self.group_size
        reused = min(max(trained - generated, 0), generated)
        return Allocation(
            search=prompts * self.search_group,
            learning=self.update * trained + self._again * reused + self._distinct * min(trained, generated),
            reward=self.reward * generated,
        )

    def learning(self, a: npt.ArrayLike) -> FloatArray:
        """Learning FLOPs per generated sample at update ratio ``a`` (broadcasts)."""
        a = np.asarray(a, dtype=np.float64)
        flops = self.update * a + self._again * np.clip(a - 1, 0, 1) + self._distinct * np.minimum(a, 1)
        return np.asarray(flops, dtype=np.float64)

    def rho(self, a: npt.ArrayLike) -> FloatArray:
        """Update fraction at update ratio ``a`` (broadcasts)."""
        learning = self.learning(a)
        return np.asarray(learning / (learning + self.overhead), dtype=np.float64)

    def shares(self, a: npt.ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``(sigma, rho, phi)`` at update ratio ``a`` (broadcasts)."""
        learning = self.learning(a)
        total = learning + self.overhead
        return self.search_group / self.group_size / total, learning / total, self.reward / total

    def update_ratio(self, rho: npt.ArrayLike) -> FloatArray:
        """Inverse of `rho`, unbounded: the a that buys an update fraction in (0, 1) (broadcasts)."""
        rho = np.asarray(rho, dtype=np.float64)
        target = rho / (1 - rho) * self.overhead
        first = self.update + self._distinct  # slope on [0, 1]
        second = self.update + self._again  # slope on [1, 2]
        at_two = first + second
        beyond = np.where(
            target <= at_two, 1 + (target - first) / second, 2 + (target - at_two) / self.update
        )
        return np.asarray(np.where(target <= first, target / first, beyond), dtype=np.float64)

    @property
    def rho_range(self) -> tuple[float, float]:
        """Update fractions reachable with a between 1/16 and 16."""
        lo, hi = self.rho(np.array([MIN_UPDATE_RATIO, MAX_UPDATE_RATIO]))
        return float(lo), float(hi)


@lru_cache(maxsize=4096)
def _costs(
    arch: Architecture, lora: LoraSpec | None, attention: Attention, checkpointing: bool
) -> CostFunctions:
    return cost_functions(arch, lora=lora, attention=attention, gradient_checkpointing=checkpointing)


@lru_cache(maxsize=4096)
def unit_costs(arch: Architecture, recipe: Recipe, *, attention: Attention = "causal") -> UnitCosts:
    """Price one unit of each phase of ``recipe`` on ``arch``.

    Logits are computed on the c completion positions in the update, on the last prompt position in the
    prefill, and at every position in a reward model.
    """
    policy = _costs(arch, recipe.lora, attention, recipe.gradient_checkpointing)
    p, c = recipe.prompt_tokens, recipe.completion_tokens
    length = p + c
    reward: int | float = 0
    if recipe.reward_model is not None:
        scorer = _costs(Architecture.from_config(recipe.reward_model), None, attention, False)
        reward = scorer.forward(length, logits=length)
    prefills = 1 if recipe.prefix_caching else recipe.group_size
    return UnitCosts(
        group_size=recipe.group_size,
        search_group=prefills * policy.prefill(p) + recipe.group_size * policy.decode(p, c),
        reward=reward,
        update=policy.update(length, logits=c),
        old_logprobs=policy.forward(length, logits=c),
        reference=policy.forward_base(length, logits=c) if recipe.kl else 0,
        recompute_old_logprobs=recipe.recompute_old_logprobs,
    )


def step_allocation(arch: Architecture, recipe: Recipe, *, attention: Attention = "causal") -> Allocation:
    """FLOPs of one full step by phase, with a*S rounded to whole samples."""
    return unit_costs(arch, recipe, attention=attention).step(
        recipe.prompts_per_step, trained_samples(recipe.update_ratio, recipe.samples_per_step)
    )


def trained_samples(a: float, generated: int) -> int:
    """Whole samples trained on out of ``generated`` at update ratio ``a``; at least one."""
    return max(1, round(a * generated))


def regime_of(rho: float, sigma: float, phi: float) -> Regime:
    """Name the regime of an optimum with these shares (DESIGN section 2)."""
    if rho >= 0.5:
        return "update-heavy"
    return "search-heavy" if sigma >= phi else "reward-heavy"


def solve_update_ratio(arch: Architecture, recipe: Recipe, rho: float) -> float:
    """The update ratio at which ``recipe`` on ``arch`` spends the fraction ``rho`` on learning.

    Raises
    ------
    InvalidInput
        ``rho`` is outside (0, 1), or would need an update ratio outside [1/16, 16]; the message gives the
        feasible range.
    """
    if isinstance(rho, bool) or not isinstance(rho, (int, float)) or not 0 < rho < 1:
        raise InvalidInput(f"rho: found {rho!r}; allowed is a number strictly between 0 and 1")
    costs = unit_costs(arch, recipe)
    a = float(costs.update_ratio(rho))
    # Tolerate the last ulp of the round trip at either end of the range.
    if not MIN_UPDATE_RATIO * (1 - 1e-12) <= a <= MAX_UPDATE_RATIO * (1 + 1e-12):
        lo, hi = costs.rho_range
        raise InvalidInput(
            f"rho: found {rho:g}, which needs update ratio a = {a:.3g} with reward {recipe.reward!r}; "
            f"allowed is rho from {math.ceil(lo * 1000) / 1000:.3f} to {math.floor(hi * 1000) / 1000:.3f} "
            "(a from 1/16 to 16)"
        )
    return min(max(a, MIN_UPDATE_RATIO), MAX_UPDATE_RATIO)


@dataclass(frozen=True)
class RunPlan:
    """A recipe sized to a budget: whole steps, then one smaller step for what is left.

    Attributes
    ----------
    recipe
        With ``update_ratio`` on a whole number of samples per step.
    budget
        FLOPs that must not be exceeded.
    steps
        Full steps.
    last_step_prompts
        Prompts of a final smaller step; 0 when none fits.
    step, flops
        One full step, and the whole run, by phase.
    """

    recipe: Recipe
    budget: int
    steps: int
    last_step_prompts: int
    step: Allocation
    flops: Allocation

    @property
    def samples(self) -> int:
        """Completions generated in the whole run."""
        return self.steps * self.recipe.samples_per_step + self.last_step_prompts * self.recipe.group_size

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            **self.recipe.to_dict(),
            "steps": self.steps,
            "last_step_prompts": self.last_step_prompts,
            "samples": self.samples,
        }


def size_run(arch: Architecture, recipe: Recipe, budget: int, *, rho: float | None = None) -> RunPlan:
    """Fit ``recipe`` to ``budget`` FLOPs on ``arch``, never above it.

    With ``rho`` the update ratio is solved first. The update ratio is then put on a whole number of trained
    samples per step, so that the plan can be executed as printed.

    Raises
    ------
    InvalidInput
        The budget does not pay for one full step, or ``rho`` is infeasible.
    """
    if rho is not None:
        recipe = recipe.with_update_ratio(solve_update_ratio(arch, recipe, rho))
    generated = recipe.samples_per_step
    trained = _allowed_trained(recipe.update_ratio, generated)
    recipe = replace(recipe, update_ratio=trained / generated)
    costs = unit_costs(arch, recipe)
    step = costs.step(recipe.prompts_per_step, trained)
    steps = int(budget // step.total)
    # Mean lengths make costs floats, and their product may round up past the budget.
    while steps > 0 and (step * steps).total > budget:
        steps -= 1
    if steps < 1:
        raise InvalidInput(
            f"budget: found {format_flops(budget)} FLOPs, below one step of this recipe "
            f"({format_flops(step.total)} FLOPs); allowed is at least one step: raise the budget, or lower "
            "prompts_per_step, group_size or the lengths"
        )
    last, flops = _last_step(costs, recipe, step * steps, budget)
    return RunPlan(recipe, int(budget), steps, last, step, flops)


def _allowed_trained(a: float, generated: int) -> int:
    """Whole trained samples nearest to a*S that keep a inside its allowed range."""
    low = math.ceil(MIN_UPDATE_RATIO * generated)
    high = math.floor(MAX_UPDATE_RATIO * generated)
    return min(max(trained_samples(a, generated), low), high)


def _last_step(costs: UnitCosts, recipe: Recipe, spent: Allocation, budget: int) -> tuple[int, Allocation]:
    """Prompts of the largest smaller step that still fits after ``spent``, and what is spent with it."""

    def spent_with(prompts: int) -> Allocation:
        # Floor, not round: the remainder of the budget is the one place where rounding up could overspend.
        trained = max(1, math.floor(recipe.update_ratio * prompts * recipe.group_size))
        return spent + costs.step(prompts, trained)

    fitting = bisect_left(range(1, recipe.prompts_per_step), True, key=lambda n: spent_with(n).total > budget)
    return (fitting, spent_with(fitting)) if fitting else (0, spent)


def allocation_from_dict(data: Mapping[str, Any], *, where: str) -> Allocation:
    """Read the three phases back; anything but numbers from 0 to 1e31 is `InvalidInput`."""
    values = []
    for phase in ("search", "learning", "reward"):
        value = data.get(phase)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e31:
            raise InvalidInput(
                f"{where}.{phase}: found {value!r}; allowed is a number of FLOPs from 0 to 1e31"
            )
        values.append(value)
    return Allocation(*values)
