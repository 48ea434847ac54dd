"""``race fit`` and ``race query``: save a surrogate, and ask it what-if questions offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import (
    LadderOption,
    RecipeOptions,
    SeedOption,
    load_evidence,
    recipe_options,
    split_targets,
)
from race.cli.output import JsonFlag, emit, evidence_of, facts, note, odds_of, table, with_interval
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from race.ladder import LadderModel
    from race.recipe import Recipe
    from surrogate import Surrogate


@recipe_options
def fit(
    recipe: RecipeOptions,
    store: Annotated[list[Path], typer.Argument(help="Folders of records.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Folder to write the surrogate to.")],
    reward: Annotated[
        str | None, typer.Option("--reward", help="Reward what-ifs start from; default: the records' own.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Targets to model, by commas; default: all in evidence.")
    ] = None,
    ladder: LadderOption = "qwen2.5",
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Fit the surrogate to a store and save it; print leave-one-run-out diagnostics."""
    from race.ladder import ladder as choose_ladder
    from surrogate import Surrogate
    from surrogate.files import check_writable

    rungs = choose_ladder(ladder)
    check_writable(out)
    records, problems = load_evidence(store)
    present = sorted({name for record in records for name in record.curves})
    targets = split_targets(target) if target is not None else present
    if not targets:
        raise CannotDo(
            "store: no record has a learning curve; add pilots that ran, or name --target for the prior"
        )
    rewards = [record.spec.reward for record in records]
    used = recipe.reward(reward, default=max(sorted(set(rewards)), key=rewards.count))
    fitted = Surrogate.fit(
        records, ladder=rungs, recipe=recipe.build(rungs.recipe(used)), targets=targets, seed=seed
    )
    by_run, by_model = fitted.diagnostics(), fitted.diagnostics(leave_out="model")
    path = fitted.save(out)
    data: dict[str, Any] = {
        "surrogate": str(path),
        "reward": used,
        "targets": list(fitted.targets),
        "evidence": dict(fitted.evidence),
        "unhealthy": dict(fitted.unhealthy),
        "diagnostics": {"run": by_run.to_dict(), "model": by_model.to_dict()},
        "notes": list(fitted.notes),
        "skipped": problems,
    }
    emit(data, as_json, lambda console: _render_fit(console, data))
    for problem in problems:
        note(f"skipped {problem}")


def _render_fit(console: Console, data: dict[str, Any]) -> None:
    counts = ", ".join(f"{n} {kind}" for kind, n in data["evidence"].items() if n) or "none"
    console.print(f"[bold]Surrogate saved to {data['surrogate']}[/bold]  (evidence: {counts})")
    rows = table(
        [
            "left out",
            ("checks", "right"),
            ("90 % intervals cover", "right"),
            ("error", "right"),
            ("spread", "right"),
        ]
    )
    for name, found in data["diagnostics"].items():
        if found["count"]:
            rows.add_row(
                f"one {name}",
                str(found["count"]),
                f"{found['coverage']:.0%}",
                f"{found['rmse']:.3f}",
                f"{found['spread']:.3f}",
            )
        else:
            rows.add_row(f"one {name}", "0", "-", "-", "-")
    console.print(rows)
    console.print(
        "error: root mean square of predicting the end of a run it was not shown; spread: of the runs themselves",
        style="dim",
    )
    for line in data["notes"]:
        console.print(f"- {line}", style="dim")


