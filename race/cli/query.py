"""``race query``: what-if questions to a saved surrogate, offline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import (
    HardwareOptions,
    PilotBudgetOption,
    RecipeOptions,
    SeedOption,
    hardware_options,
    pilot_flops,
    preferred,
    recipe_options,
    split_targets,
)
from race.cli.output import JsonFlag, emit, note
from race.cli.query_view import render_query, sentences
from race.cli.sources import EvidenceOption, surrogate_of
from race.cli.threads import one_thread
from race.errors import InvalidInput

if TYPE_CHECKING:
    from race.allocation import RunPlan
    from race.ladders import LadderModel
    from race.recipe import Recipe
    from surrogate import Surrogate
    from surrogate.optimum import Optimum

Row = tuple["LadderModel", "Recipe", int]
COMPARE = "MODEL@RHO, then optionally ,reward=NAME ,reward-model=NAME ,budget=FLOPS"


@one_thread
@hardware_options
@recipe_options
def query(
    recipe: RecipeOptions,
    hardware: HardwareOptions,
    budget: Annotated[str, typer.Option("--budget", help="FLOPs of the run asked about.")],
    surrogate: Annotated[
        Path | None,
        typer.Argument(help="Folder that race fit wrote, or nano-study. Without it: --evidence or --ladder."),
    ] = None,
    evidence: EvidenceOption = None,
    ladder: Annotated[
        str | None,
        typer.Option(
            "--ladder", help="As in race plan, where no saved surrogate is named; default: the records' own."
        ),
    ] = None,
    reward: Annotated[
        str | None, typer.Option("--reward", help="Reward system; default: the surrogate's own.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Default: native, or the first one fitted. Several by commas: their trade-off."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Ask about one model only.")] = None,
    rho: Annotated[float | None, typer.Option("--rho", help="Ask about one update fraction only.")] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            "--compare", help=f"{COMPARE}: probability that it beats the setting asked about; may be repeated."
        ),
    ] = None,
    argmax: Annotated[bool, typer.Option("--argmax", help="The best setting of every model.")] = False,
    change_mind: Annotated[
        bool,
        typer.Option("--change-mind", help="Which pilot, at what cost, would most likely flip the decision."),
    ] = False,
    pilot_budget: PilotBudgetOption = "10%",
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """What-if on a saved surrogate or on records, offline: value, rho*, regime, cost, comparisons, trade-offs."""
    from race.units import parse_budget

    hardware.check()
    if argmax and rho is not None:
        raise InvalidInput("argmax: given with --rho, which leaves nothing to choose; drop one")
    flops = parse_budget(budget)
    said = recipe.reward(reward) if reward or recipe.given.get("reward") else None
    loaded, found = surrogate_of(surrogate, evidence, ladder, said, target, seed)
    targets = split_targets(target) if target is not None else preferred(loaded.targets)
    # What-ifs start from the recipe that was fitted; only what is said here differs from it.
    asked_reward = recipe.reward(reward, default=loaded.recipe.reward)
    template = recipe.build(loaded.ladder.under(loaded.recipe, asked_reward))
    models = None if model is None else [model]
    question = Question(loaded, template, flops, targets, models, seed)
    best = question.optimum(targets[0])
    asked = setting(
        loaded, template, model or best.model, best.recommended_rho if rho is None else rho, flops
    )
    others = [parse_setting(loaded, template, text, flops) for text in compare or []]
    plan = _sized(asked)
    data: dict[str, Any] = {
        "budget": flops,
        "reward": template.reward,
        "reward_model": template.reward_model,
        "target": targets[0],
        "setting": _describe(asked),
        "recipe": plan.to_dict(),
        "flops": {**plan.flops.to_dict(), "shares": plan.flops.shares},
        "value": question.value(asked, targets[0]),
        "collapse_risk": question.risk(asked),
        "rho_star": best.rho.to_dict(),
        "regime": {"label": best.regime, "probabilities": dict(best.regimes)},
        "models": {m.model: m.probability for m in best.models},
        "compare": question.compare(asked, others),
        "evidence": dict(loaded.evidence),
        "notes": [*loaded.notes, *best.notes, *_scale_note(targets[0], template, others)],
    }
    cost = hardware.cost(plan.flops)
    if cost is not None:
        data["cost"] = cost.to_dict()
    if found.packs:
        data["evidence_from"] = found.to_dict()
    if argmax:
        data["argmax"] = question.argmax(best)
    if len(targets) > 1:
        data["targets"] = {name: question.trade_off(asked, name) for name in targets}
    if change_mind:
        data["pilot_budget"] = pilot_flops(pilot_budget, flops)
        data["change_mind"] = question.minds(data["pilot_budget"])
    data["sentences"] = sentences(data)
    emit(data, as_json, lambda console: render_query(console, data, found.words))
    for problem in found.problems:
        note(f"skipped {problem}")


@dataclass(frozen=True)
class Question:
    """One surrogate, one recipe, one budget: what every answer below shares."""

    surrogate: Surrogate
    recipe: Recipe
    budget: int
    targets: list[str]
    models: list[str] | None
    seed: int

    def optimum(self, target: str) -> Optimum:
        """Where the slice peaks."""
        from surrogate.optimum import optimum

        return optimum(
            self.surrogate,
            budget=self.budget,
            target=target,
            models=self.models,
            recipe=self.recipe,
            seed=self.seed,
        )

    def value(self, row: Row, target: str) -> dict[str, float]:
        """Expected value with its 90 % interval: exact, so that any two askers get the same digits."""
        from race.simulator import Settings

        found = self.surrogate.predict(Settings.build([row]), target)
        return {"mean": float(found.mean[0]), "lo": float(found.lo[0]), "hi": float(found.hi[0])}

    def risk(self, row: Row) -> float:
        """Probability that a run of the setting collapses, which is not in its value."""
        from race.simulator import Settings

        return float(self.surrogate.collapse_risk(Settings.build([row]))[0])

    def compare(self, asked: Row, others: list[Row]) -> list[dict[str, Any]]:
        """Each of ``others`` against ``asked`` within joint draws."""
        from race.simulator import Settings
        from surrogate.optimum import DRAWS

        if not others:
            return []
        rows = Settings.build([asked, *others])
        draws = self.surrogate.sample(rows, self.targets[0], draws=DRAWS, seed=self.seed)
        here = self.value(asked, self.targets[0])["mean"]
        out = []
        for i, row in enumerate(others, start=1):
            value, gap = self.value(row, self.targets[0]), draws[:, i] - draws[:, 0]
            out.append(
                {
                    **_describe(row),
                    "reward": row[1].reward,
                    "reward_model": row[1].reward_model,
                    "budget": row[2],
                    "value": value,
                    "difference": _around(value["mean"] - here, _summary(gap)),
                    "probability_better": _better(gap),
                }
            )
        return out

    def argmax(self, best: Optimum) -> list[dict[str, Any]]:
        """The best setting of every model, the best of all first."""
        out = []
        for found in best.models:
            row = setting(self.surrogate, self.recipe, found.model, found.best_rho, self.budget)
            out.append(
                {
                    **_describe(row),
                    "value": self.value(row, self.targets[0]),
                    "probability_best": found.probability,
                    "rho_star": found.rho.to_dict(),
                    "near": {"lo": best.near[0], "hi": best.near[1]} if found.model == best.model else None,
                }
            )
        return sorted(out, key=lambda one: -one["value"]["mean"])

    def trade_off(self, asked: Row, target: str) -> dict[str, Any]:
        """The setting asked about under another target, and what that target would choose."""
        best = self.optimum(target)
        own = setting(self.surrogate, self.recipe, best.model, best.recommended_rho, self.budget)
        here, there = self.value(asked, target), self.value(own, target)
        return {
            "value": here,
            "best": {**_describe(own), "value": there},
            "loss": max(0.0, there["mean"] - here["mean"]),
            "regime": {"label": best.regime, "probabilities": dict(best.regimes)},
        }

    def minds(self, pilots: int) -> list[dict[str, Any]]:
        """Pilots that could flip the decision, likeliest first."""
        from planner.change_of_mind import change_of_mind
        from planner.space import PilotSpace

        space = PilotSpace.build(
            self.surrogate.ladder,
            budget=self.budget,
            reward=self.recipe.reward,
            target=self.targets[0],
            recipe=self.recipe,
            pilot_budget=pilots,
        )
        return [one.to_dict() for one in change_of_mind(self.surrogate, space)]


def setting(surrogate: Surrogate, recipe: Recipe, model: str, rho: float, budget: int) -> Row:
    """One row for `Settings.build`: ``recipe`` on ``model`` at the update ratio that gives ``rho``."""
    from race.allocation import solve_update_ratio, step_allocation
    from race.units import format_flops

    rung = surrogate.ladder[model]
    solved = recipe.with_update_ratio(solve_update_ratio(rung.architecture, recipe, rho))
    step = step_allocation(rung.architecture, solved).total
    if step > budget:
        raise InvalidInput(
            f"budget: found {format_flops(budget)} FLOPs, below one step of {model} at rho {rho:.3g}; allowed is at "
            f"least {format_flops(step)}"
        )
    return rung, solved, budget


def parse_setting(surrogate: Surrogate, recipe: Recipe, text: str, budget: int) -> Row:
    """Read ``MODEL@RHO`` and what follows it after commas."""
    from dataclasses import replace

    from race.rewards import reward_system
    from race.units import parse_budget

    head, *extras = text.split(",")
    name, at, number = head.rpartition("@")
    try:
        rho = float(number)
    except ValueError:
        rho = float("nan")
    if not at or not 0 < rho < 1:
        raise InvalidInput(f"compare: found {text!r}; allowed is {COMPARE}, such as Qwen2.5-3B-Instruct@0.5")
    scorer = None
    for extra in extras:
        key, _, value = extra.partition("=")
        if key.strip() == "reward" and value.strip():
            recipe = surrogate.ladder.under(recipe, reward_system(value.strip()).name)
        elif key.strip() == "reward-model" and value.strip():
            scorer = value.strip()
        elif key.strip() == "budget" and value.strip():
            budget = parse_budget(value.strip(), field="compare budget")
        else:
            raise InvalidInput(f"compare: found {extra!r} in {text!r}; allowed is {COMPARE}")
    if scorer is not None:
        recipe = replace(recipe, reward_model=scorer)
    return setting(surrogate, recipe, name, rho, budget)


def _sized(row: Row) -> RunPlan:
    from race.allocation import size_run

    return size_run(row[0].architecture, row[1], row[2])


def _describe(row: Row) -> dict[str, Any]:
    from race.allocation import unit_costs

    model, recipe, _ = row
    sigma, rho, phi = (float(x) for x in unit_costs(model.architecture, recipe).shares(recipe.update_ratio))
    return {
        "model": model.name,
        "rho": rho,
        "update_ratio": recipe.update_ratio,
        "shares": {"search": sigma, "learning": rho, "reward": phi},
    }


def _scale_note(target: str, recipe: Recipe, others: list[Row]) -> list[str]:
    foreign = sorted({row[1].reward for row in others} - {recipe.reward})
    if target != "native" or not foreign:
        return []
    return [
        f"native rewards of {recipe.reward} and {', '.join(foreign)} have no common scale: compare them on judge or "
        "pass@1"
    ]


def _better(difference: Any) -> float:
    """Share of draws above zero. Ties (both at the ceiling, or a setting against itself, whose draws differ by the
    jitter that keeps the covariance regular) count half, so that the two probabilities add up to 1."""
    import numpy as np

    tie = np.abs(difference) < 1e-4
    return float(np.mean(np.where(tie, 0.5, difference > 0)))


def _around(mean: float, spread: dict[str, float]) -> dict[str, float]:
    """The exact difference of two values, with the interval of their joint draws: three printed numbers that add up."""
    return {"mean": mean, "lo": min(spread["lo"], mean), "hi": max(spread["hi"], mean)}


def _summary(draws: Any) -> dict[str, float]:
    from surrogate.optimum import Interval

    return Interval.of(draws, 0.9).to_dict()
