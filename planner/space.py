"""The axes of a pilot: which model, which reward system, which update fraction, how many FLOPs.

One `PilotSpace` says what may be proposed, turns a choice on its axes into a `PilotSpec` and back, and prices it.
It knows nothing about Optuna, surrogates or evidence.

Notation
    B    the real budget               T    the pilot budget, all pilots together (default 0.1 B)
    C    one pilot's budget, a `size`  rho  update fraction, inside the range its model and reward can reach

An update fraction is moved along in logit: 0.05 -> 0.10 is as large a change of recipe as 0.90 -> 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from race.allocation import UnitCosts, solve_update_ratio, trained_samples, unit_costs
from race.errors import InvalidInput
from race.ladders import Ladder, LadderModel
from race.ladders import ladder as ladder_of
from race.recipe import Recipe
from race.records import PilotSpec
from race.rewards import check_target, reward_system
from race.simulator import Settings
from race.units import format_flops, parse_budget

FloatArray = npt.NDArray[np.float64]

DEFAULT_PILOT_SHARE = 0.1
# Sizes double from 1/16 to 1/2 of the pilot budget: a short list, so that pilots land on shared IsoFLOP slices. Even
# for a planner that knows the truth's own family of responses, thirty pilots of 1/32 decide worse than five of 1/8 to
# 1/4: what is learned in so few steps drowns in the noise between seeds.
SIZE_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
# One optimisation step shows nothing but the base model twice; two is the least that can show a slope.
MIN_PILOT_STEPS = 2
SCHEMA = "race.study/1"


@dataclass(frozen=True)
class Cell:
    """One point of the space: indices into models, rewards and sizes, and an update fraction."""

    model: int
    reward: int
    size: int
    rho: float


@dataclass(frozen=True)
class PilotSpace:
    """What may be proposed.

    Attributes
    ----------
    ladder
        The models.
    recipes
        One recipe per reward system, in the order of the reward axis.
    budget
        B.
    pilot_budget
        T.
    sizes
        Pilot budgets, ascending.
    targets
        Evaluated by every pilot; the first one is decided on.
    """

    ladder: Ladder
    recipes: tuple[Recipe, ...]
    budget: int
    pilot_budget: int
    sizes: tuple[int, ...]
    targets: tuple[str, ...] = ("native",)

    @classmethod
    def build(
        cls,
        ladder: Ladder | str | Sequence[str],
        *,
        budget: int | float | str,
        reward: str | Sequence[str],
        target: str | Sequence[str] = "native",
        recipe: Recipe | None = None,
        pilot_budget: int | float | str | None = None,
        sizes: Sequence[int] | None = None,
    ) -> PilotSpace:
        """Check everything at the door and fill in the defaults.

        Parameters
        ----------
        ladder
            The models; a built-in ladder's name or a list of model names is looked up (`race.ladders.ladder`).

        Raises
        ------
        InvalidInput
            An unknown ladder, reward or target, a budget out of range, a pilot budget above the budget, sizes above
            the pilot budget, or several reward systems compared on their own native scales.
        """
        rewards = _names(reward, "reward")
        targets = _names(target, "target")
        for name in rewards:
            reward_system(name)
        for name in targets:
            check_target(name)
        if len(rewards) > 1 and targets[0] == "native":
            raise InvalidInput(
                f"target: found 'native' with rewards {', '.join(rewards)}; native rewards have no common scale, "
                "so several reward systems are compared on judge or pass@1"
            )
        rungs = ladder if isinstance(ladder, Ladder) else ladder_of(ladder)
        total = parse_budget(budget)
        pilots = _pilot_budget(pilot_budget, total)
        return cls(
            ladder=rungs,
            recipes=tuple(
                rungs.recipe(name) if recipe is None else rungs.under(recipe, name) for name in rewards
            ),
            budget=total,
            pilot_budget=pilots,
            sizes=_sizes(sizes, pilots),
            targets=targets,
        )

    @property
    def target(self) -> str:
        """The target that is decided on."""
        return self.targets[0]

    @property
    def rewards(self) -> tuple[str, ...]:
        """Names along the reward axis."""
        return tuple(recipe.reward for recipe in self.recipes)

    @property
    def models(self) -> tuple[LadderModel, ...]:
        """The ladder's models."""
        return self.ladder.models

    @cached_property
    def costs(self) -> tuple[tuple[UnitCosts, ...], ...]:
        """Unit costs by reward, then model."""
        return tuple(tuple(unit_costs(m.architecture, r) for m in self.models) for r in self.recipes)

    def rho_range(self, model: int, reward: int) -> tuple[float, float]:
        """Update fractions this model can reach under this reward."""
        return self.costs[reward][model].rho_range

    @cached_property
    def rho_bounds(self) -> tuple[float, float]:
        """Union of all ranges: the bounds of the study's rho axis."""
        ranges = [self.rho_range(m, r) for r in range(len(self.recipes)) for m in range(len(self.models))]
        return min(lo for lo, _ in ranges), max(hi for _, hi in ranges)

    def rhos(self, model: int, reward: int, positions: npt.ArrayLike) -> FloatArray:
        """Update fractions at logit ``positions`` in [0, 1] of the feasible range (broadcasts)."""
        lo, hi = (np.log(x / (1 - x)) for x in self.rho_range(model, reward))
        at: FloatArray = 1 / (1 + np.exp(-(lo + (hi - lo) * np.asarray(positions, dtype=np.float64))))
        # The two ends survive the round trip through logit only to an ulp, which solve_update_ratio may refuse.
        return np.clip(at, *self.rho_range(model, reward))

    def step_flops(self, cell: Cell) -> float:
        """FLOPs of one full step of this cell's recipe, with whole trained samples."""
        recipe = self.recipes[cell.reward]
        costs = self.costs[cell.reward][cell.model]
        trained = trained_samples(float(costs.update_ratio(cell.rho)), recipe.samples_per_step)
        return costs.step(recipe.prompts_per_step, trained).total

    def runnable(self, cell: Cell) -> bool:
        """True when the pilot's size pays for `MIN_PILOT_STEPS` steps."""
        return self.sizes[cell.size] >= MIN_PILOT_STEPS * self.step_flops(cell)

    def affordable(self, cell: Cell, remaining: float) -> bool:
        """True when the pilot is runnable and fits what is left of the pilot budget."""
        return self.sizes[cell.size] <= remaining and self.runnable(cell)

    def settings(self, cells: Sequence[Cell], budgets: npt.ArrayLike) -> Settings:
        """The simulator's view of ``cells`` at ``budgets`` FLOPs each, in order; shape (n,).

        Built per (reward, model) pair at once, which is what keeps an `ask` fast.
        """
        spent = np.broadcast_to(np.asarray(budgets, dtype=np.float64), (len(cells),))
        groups: dict[tuple[int, int], list[int]] = {}
        for index, cell in enumerate(cells):
            groups.setdefault((cell.reward, cell.model), []).append(index)
        parts, order = [], []
        for (reward, model), members in groups.items():
            table = Settings.grid(
                self.ladder,
                self.recipes[reward],
                rhos=[cells[i].rho for i in members],
                budgets=[1.0],
                models=[self.models[model].name],
            )
            parts.append(table.with_budget(spent[members]))
            order.extend(members)
        return Settings.concat(parts)[np.argsort(order)]

    def recipe(self, cell: Cell) -> Recipe:
        """The recipe that spends ``cell.rho`` on learning."""
        recipe = self.recipes[cell.reward]
        a = solve_update_ratio(self.models[cell.model].architecture, recipe, cell.rho)
        return recipe.with_update_ratio(a)

    def spec(self, cell: Cell, *, seed: int) -> PilotSpec:
        """The pilot to run."""
        model = self.models[cell.model]
        return PilotSpec(
            model=model.name,
            params=model.params,
            recipe=self.recipe(cell),
            rho=float(cell.rho),
            budget=self.sizes[cell.size],
            seed=seed,
            targets=self.targets,
        )

    def nearest(self, model: int, reward: int, size: int, rho: float) -> Cell:
        """The runnable cell nearest to a free choice on the axes.

        Samplers other than ours choose each axis on its own and may leave the feasible region: rho is moved to the
        nearer end of the model's range, and the size up to the first one that pays for `MIN_PILOT_STEPS` steps.

        Raises
        ------
        InvalidInput
            No size on the list pays for this model.
        """
        lo, hi = self.rho_range(model, reward)
        rho = min(max(float(rho), lo), hi)
        for bigger in range(size, len(self.sizes)):
            cell = Cell(model, reward, bigger, rho)
            if self.runnable(cell):
                return cell
        raise InvalidInput(
            f"pilot size: found {format_flops(self.sizes[size])} for {self.models[model].name}, and no size up to "
            f"{format_flops(self.sizes[-1])} pays for {MIN_PILOT_STEPS} steps of "
            f"{format_flops(self.step_flops(Cell(model, reward, size, rho)))}; raise the pilot budget or shorten "
            "the recipe"
        )

    def frozen(self) -> dict[str, Any]:
        """Everything that gives a trial's parameters their meaning, in plain JSON types."""
        return {
            "schema": SCHEMA,
            "models": [m.name for m in self.models],
            "params": [m.params for m in self.models],
            "recipes": [r.to_dict() for r in self.recipes],
            "budget": self.budget,
            "pilot_budget": self.pilot_budget,
            "sizes": list(self.sizes),
            "targets": list(self.targets),
        }

    def check_frozen(self, found: Mapping[str, Any]) -> None:
        """Compare with what a study was started with.

        Raises
        ------
        InvalidInput
            The first field that differs, with both values.
        """
        mine = _plain(self.frozen())
        theirs = _plain(dict(found))
        for name, value in mine.items():
            if theirs.get(name) != value:
                raise InvalidInput(
                    f"study: its {name} is {_short(theirs.get(name))}, this planner's is {_short(value)}; a study "
                    "keeps the space it was started with, so start another study (another name or storage)"
                )


def _names(value: str | Sequence[str], field: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"{field}: found {value!r}; allowed is one name, or several different ones")
    return names


def _pilot_budget(value: int | float | str | None, budget: int) -> int:
    if value is None:
        return max(1, int(budget * DEFAULT_PILOT_SHARE))
    pilots = parse_budget(value, field="pilot_budget")
    if pilots > budget:
        raise InvalidInput(
            f"pilot_budget: found {format_flops(pilots)}; allowed is at most the budget of {format_flops(budget)}"
        )
    return pilots


def _sizes(sizes: Sequence[int] | None, pilot_budget: int) -> tuple[int, ...]:
    if sizes is None:
        return tuple(sorted({max(1, int(pilot_budget * share)) for share in SIZE_SHARES}))
    checked = sorted({parse_budget(size, field="sizes") for size in sizes})
    if not checked or checked[-1] > pilot_budget:
        raise InvalidInput(
            f"sizes: found {[format_flops(s) for s in checked]}; allowed is at least one pilot size, each at most "
            f"the pilot budget of {format_flops(pilot_budget)}"
        )
    return tuple(checked)


def _plain(value: Any) -> Any:
    """JSON's view of a value: tuples and lists compare equal, as they must after a trip through a storage."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
