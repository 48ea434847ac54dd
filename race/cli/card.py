"""``race card``: what somebody's run spent, by phase, from its log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from race.cli.options import HardwareOptions, RecipeOptions, RewardOption, hardware_options, recipe_options
from race.cli.output import JsonFlag, emit, facts, table
from race.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from race.cards import Card

FORMS = ("table", "markdown", "latex", "json")


@hardware_options
@recipe_options
def card(
    recipe: RecipeOptions,
    hardware: HardwareOptions,
    log: Annotated[
        Path,
        typer.Argument(
            help="trainer_state.json, JSON lines, console log, W&B export, TensorBoard events, or their folder."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", help="The policy, when nothing beside the log says: name, path or hub id."),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", help="auto, trl, verl, openrlhf, prime-rl or nemo-rl.")
    ] = "auto",
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The run's own config (JSON, TOML, YAML), or a folder with it."),
    ] = None,
    run: Annotated[
        int | None, typer.Option("--run", help="Which run of a log that holds several, from 1.")
    ] = None,
    salvage: Annotated[
        bool,
        typer.Option(
            "--salvage", help="Read the complete entries of a damaged JSON file.", show_default=False
        ),
    ] = False,
    reward: RewardOption = None,
    attention: Annotated[
        str, typer.Option("--attention", help="causal (budgets) or full (what eager attention executes).")
    ] = "causal",
    form: Annotated[str, typer.Option("--as", help="table, markdown, latex or json.")] = "table",
    as_json: JsonFlag = False,
) -> None:
    """What a logged run spent: FLOPs by phase with ranges, waste, GPU-hours; every assumption listed."""
    from race.allocation import Attention
    from race.cards import card_of
    from race.importers import choose_run, key_tables, read_runs

    if form not in FORMS:
        raise InvalidInput(f"as: found {form!r}; allowed are {', '.join(FORMS)}")
    if attention not in ("causal", "full"):
        raise InvalidInput(f"attention: found {attention!r}; allowed are causal and full")
    if format != "auto" and format not in key_tables():
        raise InvalidInput(f"format: found {format!r}; allowed are auto, {', '.join(key_tables())}")
    hardware.check()
    given = dict(recipe.given)
    if reward is not None or "reward" in given:
        given["reward"] = recipe.reward(reward)
    chosen = choose_run(log, read_runs(log, format=format, config=config, salvage=salvage), run)
    convention: Attention = "full" if attention == "full" else "causal"
    made = card_of(
        chosen,
        model,
        given=given,
        defaults=key_tables()[chosen.trainer].defaults,
        attention=convention,
        cost=hardware.cost,
    )
    if form in ("markdown", "latex") and not as_json:
        from race.cards.render import latex, markdown

        sys.stdout.write(markdown(made) if form == "markdown" else latex(made))
        return
    emit({"card": made.to_dict()}, as_json or form == "json", lambda console: _render(console, made))


def _render(console: Console, made: Card) -> None:
    from rich.markup import escape

    from race.cards.render import (
        assumption_rows,
        comparison_rows,
        convention,
        fact_rows,
        part_words,
        settled_rows,
        split_rows,
        waste_rows,
    )

    split = table(["phase", ("FLOPs", "right"), ("share", "right"), ("range", "right")])
    rows = split_rows(made)
    for row in rows[:-1]:
        split.add_row(*row)
    split.add_section()
    split.add_row(*rows[-1])
    console.print(facts(*((name, escape(text)) for name, text in fact_rows(made))))
    console.print(split)
    if words := part_words(made):
        console.print(f"of the total: {words}", style="dim")
    _curve(console, made)
    sections = (
        ("not settled by the log: used, and what it would move", ["what", "used", "range", "total moves by", "why"],
         assumption_rows(made)),
        ("settled", ["what", "value", "from"], settled_rows(made)),
        ("waste (kinds overlap)", ["kind", "how much", "known from"], waste_rows(made)),
        ("how others count", ["whose figure", "FLOPs", "ratio to ours", "why it differs"], comparison_rows(made)),
    )  # fmt: skip
    for title, header, body in sections:
        if body:
            grid = table(header, title=title)
            for cells in body:
                grid.add_row(*(escape(cell) for cell in cells))
            console.print(grid)
    for line in made.log.notes:
        console.print(f"- {escape(line)}", style="yellow")
    if made.log.unknown_keys:
        names = ", ".join(made.log.unknown_keys[:6])
        count = len(made.log.unknown_keys)
        console.print(f"- {count} keys unknown here and not used: {escape(names)}", style="dim")
    console.print(convention(made), style="dim")


def _curve(console: Console, made: Card) -> None:
    """A handful of points along the run."""
    from race.units import format_flops

    points = made.curve(6)
    if len(points) < 2:
        return
    grid = table(
        [
            ("step", "right"),
            ("FLOPs so far", "right"),
            ("rho of the step", "right"),
            ("completion", "right"),
            ("reward", "right"),
        ]
    )
    for p in points:
        grid.add_row(
            f"{p['step']:,}",
            format_flops(float(p["total"] or 0)),
            "-" if p["rho"] is None else f"{p['rho']:.3f}",
            f"{p['completion_tokens']:.1f}",
            "-" if p["value"] is None else f"{p['value']:.3f}",
        )
    console.print(grid)
