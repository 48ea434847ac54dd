"""The decision: where the budget should go, how sure that is, and what it rests on.

Everything is read off joint posterior draws of the expected value on the slice at the real budget. Each draw is one
way the truth may be; its optimum lies at some model, update fraction and regime. The shares of draws are the
probabilities stated, the spread of the optimum is the interval stated, and the setting with the greatest *mean*
value is the one recommended, because that is what minimises expected regret.

RACE is a diagnostic: it says which regime the evidence points to, not that a run will improve a held-out metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.sizing import Sized, size_to_budget
from planner.slices import BudgetSlice, Optima, regime_probabilities
from race.allocation import regime_of
from race.records import PilotSpec
from race.units import format_flops
from surrogate import Surrogate
from surrogate.optimum import Interval

FloatArray = npt.NDArray[np.float64]

LEVEL = 0.9
DRAWS = 2000
EDGE = 0.2
RISKY = 0.1
NEARLY = 0.9  # runs end a step short of their budget
FAR = 10.0  # times its largest run: beyond that, what a model reaches is called extrapolated
DIAGNOSTIC = (
    "RACE is a diagnostic: it says where the optimum is likely to lie, it does not promise a better "
    "held-out result"
)


@dataclass(frozen=True)
class TargetView:
    """What one target prefers.

    Attributes
    ----------
    model, reward
        Of the setting with the greatest mean value.
    regime
        Label and probabilities.
    models
        Probability that each model is the best.
    best_of
        Reward and update fraction with the greatest mean value on each model.
    rho_star, value
        Where the optimum lies, and what the best-mean setting is worth.
    best_rho
        Update fraction of the best-mean setting.
    regret
        What the best-mean setting loses against the optimum.
    edge
        Probability that the optimum lies at an end of the feasible update fractions.
    best
        Index of the best-mean setting on the slice.
    collapse_risk
        Probability that a run of the best-mean setting collapses; values are those of runs that do not.
    """

    target: str
    model: str
    reward: str
    regime: str
    regimes: Mapping[str, float]
    models: Mapping[str, float]
    best_of: Mapping[str, tuple[str, float]]
    rho_star: Interval
    best_rho: float
    value: Interval
    regret: Interval
    edge: float
    best: int
    collapse_risk: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "model": self.model,
            "reward": self.reward,
            "regime": {"label": self.regime, "probabilities": dict(self.regimes)},
            "models": dict(self.models),
            "rho": _around(self.best_rho, self.rho_star).to_dict(),
            "rho_star": self.rho_star.to_dict(),
            "value": self.value.to_dict(),
            "regret": self.regret.to_dict(),
        }


@dataclass(frozen=True)
class Decision:
    """Answer of `Planner.decide`; `to_dict` is what ``race plan --json`` prints.

    Attributes
    ----------
    budget, target
        The question.
    view
        What the decided target prefers.
    others
        The same for further targets, where asked for.
    sized
        The recommended run.
    evidence
        Records the statement rests on, by kind.
    largest_run
        FLOPs of the largest run of the recommended model that entered the fit; 0 where none did.
    pilots
        What to run next; empty with a note when nothing should be.
    prior_only
        True when no record entered: the answer is the simulator's prior and nothing else.
    notes
        Plain words on everything a reader should know.
    """

    budget: int
    target: str
    view: TargetView
    others: tuple[TargetView, ...]
    sized: Sized
    evidence: Mapping[str, int]
    largest_run: float = 0.0
    pilots: tuple[PilotSpec, ...] = ()
    prior_only: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def reward(self) -> str:
        """Reward system of the recommended run."""
        return self.view.reward

    @property
    def model(self) -> str:
        """The recommended model."""
        return self.view.model

    @property
    def rho(self) -> Interval:
        """The recommended run's update fraction, with the 90 % interval of where the optimum lies.

        ``mean`` is the update fraction of the greatest mean value, which minimises expected regret; the mean of the
        optimum's own distribution is ``view.rho_star.mean``.
        """
        return _around(self.sized.rho, self.view.rho_star)

    @property
    def regime(self) -> str:
        """The most probable regime."""
        return self.view.regime

    @property
    def certainty(self) -> float:
        """Probability of the stated regime."""
        return self.view.regimes[self.view.regime]

    def certain(self, level: float) -> bool:
        """Whether the regime has at least this probability, for every target asked."""
        return all(view.regimes[view.regime] >= level for view in (self.view, *self.others))

    def to_dict(self) -> dict[str, Any]:
        """The keys of DESIGN section 8, then what is said beside them."""
        flops = self.sized.plan.flops
        return {
            "budget": self.budget,
            "reward": self.reward,
            "target": self.target,
            "evidence": {kind: int(self.evidence.get(kind, 0)) for kind in ("real", "imported", "simulated")},
            "regime": {"label": self.regime, "probabilities": dict(self.view.regimes)},
            "recommendation": {
                "model": self.model,
                "rho": self.rho.to_dict(),
                "update_ratio": self.sized.plan.recipe.update_ratio,
                "shares": flops.shares,
                "recipe": self.sized.plan.to_dict(),
                "flops": flops.to_dict(),
                "value": self.view.value.to_dict(),
                "regret": self.view.regret.to_dict(),
                "collapse_risk": self.view.collapse_risk,
                "largest_run": self.largest_run,
            },
            "pilots": [pilot.to_dict() for pilot in self.pilots],
            "models": dict(self.view.models),
            "targets": {view.target: view.to_dict() for view in (self.view, *self.others)},
            "prior_only": self.prior_only,
            "notes": list(self.notes),
        }


def view_target(
    surrogate: Surrogate, on: BudgetSlice, target: str, *, seed: int = 0, draws: int = DRAWS
) -> TargetView:
    """Read one target off ``draws`` joint posterior draws."""
    values = surrogate.sample(on.settings, target, draws=draws, seed=seed)
    optima = on.optima(values)
    line, point, rho = on.best(values)
    reward, model = on.lines[line]
    chosen = line * on.rhos.shape[1] + point
    regimes = regime_probabilities(optima)
    return TargetView(
        target=target,
        model=on.space.models[model].name,
        reward=on.space.rewards[reward],
        regime=max(regimes, key=lambda name: regimes[name]),
        regimes=regimes,
        models=_model_probabilities(on, optima),
        best_of=_best_of_models(on, values),
        rho_star=Interval.of(optima.rho, LEVEL),
        best_rho=rho,
        value=Interval.of(values[:, chosen], LEVEL),
        regret=Interval.of(np.maximum(optima.value - values[:, chosen], 0), LEVEL),
        edge=float(optima.edge.mean()),
        best=chosen,
        collapse_risk=float(surrogate.collapse_risk(on.settings[[chosen]])[0]),
    )


def decide(
    surrogate: Surrogate,
    on: BudgetSlice,
    *,
    pilots: Sequence[PilotSpec] = (),
    notes: Sequence[str] = (),
    seed: int = 0,
    draws: int = DRAWS,
) -> Decision:
    """Decide for the slice ``on`` from what ``surrogate`` knows.

    Raises
    ------
    CannotDo
        The budget cannot be filled to 97 % by the recommended model's recipe.
    """
    space = on.space
    views = [view_target(surrogate, on, t, seed=seed, draws=draws) for t in space.targets]
    view = views[0]
    reward, model = on.lines[view.best // on.rhos.shape[1]]
    sized = size_to_budget(
        space.models[model].architecture, space.recipes[reward], space.budget, rho=view.best_rho
    )
    evidence = surrogate.evidence
    prior_only = sum(evidence.values()) == 0
    largest_run = surrogate.largest_run(view.model)
    beyond = [] if prior_only else _extrapolation(view.model, space.budget, largest_run)
    return Decision(
        budget=space.budget,
        target=space.target,
        view=view,
        others=tuple(views[1:]),
        sized=sized,
        evidence=evidence,
        largest_run=largest_run,
        pilots=tuple(pilots),
        prior_only=prior_only,
        notes=(*beyond, *_notes(on, views, sized, evidence, surrogate.notes), *notes),
    )


def _extrapolation(model: str, budget: float, largest: float) -> list[str]:
    """What is said where no run of the recommended model comes near the budget."""
    if largest * FAR >= NEARLY * budget:
        return []
    if not largest:
        return [f"no run of {model} is in evidence: what is said of it is foretold from the simulator and other models"]
    return [
        f"the largest run of {model} in evidence has {format_flops(largest)} FLOPs, 1/{budget / largest:.0f} of the "
        "budget: what it reaches beyond that is extrapolated, and a model that levels off early looks best on small "
        "pilots"
    ]


def _around(rho: float, star: Interval) -> Interval:
    """The interval of rho*, around the update fraction recommended."""
    return Interval(rho, min(star.lo, rho), max(star.hi, rho))


def _model_probabilities(on: BudgetSlice, optima: Optima) -> dict[str, float]:
    share = dict.fromkeys((m.name for m in on.space.models), 0.0)
    for line, count in enumerate(np.bincount(optima.line, minlength=len(on.lines))):
        share[on.space.models[on.lines[line][1]].name] += float(count) / len(optima.line)
    return share


def _best_of_models(on: BudgetSlice, values: FloatArray) -> dict[str, tuple[str, float]]:
    cube = np.where(on.affordable, values.mean(axis=0).reshape(on.rhos.shape), -np.inf)
    out: dict[str, tuple[float, str, float]] = {}
    for line, (reward, model) in enumerate(on.lines):
        point, name = int(cube[line].argmax()), on.space.models[model].name
        found = (float(cube[line, point]), on.space.rewards[reward], float(on.rhos[line, point]))
        if name not in out or found[0] > out[name][0]:
            out[name] = found
    return {name: (reward, rho) for name, (_, reward, rho) in out.items()}


def _notes(
    on: BudgetSlice,
    views: Sequence[TargetView],
    sized: Sized,
    evidence: Mapping[str, int],
    surrogate_notes: Sequence[str],
) -> list[str]:
    view = views[0]
    notes = []
    # With no evidence at all the surrogate's own first note says that everything is prior.
    if evidence.get("simulated") and not evidence.get("real") and not evidence.get("imported"):
        notes.append("all evidence is simulated: this shows how the tool works, not how your models behave")
    notes.extend(on.left_out)
    notes.extend(surrogate_notes)
    if sized.note:
        notes.append(sized.note)
    if view.edge > EDGE:
        notes.append(
            f"with probability {view.edge:.2f} the optimum lies at an end of the feasible update fractions: the "
            "true peak may be cut off by what the recipe can reach"
        )
    if view.collapse_risk > RISKY:
        notes.append(
            f"a run of this recipe collapses with probability {view.collapse_risk:.2f}; the value stated is that of "
            "one that does not"
        )
    label = view.regime
    if view.regimes[label] < LEVEL:
        notes.append(f"the regime is not settled: {label} at probability {view.regimes[label]:.2f}")
    spent = sized.plan.flops
    own = regime_of(spent.rho, spent.sigma, spent.phi)
    if own != label:
        notes.append(
            f"the recommended run itself would be called {own} ({spent.rho:.2f} of it is learning): it has the best "
            f"expected value, while {label} is where the optimum most probably lies"
        )
    for other in views[1:]:
        differs = [
            f"{what} {theirs} instead of {mine}"
            for what, mine, theirs in (
                ("model", view.model, other.model),
                ("reward", view.reward, other.reward),
                ("regime", view.regime, other.regime),
            )
            if mine != theirs
        ]
        if other.rho_star.hi < view.rho_star.lo or other.rho_star.lo > view.rho_star.hi:
            differs.append(f"rho {other.best_rho:.2f} instead of {view.best_rho:.2f}")
        if differs:
            notes.append(f"targets disagree: {other.target} prefers {', '.join(differs)} to {view.target}")
    notes.append(DIAGNOSTIC)
    return notes
