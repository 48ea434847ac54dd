"""Named, seeded worlds with known truth: public test functions for planners.

    own-<n>                one draw from the calibrated ensemble: what the simulator believes possible
    alien-<family>-<n>     a response of another functional form (`race.simulator.aliens`), for honest tests

A world is a callable, spec -> record. Its truth is brute force over every model and update ratio, so anything
that maximises can be checked against it::

    world = race.simulator.worlds.world("own-17")
    truth = world.truth(ladder(), ladder().recipe("prm"), 10**18)
    truth.model, truth.rho, truth.regime, truth.regret(decision)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from race.allocation import Regime, regime_of, size_run, unit_costs
from race.errors import CannotDo, InvalidInput
from race.flops import Architecture
from race.ladders import Ladder, LadderModel
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.records import PilotRecord, PilotSpec
from race.simulator.aliens import FAMILIES, Alien
from race.simulator.dynamics import simulate, simulate_curves
from race.simulator.ensemble import Worlds
from race.simulator.pilot import Response, evaluation_steps, noisy_record
from race.simulator.settings import Settings, price

FloatArray = npt.NDArray[np.float64]

# a = 1 and a = 2 are nodes: costs have a kink there, and optima like to sit on it.
_PER_OCTAVE = 16
_RATIOS = 2.0 ** (np.arange(-4 * _PER_OCTAVE, 4 * _PER_OCTAVE + 1) / _PER_OCTAVE)
_OWN_SEED = 0x0E17
_ROUNDING = 0.01  # of rho: what whole samples may move a run that was asked for at the end of the range


class Physics(Protocol):
    """What a world must say about noiseless runs; every array has shape (n,) or (n, points)."""

    def expected(self, settings: Settings, target: str) -> FloatArray:
        """Final value in [0, 1] of a run that stays healthy, shape (n,)."""
        ...

    def response(self, settings: Settings, share: FloatArray, targets: Sequence[str]) -> Response:
        """A noiseless run of a table of one setting, at fractions of its budget."""
        ...


@dataclass(frozen=True, eq=False)
class OwnPhysics:
    """The simulator's own dynamics under one parameter draw."""

    parameters: Worlds

    def expected(self, settings: Settings, target: str) -> FloatArray:
        """See `Physics`."""
        out: FloatArray = simulate(self.parameters, settings, targets=(target,))[target][0]
        return out

    def response(self, settings: Settings, share: FloatArray, targets: Sequence[str]) -> Response:
        """See `Physics`."""
        curves = simulate_curves(self.parameters, settings, points=share, targets=targets)
        return Response(
            {target: values[0, 0] for target, values in curves.values.items()},
            curves.drift[0, 0],
            float(curves.collapse[0, 0]),
            float(self.parameters.column("seed_sd")[0, 0]),
        )


@dataclass(frozen=True)
class Truth:
    """The optimum of one slice of one world.

    Attributes
    ----------
    model, reward, rho, update_ratio, regime, value
        The best setting and its expected value.
    rho_band, regimes
        Update fractions of the best model that lose at most 1 % of the slice's range, and the regimes they lie in:
        on a flat top more than one answer is right.
    lowest
        The worst expected value on the slice; ``value - lowest`` is its range.
    """

    world: World
    ladder: Ladder
    recipes: tuple[Recipe, ...]
    budget: int
    target: str
    model: str
    reward: str
    rho: float
    update_ratio: float
    regime: Regime
    value: float
    rho_band: tuple[float, float]
    regimes: tuple[Regime, ...]
    lowest: float

    @property
    def range(self) -> float:
        """Best less worst expected value on the slice."""
        return self.value - self.lowest

    def value_at(self, model: str, rho: float, reward: str | None = None) -> float:
        """Expected value of spending the budget on ``model`` at update fraction ``rho``.

        A run of whole samples can miss the end of the feasible range by a little; it is valued at that end.
        """
        wanted = self.reward if reward is None and len(self.recipes) > 1 else reward or self.recipes[0].reward
        recipe = next((r for r in self.recipes if r.reward == wanted), None)
        if recipe is None:
            raise InvalidInput(
                f"reward: found {wanted!r}; allowed are {', '.join(r.reward for r in self.recipes)}"
            )
        low, high = unit_costs(self.ladder[model].architecture, recipe).rho_range
        near = min(max(rho, low), high) if low - _ROUNDING <= rho <= high + _ROUNDING else rho
        settings = Settings.grid(
            self.ladder, recipe, rhos=[near], budgets=[float(self.budget)], models=[model]
        )
        if not settings.feasible[0]:
            raise InvalidInput(
                f"rho: found {rho:g}, which no update ratio from 1/16 to 16 reaches for {model} with {recipe.reward}"
            )
        return float(self.world.physics.expected(settings, self.target)[0])

    def regret(self, decision: Any) -> float:
        """Expected value lost by a decision: best value less the value of what was decided.

        Parameters
        ----------
        decision
            Anything with ``model`` and ``rho`` (attributes or keys; ``reward`` too when several are compared), or
            the JSON of ``race plan``, which has them under ``recommendation``.
        """
        model, rho, reward = _read_decision(decision)
        return max(self.value - self.value_at(model, rho, reward), 0.0)


