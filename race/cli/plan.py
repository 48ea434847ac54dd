"""``race plan``: where a budget should go, how sure that is, and which pilots would make it surer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import (
    HardwareOptions,
    LadderOption,
    PilotBudgetOption,
    RecipeOptions,
    RewardOption,
    SeedOption,
    TargetOption,
    hardware_options,
    pilot_flops,
    recipe_options,
    split_targets,
)
from race.cli.output import (
    JsonFlag,
    bullets,
    emit,
    evidence_of,
    facts,
    note,
    odds_of,
    run_length,
    table,
    with_interval,
)
from race.cli.sources import EvidenceOption, gather_evidence

if TYPE_CHECKING:
    from rich.console import Console


@hardware_options
@recipe_options
def plan(
    recipe: RecipeOptions,
    hardware: HardwareOptions,
    budget: Annotated[str, typer.Option("--budget", help="FLOPs to spend: 1e18, 2.5e17, 300PFLOP, 1EFLOP.")],
    reward: RewardOption = None,
    target: TargetOption = "native",
    ladder: LadderOption = "qwen2.5",
    evidence: EvidenceOption = None,
    pilot_budget: PilotBudgetOption = "10%",
    pilots: Annotated[int, typer.Option("--pilots", min=0, max=64, help="How many next pilots to show.")] = 3,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Where a budget should go, how sure that is, and the next pilots."""
    from planner import Planner
    from race.ladders import ladder as choose_ladder
    from race.units import parse_budget

    hardware.check()
    reward = recipe.reward(reward)
    rungs = choose_ladder(ladder)
    flops = parse_budget(budget)
    found = gather_evidence(evidence, rungs.name)
    targets = split_targets(target)
    planner = Planner(
        rungs,
        budget=flops,
        reward=reward,
        target=targets,
        recipe=recipe.build(rungs.recipe(reward)),
        pilot_budget=pilot_flops(pilot_budget, flops),
        records=found.records,
        seed=seed,
    )
    fitted = found.fitted(rungs, targets, seed)
    if fitted is not None:
        planner.adopt(fitted)
    decision = planner.decide(pilots=pilots)
    data = decision.to_dict()
    if found.problems:
        data["skipped"] = found.problems
    if found.packs:
        data["evidence_from"] = found.to_dict()
    cost = hardware.cost(decision.sized.plan.flops)
    if cost is not None:
        data["cost"] = cost.to_dict()

    emit(data, as_json, lambda console: render_decision(console, data, found.words))
    for problem in found.problems:
        note(f"skipped {problem}")


def render_decision(console: Console, data: dict[str, Any], source: str = "") -> None:
    """The decision for people; every number in it is also in the JSON. ``source`` says where the records are from."""
    from race.units import format_flops

    advice, regime, counts = data["recommendation"], data["regime"], data["evidence"]
    recipe, shares = advice["recipe"], advice["shares"]
    odds = sorted(regime["probabilities"].items(), key=lambda item: -item[1])
    models = sorted(data["models"].items(), key=lambda item: -item[1])
    console.print(
        f"[bold]{format_flops(data['budget'])} FLOPs, reward {data['reward']}, target {data['target']}[/bold]\n"
    )
    rows = facts(
        ("regime", f"[bold]{regime['label']}[/bold]  ({odds_of(odds)})"),
        ("model", f"[bold]{advice['model']}[/bold]  (best: {odds_of(models)})"),
        (
            "rho",
            f"[bold]{advice['rho']['mean']:.2f}[/bold]  update fraction of this run; the optimum lies in "
            f"{advice['rho']['lo']:.2f} to {advice['rho']['hi']:.2f} (90 %)",
        ),
        (data["target"], f"{with_interval(advice['value'], '.3f')}  expected at this setting"),
        (
            "recipe",
            f"{run_length(recipe)}, "
            f"{recipe['prompt_tokens']:g} + {recipe['completion_tokens']:g} tokens, update ratio a = "
            f"{advice['update_ratio']:.3g}, {adapter(recipe['lora'])}",
        ),
        ("evidence", evidence_of(counts) + (f", of {source}" if source else "")),
        *_risk(advice["collapse_risk"]),
    )
    console.print(rows)

    split = table(["where it goes", ("share", "right"), ("FLOPs", "right")])
    for phase, what in (("search", "rollouts"), ("learning", "updates"), ("reward", "scoring")):
        split.add_row(f"{phase} ({what})", f"{shares[phase]:.1%}", format_flops(advice["flops"][phase]))
    split.add_section()
    used = advice["flops"]["total"] / data["budget"]
    split.add_row("total", f"{used:.1%} of budget", format_flops(advice["flops"]["total"]))
    console.print(split)
    if "cost" in data:
        console.print(cost_facts(data["cost"]))
    if data["pilots"]:
        console.print(pilots_table(data["pilots"]))
    console.print(bullets(data["notes"]))


def _risk(probability: float) -> list[tuple[str, str]]:
    """A warning where the value stated is likely not to be reached, because it is that of a healthy run."""
    from race.reports.words import RISKY

    if probability < RISKY:
        return []
    return [("collapse", f"[yellow]probability {probability:.2f}: this recipe may not stay healthy[/yellow]")]


def pilots_table(pilots: list[dict[str, Any]]) -> Any:
    """The next pilots, one row each."""
    from race.units import format_flops

    rows = table(
        ["next pilots", ("rho", "right"), ("a", "right"), ("FLOPs", "right"), "reward", ("seed", "right")]
    )
    for pilot in pilots:
        rows.add_row(
            pilot["model"],
            f"{pilot['rho']:.2f}",
            f"{pilot['recipe']['update_ratio']:.2f}",
            format_flops(pilot["budget"]),
            pilot["recipe"]["reward"],
            str(pilot["seed"]),
        )
    return rows


def adapter(lora: dict[str, Any] | None) -> str:
    """The adapter in a few words."""
    if lora is None:
        return "full fine-tuning"
    targets = lora["targets"] if isinstance(lora["targets"], str) else ",".join(lora["targets"])
    return f"LoRA r = {lora['rank']} on {targets}"


def cost_facts(cost: dict[str, Any]) -> Any:
    """GPU-hours, dollars and kWh as ranges."""
    from race.reports.words import three

    def span(value: dict[str, float]) -> str:
        return f"{three(value['point'])}  ({three(value['lo'])} to {three(value['hi'])})"

    return facts(
        ("hardware", f"{cost['count']} x {cost['gpu']}"),
        ("GPU-hours", span(cost["gpu_hours"])),
        ("wall hours", span(cost["wall_hours"])),
        ("dollars", span(cost["dollars"]) if cost["dollars"] else "no dated price known; give --gpu-price"),
        ("kWh", span(cost["kwh"])),
    )
