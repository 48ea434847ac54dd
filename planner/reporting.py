"""From records and a surrogate to `race.reports.ReportData`: everything a report shows, gathered once.

Nothing is drawn here, and nothing is decided that `race plan` would decide otherwise: the decision is
`planner.decision.decide` on the same slice, from the surrogate that ``race query`` will be asked with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.change_of_mind import change_of_mind
from planner.decision import Decision, decide
from planner.slices import BudgetSlice
from planner.space import PilotSpace
from race.allocation import REGIMES, Allocation
from race.errors import CannotDo
from race.hardware import HardwareCost, hardware_cost
from race.ladders import DEFAULT_LADDER, Ladder, ladder
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.records import PilotRecord
from race.reports.data import Line, ReportData, Run, Scored, Slice, WhatIf
from race.rewards import REWARD_SYSTEMS
from surrogate import Surrogate
from surrogate.grid import what_if_grid
from surrogate.optimum import DRAWS, Interval
from surrogate.slices import Slice as Settled

LEVEL = 0.9
PILOT_SLICES = 3  # IsoFLOP slices drawn at pilots' own budgets
_SAME_SLICE = math.log(1.5)  # pilots whose FLOPs lie within this factor share a slice
_TIMES = (0.1, 1, 10)  # of the budget asked about: where rho* is followed
BUILT_IN = ("qwen2.5", "qwen3", "nano")


def ladder_of(records: Iterable[PilotRecord]) -> Ladder:
    """The built-in ladder that holds most of the records' models; the default one where none holds any."""
    names = Counter(record.spec.model for record in records)
    rungs = [ladder(name) for name in BUILT_IN]
    held = [sum(count for name, count in names.items() if name in rung) for rung in rungs]
    return rungs[int(np.argmax(held))] if max(held, default=0) else ladder(DEFAULT_LADDER)


def reward_of(records: Sequence[PilotRecord]) -> str:
    """The reward system most records ran under; of equals the simplest, in the order of `REWARD_SYSTEMS`."""
    rewards = [record.spec.reward for record in records]
    return max((name for name in REWARD_SYSTEMS if name in rewards), key=rewards.count)


def budget_of(records: Sequence[PilotRecord]) -> int:
    """Ten times the largest pilot, to one digit: a budget of which the pilots are the usual tenth."""
    largest = max((float(record.flops.total) for record in records), default=0.0)
    if largest <= 0:
        raise CannotDo("budget: no record has spent a FLOP, so none can be proposed; give --budget")
    return int(float(f"{10 * largest:.0e}"))


@dataclass(frozen=True)
class Gathered:
    """A report's data, and the decision in it as an object."""

    data: ReportData
    decision: Decision


def gather(
    records: Sequence[PilotRecord],
    surrogate: Surrogate,
    space: PilotSpace,
    *,
    store: str = "",
    saved: str = "",
    budget_note: str = "",
    skipped: Sequence[str] = (),
    interactive: bool = True,
    seed: int = 0,
) -> Gathered:
    """Everything a report on ``space`` shows.

    Parameters
    ----------
    records
        All of them, also those that did not enter the fit.
    space
        One reward system, the budget and the targets, the decided one first.
    interactive
        Also compute the what-if grid.
    """
    on = BudgetSlice.build(space)
    ensemble = surrogate.ensemble
    ensemble.targets = tuple(dict.fromkeys((*ensemble.targets, *space.targets)))
    decision = decide(surrogate, on, seed=seed)
    recipe = space.recipes[0]
    entered = {run.record for run in surrogate.runs}
    data = ReportData(
        store=store,
        surrogate=saved,
        decision=decision.to_dict(),
        cost=None,
        budget_note=budget_note,
        models=tuple((m.name, m.params) for m in space.models),
        slices=_slices(surrogate, space, recipe, records, seed=seed),
        paths=_paths(space),
        runs=tuple(_run(record, record.id in entered) for record in records),
        checks=surrogate.diagnostics(level=LEVEL).to_dict(),
        minds=tuple(one.to_dict() for one in change_of_mind(surrogate, space, on=on)),
        largest_pilot=space.sizes[-1],
        assumptions=_assumptions(surrogate, recipe),
        notes=tuple(decision.notes),
        skipped=tuple(skipped),
        what_if=_what_if(surrogate, space.budget, recipe) if interactive else None,
    )
    return Gathered(data, decision)


