"""``race import`` and ``race simulate``: commands that put records into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import (
    LadderOption,
    PilotBudgetOption,
    RecipeOptions,
    RewardOption,
    SeedOption,
    StoreOption,
    TargetOption,
    pilot_flops,
    recipe_options,
    split_targets,
)
from race.cli.output import JsonFlag, emit, note, table
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from race.records import PilotRecord


@recipe_options
def import_log(
    recipe: RecipeOptions,
    log: Annotated[
        Path,
        typer.Argument(
            help="Learning curves in CSV, or a log of TRL, verl, OpenRLHF, prime-rl or NeMo-RL (any container)."
        ),
    ],
    store: StoreOption,
    about: Annotated[
        Path | None,
        typer.Option("--about", help="TOML file with what the log does not say; options here win."),
    ] = None,
    reward: RewardOption = None,
    target: Annotated[
        str | None, typer.Option("--target", help="What the values measure, e.g. pass@1:gsm8k.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="MODEL of a trainer's log, or COLUMN=MODEL of a CSV file; may be repeated."),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", help="auto, csv, trl, verl, openrlhf, prime-rl or nemo-rl.")
    ] = "auto",
    config: Annotated[
        Path | None, typer.Option("--config", help="Trainers' logs: the run's own config, or a folder with it.")
    ] = None,
    series: Annotated[
        list[str] | None, typer.Option("--series", help="Trainers' logs: TARGET=KEY, the logged key of a target.")
    ] = None,
    native_range: Annotated[
        str | None, typer.Option("--native-range", help="LO,HI: smallest and largest possible training reward.")
    ] = None,
    run: Annotated[int | None, typer.Option("--run", help="Which run of a log that holds several, from 1.")] = None,
    salvage: Annotated[
        bool | None, typer.Option("--salvage", help="Read the complete entries of a damaged JSON file.")
    ] = None,
    eval_size: Annotated[
        int | None, typer.Option("--eval-size", help="Questions behind each value, for standard errors.")
    ] = None,
    step_column: Annotated[str | None, typer.Option("--step-column", help="Default: step.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the runs, if known.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Where the log comes from.")] = None,
    allow_gaps: Annotated[
        bool | None, typer.Option("--allow-gaps/--no-allow-gaps", help="Empty cells were not evaluated.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Other people's logs into records: FLOPs rebuilt from the recipe, curves as evidence."""
    from race.importers import import_log as read_log
    from race.store import Store

    models = dict(_column(text) for text in model or [])
    records = read_log(
        log,
        format=format,
        config=config,
        series=dict(_series(text) for text in series or []) or None,
        native_range=None if native_range is None else _ends(native_range),
        run=run,
        salvage=salvage,
        about=about,
        reward=reward,
        target=target,
        models=models or None,
        eval_size=eval_size,
        seed=seed,
        step_column=step_column,
        source=source,
        allow_gaps=allow_gaps,
        recipe=recipe.given,
    )
    folder = Store(store, create=True)
    # Ids are hashes of content: importing the same log again, or after an interruption, adds what is missing.
    missing = [record for record in records if record.id not in folder]
    folder.add_all(missing)
    if len(missing) < len(records):
        note(f"{len(records) - len(missing)} of {len(records)} records were already in {store}")
    data = {"store": str(store), "records": [record.to_dict() for record in records]}
    emit(data, as_json, lambda console: _render_records(console, records, str(store)))


def _column(text: str) -> tuple[str, str]:
    column, equals, name = text.partition("=")
    if not equals and text.strip():
        return "run", text.strip()
    if not equals or not column.strip() or not name.strip():
        raise InvalidInput(
            f"model: found {text!r}; allowed is COLUMN=MODEL such as small=Qwen2.5-1.5B-Instruct"
        )
    return column.strip(), name.strip()


def _series(text: str) -> tuple[str, str]:
    target, equals, key = text.partition("=")
    if not equals or not target.strip() or not key.strip():
        raise InvalidInput(
            f"series: found {text!r}; allowed is TARGET=KEY such as pass@1:gsm8k=val-core/openai/gsm8k/reward/mean@1"
        )
    return target.strip(), key.strip()


def _ends(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"native_range: found {text!r}; allowed are two numbers such as 0,2") from None
    return low, high


@recipe_options
def simulate(
    recipe: RecipeOptions,
    budget: Annotated[str, typer.Option("--budget", help="The real budget the pilots prepare for.")],
    store: StoreOption,
    reward: RewardOption = None,
    world: Annotated[
        str, typer.Option("--world", help="own-N (the simulator's own family) or alien-FAMILY-N.")
    ] = "own-0",
    pilots: Annotated[int, typer.Option("--pilots", min=1, max=1000, help="How many pilots.")] = 9,
    pilot_budget: PilotBudgetOption = "10%",
    target: TargetOption = "native,pass@1,judge",
    ladder: LadderOption = "qwen2.5",
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """IsoFLOP pilots of the paper's grid in a simulated world, into a store."""
    from planner.grid import start_grid
    from planner.space import PilotSpace
    from race.ladders import ladder as choose_ladder
    from race.simulator.worlds import world as named_world
    from race.store import Store
    from race.units import parse_budget

    reward = recipe.reward(reward)
    rungs = choose_ladder(ladder)
    flops = parse_budget(budget)
    space = PilotSpace.build(
        rungs,
        budget=flops,
        reward=reward,
        target=split_targets(target),
        recipe=recipe.build(rungs.recipe(reward)),
        pilot_budget=pilot_flops(pilot_budget, flops),
    )
    run = named_world(world)
    cells = start_grid(space, pilots)
    if not cells:
        raise CannotDo(
            f"pilot_budget: {pilot_budget} of {budget} pays for no IsoFLOP slice on which two models can be compared; "
            "raise it, or lower prompts_per_step, group_size or the lengths"
        )
    # Beyond the grid's size the same settings are run again with other seeds: replicates, which teach the noise.
    specs = [space.spec(cells[i % len(cells)], seed=1000 * seed + i) for i in range(pilots)]
    records = [run(spec) for spec in specs]
    folder = Store(store, create=True)
    folder.add_all(records)
    data = {"store": str(store), "world": world, "records": [record.to_dict() for record in records]}
    emit(data, as_json, lambda console: _render_records(console, records, str(store)))


def _render_records(console: Console, records: list[PilotRecord], store: str) -> None:
    from race.units import format_flops

    rows = table(["model", ("rho", "right"), ("FLOPs", "right"), ("steps", "right"), "curve", "health"])
    for record in records:
        curves = (f"{name} {c.value[0]:.2f} -> {c.value[-1]:.2f}" for name, c in record.curves.items())
        rows.add_row(
            record.spec.model,
            f"{record.flops.rho:.2f}",
            format_flops(record.flops.total),
            f"{record.steps:,}",
            "\n".join(curves) or "-",
            record.health.status,
        )
    count, rewards = len(records), ", ".join(sorted({r.spec.reward for r in records}))
    console.print(f"[bold]{count} record{'s' if count != 1 else ''} into {store}[/bold], reward {rewards}")
    console.print(rows)
    assumed: list[Any] = records[0].provenance.get("assumptions", []) if records else []
    for line in assumed:
        console.print(f"- assumed: {line}", style="dim")