@recipe_options
def query(
    recipe: RecipeOptions,
    surrogate: Annotated[Path, typer.Argument(help="Folder that race fit wrote.")],
    budget: Annotated[str, typer.Option("--budget", help="FLOPs of the run asked about.")],
    reward: Annotated[
        str | None, typer.Option("--reward", help="Reward system; default: the surrogate's own.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="One target; default: the first one fitted.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Ask about one model only.")] = None,
    rho: Annotated[float | None, typer.Option("--rho", help="Ask about one update fraction only.")] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", help="MODEL@RHO: probability that it beats the setting asked about."),
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """What-if on a saved surrogate, offline: value, rho*, regime, comparisons."""
    from race.simulator import Settings
    from race.units import parse_budget
    from surrogate import Surrogate
    from surrogate.optimum import DRAWS, optimum

    loaded = Surrogate.load(surrogate)
    flops = parse_budget(budget)
    targets = split_targets(target) if target is not None else loaded.targets[:1]
    if len(targets) != 1:
        raise InvalidInput(f"target: found {len(targets)} targets; allowed is one at a time")
    # What-ifs start from the recipe that was fitted; only what is said here differs from it.
    asked_reward = recipe.reward(reward, default=loaded.recipe.reward)
    template = recipe.build(loaded.ladder.under(loaded.recipe, asked_reward))
    best = optimum(
        loaded,
        budget=flops,
        target=targets[0],
        models=None if model is None else [model],
        recipe=template,
        seed=seed,
    )
    asked = setting(
        loaded, template, model or best.model, best.recommended_rho if rho is None else rho, flops
    )
    others = [parse_setting(loaded, template, text, flops) for text in compare or []]
    values = loaded.sample(Settings.build([asked, *others]), targets[0], draws=DRAWS, seed=seed)
    data: dict[str, Any] = {
        "budget": flops,
        "reward": template.reward,
        "target": targets[0],
        "setting": _describe(asked),
        "value": _summary(values[:, 0]),
        "rho_star": best.rho.to_dict(),
        "regime": {"label": best.regime, "probabilities": dict(best.regimes)},
        "models": {m.model: m.probability for m in best.models},
        "compare": [
            {
                **_describe(row),
                "value": _summary(values[:, i]),
                "difference": _summary(values[:, i] - values[:, 0]),
                "probability_better": _better(values[:, i] - values[:, 0]),
            }
            for i, row in enumerate(others, start=1)
        ],
        "evidence": dict(loaded.evidence),
        "notes": [*loaded.notes, *best.notes],
    }
    emit(data, as_json, lambda console: _render_query(console, data))


def setting(
    surrogate: Surrogate, recipe: Recipe, model: str, rho: float, budget: int
) -> tuple[LadderModel, Recipe, int]:
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


def parse_setting(
    surrogate: Surrogate, recipe: Recipe, text: str, budget: int
) -> tuple[LadderModel, Recipe, int]:
    """Read ``MODEL@RHO``."""
    name, at, number = text.rpartition("@")
    try:
        rho = float(number)
    except ValueError:
        rho = float("nan")
    if not at or not 0 < rho < 1:
        raise InvalidInput(f"compare: found {text!r}; allowed is MODEL@RHO such as Qwen2.5-3B-Instruct@0.5")
    return setting(surrogate, recipe, name, rho, budget)


def _describe(row: tuple[LadderModel, Recipe, int]) -> dict[str, Any]:
    from race.allocation import unit_costs

    model, recipe, _ = row
    sigma, rho, phi = (float(x) for x in unit_costs(model.architecture, recipe).shares(recipe.update_ratio))
    return {
        "model": model.name,
        "rho": rho,
        "update_ratio": recipe.update_ratio,
        "shares": {"search": sigma, "learning": rho, "reward": phi},
    }


def _better(difference: Any) -> float:
    """Share of draws above zero. Ties (both at the ceiling, or a setting against itself, whose draws differ by the
    jitter that keeps the covariance regular) count half, so that the two probabilities add up to 1."""
    import numpy as np

    tie = np.abs(difference) < 1e-4
    return float(np.mean(np.where(tie, 0.5, difference > 0)))


def _summary(draws: Any) -> dict[str, float]:
    from surrogate.optimum import Interval

    return Interval.of(draws, 0.9).to_dict()


def _render_query(console: Console, data: dict[str, Any]) -> None:
    from race.units import format_flops

    value, star, where = data["value"], data["rho_star"], data["setting"]
    odds = sorted(data["regime"]["probabilities"].items(), key=lambda item: -item[1])
    console.print(
        f"[bold]{format_flops(data['budget'])} FLOPs, reward {data['reward']}, target {data['target']}[/bold]\n"
    )
    console.print(
        facts(
            (f"{where['model']} at rho {where['rho']:.2f}", with_interval(value, ".3f")),
            ("rho*", with_interval(star, ".2f")),
            ("regime", f"[bold]{data['regime']['label']}[/bold]  ({odds_of(odds)})"),
            ("evidence", evidence_of(data["evidence"])),
        )
    )
    if data["compare"]:
        against = table(
            ["against", ("value", "right"), ("difference (90 %)", "right"), ("P(better)", "right")]
        )
        for other in data["compare"]:
            gap = other["difference"]
            against.add_row(
                f"{other['model']}@{other['rho']:.2f}",
                f"{other['value']['mean']:.3f}",
                f"{gap['mean']:+.3f} ({gap['lo']:+.3f} to {gap['hi']:+.3f})",
                f"{other['probability_better']:.2f}",
            )
        console.print(against)
    for line in data["notes"]:
        console.print(f"- {line}", style="dim")