def _slices(
    surrogate: Surrogate, space: PilotSpace, recipe: Recipe, records: Sequence[PilotRecord], *, seed: int
) -> tuple[Slice, ...]:
    run = pilot_budgets(records, recipe.reward)
    asked = [float(space.budget * times) for times in _TIMES]
    # A slice around the budget that pilots were run on is drawn once, where the pilots are; the budget itself always.
    budgets = {space.budget, *run, *(b for b in asked if all(abs(math.log(b / r)) > _SAME_SLICE for r in run))}
    out: list[Slice] = []
    for budget in sorted(float(b) for b in budgets):
        try:
            on = Settled.build(space.models, recipe, budget)
        except CannotDo:  # a pilot of another ladder, or a tenth of a budget that pays for no step
            continue
        out.extend(_slice(surrogate, on, budget, target, seed=seed) for target in space.targets)
    return tuple(out)


def pilot_budgets(records: Sequence[PilotRecord], reward: str) -> list[float]:
    """Budgets of the slices pilots of ``reward`` lie on, the most populated ones, ascending."""
    spent = sorted(float(r.flops.total) for r in records if r.spec.reward == reward and r.flops.total > 0)
    groups: list[list[float]] = []
    for flops in spent:
        if groups and math.log(flops / groups[-1][0]) <= _SAME_SLICE:
            groups[-1].append(flops)
        else:
            groups.append([flops])
    largest = sorted(groups, key=len, reverse=True)[:PILOT_SLICES]
    return sorted(float(np.median(group)) for group in largest)


def _slice(surrogate: Surrogate, on: Settled, budget: float, target: str, *, seed: int) -> Slice:
    values = surrogate.sample(on.settings, target, draws=DRAWS, seed=seed).reshape(DRAWS, *on.rhos.shape)
    rho, peak, _ = on.peaks(values)
    line = peak.argmax(axis=1)
    rho_star = rho[np.arange(DRAWS), line]
    lo, hi = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    mean = values.mean(axis=0)
    lines = []
    for i, model in enumerate(on.models):
        keep = on.affordable[i]
        if not keep.any():
            continue
        bounds = np.minimum(lo[i], mean[i])[keep], np.maximum(hi[i], mean[i])[keep]
        lines.append(
            Line(
                model.name, on.rhos[i][keep], mean[i][keep], *bounds,
                float(np.mean(line == i)), Interval.of(rho[:, i], LEVEL).to_dict(),
                _named(on.regimes(np.full(DRAWS, i), rho[:, i])),
            )
        )  # fmt: skip
    regimes = _named(on.regimes(line, rho_star))
    return Slice(target, budget, tuple(lines), Interval.of(rho_star, LEVEL).to_dict(), regimes)


def _named(regimes: np.ndarray) -> dict[str, float]:
    """Probability of each regime over draws, from their indices."""
    shares = np.bincount(regimes, minlength=len(REGIMES)) / len(regimes)
    return {str(name): float(share) for name, share in zip(REGIMES, shares, strict=True)}


def _paths(space: PilotSpace) -> tuple[Any, ...]:
    out = []
    for model, costs in zip(space.models, space.costs[0], strict=True):
        ends = [
            tuple(float(x) for x in costs.shares(a)) for a in (MIN_UPDATE_RATIO, MAX_UPDATE_RATIO)
        ]
        out.append((model.name, space.rewards[0], ends[0], ends[1]))
    return tuple(out)


def _run(record: PilotRecord, used: bool) -> Run:
    spent = record.flops
    return Run(
        id=record.id,
        model=record.spec.model,
        reward=record.spec.reward,
        evidence=record.evidence,
        status=record.health.status,
        reason=record.health.reason,
        seed=record.spec.seed,
        search=float(spent.search),
        learning=float(spent.learning),
        scoring=float(spent.reward),
        steps=record.steps,
        used=used,
        curves={name: (curve.flops, curve.value, curve.se) for name, curve in record.curves.items()},
    )