@dataclass(frozen=True)
class World:
    """A world by name: runs pilots, knows its truth.

    Attributes
    ----------
    name
        ``own-17``, ``alien-ridge-3``; goes into every record's provenance.
    physics
        Its noiseless behaviour.
    """

    name: str
    physics: Physics

    def __call__(self, spec: PilotSpec) -> PilotRecord:
        """Run one pilot; the same spec (its seed included) gives the same record."""
        arch = Architecture.from_config(spec.model)
        plan = size_run(arch, spec.recipe, spec.budget)
        model = LadderModel(spec.model, arch, spec.params)
        settings = Settings.build([(model, plan.recipe, int(plan.flops.total))])
        share = evaluation_steps(plan) / plan.steps
        response = self.physics.response(settings, share, spec.targets)
        return noisy_record(spec, plan, response, name=self.name, seed=spec.seed)

    def truth(
        self, ladder: Ladder, recipe: Recipe | Sequence[Recipe], budget: int, target: str = "native"
    ) -> Truth:
        """The best model, reward system (when several recipes are given) and update fraction at ``budget``.

        Raises
        ------
        CannotDo
            The budget pays for no step of any model.
        """
        recipes = (recipe,) if isinstance(recipe, Recipe) else tuple(recipe)
        best: tuple[float, Recipe, LadderModel, float] | None = None
        lowest = np.inf
        for option in recipes:
            for model in ladder.models:
                settings = Settings.sweep([model], option, ratios=_RATIOS, budget=budget)
                affordable = settings.steps >= 1
                if not affordable.any():
                    continue
                values = np.where(affordable, self.physics.expected(settings, target), -np.inf)
                lowest = min(lowest, float(values[affordable].min()))
                if best is None or values.max() > best[0]:
                    best = (float(values.max()), option, model, float(_RATIOS[values.argmax()]))
        if best is None:
            raise CannotDo(f"budget: {budget} FLOPs pay for no step of any model on ladder {ladder.name!r}")
        _, option, model, near = best
        a, value = self._refine(model, option, near, budget, target)
        good = self._good(model, option, budget, target, value - 0.01 * (value - lowest))
        ratios = np.append(good, a)
        sigma, rho, phi = price(model.architecture, option).shares(ratios)
        regimes = [regime_of(*(float(x) for x in s)) for s in zip(rho, sigma, phi, strict=True)]
        return Truth(
            world=self, ladder=ladder, recipes=recipes, budget=budget, target=target, model=model.name,
            reward=option.reward, rho=float(rho[-1]), update_ratio=a, regime=regimes[-1], value=value,
            rho_band=(float(rho.min()), float(rho.max())), regimes=tuple(dict.fromkeys(regimes[::-1])),
            lowest=lowest,
        )  # fmt: skip

    def regret(
        self,
        decision: Any,
        ladder: Ladder,
        recipe: Recipe | Sequence[Recipe],
        budget: int,
        target: str = "native",
    ) -> float:
        """`Truth.regret` of a decision, for a single use."""
        return self.truth(ladder, recipe, budget, target).regret(decision)

    def _refine(
        self, model: LadderModel, recipe: Recipe, near: float, budget: int, target: str
    ) -> tuple[float, float]:
        """Zoom in on the best update ratio: a 33-point grid between the neighbours, three times."""
        width = 2.0 ** (1 / _PER_OCTAVE)
        for _ in range(3):
            ratios = np.clip(near * np.geomspace(1 / width, width, 33), MIN_UPDATE_RATIO, MAX_UPDATE_RATIO)
            settings = Settings.sweep([model], recipe, ratios=ratios, budget=budget)
            values = np.where(settings.steps >= 1, self.physics.expected(settings, target), -np.inf)
            near, value = float(ratios[values.argmax()]), float(values.max())
            width **= 1 / 8
        return near, value

    def _good(
        self, model: LadderModel, recipe: Recipe, budget: int, target: str, enough: float
    ) -> FloatArray:
        """Update ratios of the grid whose value is at least ``enough``."""
        settings = Settings.sweep([model], recipe, ratios=_RATIOS, budget=budget)
        good: FloatArray = _RATIOS[
            (self.physics.expected(settings, target) >= enough) & (settings.steps >= 1)
        ]
        return good


def world(name: str) -> World:
    """The world of a name such as ``own-17`` or ``alien-threshold-3``."""
    match = re.fullmatch(r"(own|alien-([a-z]+))-(\d{1,9})", name, flags=re.ASCII)
    family = match[2] if match else None
    if match is None or (family is not None and family not in FAMILIES):
        raise InvalidInput(
            f"world: found {name!r}; allowed are own-<number> and alien-<family>-<number> with family "
            + ", ".join(FAMILIES)
        )
    number = int(match[3])
    if family is None:
        return World(name, OwnPhysics(Worlds.prior(1, seed=(_OWN_SEED << 32) + number)))
    return World(name, Alien.draw(family, number))


def own_worlds(count: int, *, start: int = 0) -> list[World]:
    """``own-<start>`` and the following."""
    return [world(f"own-{start + i}") for i in range(count)]


def alien_worlds(count: int, *, start: int = 0) -> list[World]:
    """``count`` alien worlds, the families in turn, numbered from ``start``."""
    return [world(f"alien-{FAMILIES[i % len(FAMILIES)]}-{start + i // len(FAMILIES)}") for i in range(count)]


def _read_decision(decision: Any) -> tuple[str, float, str | None]:
    if isinstance(decision, Mapping):
        inner = decision.get("recommendation", decision)
        reward = decision.get("reward", inner.get("reward"))
        model, rho = inner.get("model"), inner.get("rho")
    else:
        model, rho = getattr(decision, "model", None), getattr(decision, "rho", None)
        reward = getattr(decision, "reward", None)
    model = getattr(model, "name", model)
    rho = rho.get("mean") if isinstance(rho, Mapping) else getattr(rho, "mean", rho)
    if not isinstance(model, str) or not isinstance(rho, (int, float)):
        raise InvalidInput(f"decision: found {type(decision).__name__} without a model name and a rho")
    return model, float(rho), reward if isinstance(reward, str) else None
