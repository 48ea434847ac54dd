"""``race flops``: what one recipe costs, by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import RecipeOptions, RewardOption, recipe_options
from race.cli.output import JsonFlag, emit, note, run_length, table

if TYPE_CHECKING:
    from rich.console import Console

    from race.flops import Architecture, Formula, LoraSpec


@recipe_options
def flops(
    recipe: RecipeOptions,
    model: Annotated[str, typer.Argument(help="Built-in name, hub id, folder or config.json.")],
    reward: RewardOption = None,
    rho: Annotated[
        float | None, typer.Option("--rho", help="Solve the update ratio for this update fraction.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Size the run to this budget, e.g. 1e18 or 300PFLOP.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps, when no budget is given; default 1.")
    ] = None,
    attention: Annotated[
        str, typer.Option("--attention", help="causal (budgets) or full (what eager attention executes).")
    ] = "causal",
    conventions: Annotated[
        bool, typer.Option("--conventions", help="Show how others would count the same update.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """FLOPs of one recipe by phase: search, learning, reward."""
    from dataclasses import replace

    from race.allocation import (
        Attention,
        size_run,
        solve_update_ratio,
        step_allocation,
        trained_samples,
        unit_costs,
    )
    from race.errors import InvalidInput
    from race.flops import FORMULAS, Architecture, update_flops
    from race.ladders import ladder
    from race.units import format_flops, parse_budget

    if attention not in ("causal", "full"):
        raise InvalidInput(f"attention: found {attention!r}; allowed are causal and full")
    convention: Attention = "full" if attention == "full" else "causal"
    arch = Architecture.from_config(model)
    # The nano recipe's short lengths belong to the nano models; every other model starts from the common default.
    defaults = ladder("nano" if model.lower().startswith("nano") else "qwen2.5")
    reward = recipe.reward(reward, default="sparse")
    built = recipe.build(defaults.recipe(reward))
    if rho is not None:
        if "update_ratio" in recipe.given:
            raise InvalidInput(
                "rho: given together with --update-ratio; drop one, since each fixes the other"
            )
        built = built.with_update_ratio(solve_update_ratio(arch, built, rho))
    if budget is not None and steps is not None:
        raise InvalidInput("steps: given together with --budget, which fixes them; drop one")
    steps = 1 if steps is None else steps
    if budget is not None:
        plan = size_run(arch, built, parse_budget(budget))
        built, steps, total, last = plan.recipe, plan.steps, plan.flops, plan.last_step_prompts
    else:
        trained = trained_samples(built.update_ratio, built.samples_per_step)
        built = replace(built, update_ratio=trained / built.samples_per_step)
        total, last = step_allocation(arch, built) * steps, 0
    if convention == "full":
        if budget is not None:
            raise InvalidInput("attention: found full with --budget; budgets use causal, so drop one")
        total = step_allocation(arch, built, attention=convention) * steps
    step = step_allocation(arch, built, attention=convention)
    costs = unit_costs(arch, built, attention=convention)
    lo, hi = costs.rho_range
    data: dict[str, Any] = {
        "model": model,
        "params": arch.params(),
        "reward": reward,
        "recipe": built.to_dict(),
        "flops": total.to_dict(),
        "shares": total.shares,
        "rho": total.rho,
        "rho_range": [lo, hi],
        "per_step": step.to_dict(),
        "steps": steps,
        "last_step_prompts": last,
        "convention": {"attention": attention, "counted": "matrix multiplications, 2*m*n*k each"},
    }

    if conventions:
        tokens = round(built.sequence_tokens)
        exact = update_flops(
            arch, [tokens], lora=built.lora, attention=convention, logits=min(tokens, round(built.completion_tokens)),
            gradient_checkpointing=built.gradient_checkpointing,
        ).total  # fmt: skip
        data["update_of_one_sample"] = {
            "tokens": tokens,
            "race": {"flops": exact, "ratio": 1.0, "note": "matrix multiplications that are executed"},
            **{
                name: {"flops": count, "ratio": count / exact, "note": formula.deviates}
                for name, formula in FORMULAS.items()
                if (count := _published(formula, arch, tokens, built.lora)) is not None
            },
        }

    def render(console: Console) -> None:
        rows = table(["phase", ("FLOPs", "right"), ("share", "right"), ("per step", "right")])
        labels = {
            "search": "search (rollouts)",
            "learning": "learning (updates)",
            "reward": "reward (scoring)",
        }
        for phase, label in labels.items():
            rows.add_row(
                label,
                format_flops(data["flops"][phase]),
                f"{data['shares'][phase]:.1%}",
                format_flops(data["per_step"][phase]),
            )
        rows.add_section()
        rows.add_row("total", format_flops(total.total), "100.0%", format_flops(step.total))
        console.print(f"[bold]{model}[/bold], {arch.params():,} parameters, reward {reward}")
        console.print(
            run_length({**built.to_dict(), "steps": steps, "last_step_prompts": last}) + ", "
            f"{built.prompt_tokens:g} + {built.completion_tokens:g} tokens, a = {built.update_ratio:.4g}"
        )
        console.print(rows)
        console.print(
            f"rho = {total.rho:.4f}; with this recipe it can be set from {lo:.3f} to {hi:.3f} through a"
        )
        console.print(f"Counted: matrix multiplications only; attention {attention}.", style="dim")
        if conventions:
            others = table(
                ["update of one sample, as counted by", ("FLOPs", "right"), ("ratio", "right"), "why"]
            )
            for name, row in data["update_of_one_sample"].items():
                if name != "tokens":
                    others.add_row(name, format_flops(row["flops"]), f"{row['ratio']:.3f}", row["note"])
            console.print(others)

    if rho is not None and abs(total.rho - rho) > 0.005:
        note(
            f"rho {rho:g} was asked for and {total.rho:.4f} is what {built.samples_per_step} whole samples per step "
            "allow; more prompts per step or rollouts per prompt come closer"
        )
    emit(data, as_json, render)


def _published(formula: Formula, arch: Architecture, tokens: int, lora: LoraSpec | None) -> int | None:
    """What ``formula`` gives, or ``None`` for an architecture it does not cover."""
    from race.errors import InvalidInput

    try:
        return formula.update(arch, [tokens], lora=lora).total
    except InvalidInput:
        return None