def _what_if(surrogate: Surrogate, budget: int, recipe: Recipe) -> WhatIf:
    grid = what_if_grid(surrogate, budget=budget, recipe=recipe, level=LEVEL)
    return WhatIf(
        targets=grid.targets,
        variants=tuple(
            Scored(v.reward, v.scorer, v.scorer_params, v.recipe, costs)
            for v, costs in zip(grid.variants, grid.costs, strict=True)
        ),
        models=tuple((m.name, m.params) for m in grid.models),
        budgets=grid.budgets,
        rhos=grid.rhos,
        mean=grid.mean,
        lo=grid.lo,
        hi=grid.hi,
        collapse=grid.collapse,
        level=grid.level,
    )


def with_cost(data: ReportData, cost: HardwareCost | None) -> ReportData:
    """The same data with what the recommended run takes on hardware."""
    return replace(data, cost=None if cost is None else cost.to_dict())


def _utilisation() -> str:
    assumed = hardware_cost(Allocation(0, 0, 0)).to_dict()["assumptions"]
    shares = ", ".join(
        f"{phase} {mfu['point']:.0%} ({mfu['lo']:.0%} to {mfu['hi']:.0%})"
        for phase, mfu in assumed["utilisation"].items()
    )
    pue = assumed["pue"]
    return f"Shares of peak taken: {shares}; facility over IT power {pue['point']} ({pue['lo']} to {pue['hi']})."


def _assumptions(surrogate: Surrogate, recipe: Recipe) -> tuple[tuple[str, str], ...]:
    adapter = (
        "full fine-tuning"
        if recipe.lora is None
        else f"LoRA of rank {recipe.lora.rank} on "
        + (recipe.lora.targets if isinstance(recipe.lora.targets, str) else ", ".join(recipe.lora.targets))
    )
    scorer = "" if recipe.reward_model is None else f", scored by {recipe.reward_model}"
    switches = [
        "β > 0: reference log-probs are paid for" if recipe.kl else "β = 0: no reference model",
        "a group's prompt is prefilled once" if recipe.prefix_caching else "every rollout prefills its prompt",
        "gradient checkpointing" if recipe.gradient_checkpointing else "no gradient checkpointing",
    ]
    return (
        (
            "FLOPs",
            "Matrix-multiply FLOPs, 2·m·n·k each, with causal attention counted on unmasked pairs. Norms, softmax, "
            "activations and the optimizer are not counted. Evaluation is metered beside the budget, never inside it.",
        ),
        (
            "Recipe",
            f"{recipe.prompts_per_step} prompts × {recipe.group_size} rollouts per step, {recipe.prompt_tokens:g} + "
            f"{recipe.completion_tokens:g} tokens on average, {adapter}, reward {recipe.reward}{scorer}; "
            + ", ".join(switches)
            + ". The update ratio a (samples trained on per sample generated) is what ρ is turned by; it lies between "
            "1/16 and 16.",
        ),
        (
            "Prior",
            "Before any pilot, expectations come from an ensemble of simulated worlds calibrated on published GRPO "
            "results; data reweight and correct them. Where no pilot lies nearby, bands are mostly that prior.",
        ),
        (
            "Values",
            "Expected final value of a run that stays healthy, between 0 and 1. Bands and intervals are 90 % posterior "
            "intervals of that expectation; single runs scatter around it by seed and evaluation noise.",
        ),
        (
            "Hardware",
            "FLOPs are exact, their translation is not: search, learning and reward run at different utilisation, each "
            "with a range, and the ends of all ranges are combined. " + _utilisation() + " Idle GPUs, loading, weight "
            "synchronisation and hosts are left out.",
        ),
        ("Ladder", f"{surrogate.ladder.name}: " + ", ".join(m.name for m in surrogate.ladder.models) + "."),
    )
