"""``race fit``: save a surrogate, with what it is worth on runs it was not shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import (
    RecipeOptions,
    SeedOption,
    recipe_options,
    split_targets,
)
from race.cli.output import JsonFlag, bullets, emit, note, table
from race.cli.sources import StoresArgument, gather_evidence
from race.errors import CannotDo

if TYPE_CHECKING:
    from rich.console import Console


@recipe_options
def fit(
    recipe: RecipeOptions,
    store: StoresArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder to write the surrogate to.")],
    reward: Annotated[
        str | None, typer.Option("--reward", help="Reward what-ifs start from; default: the records' own.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Targets to model, by commas; default: all in evidence.")
    ] = None,
    ladder: Annotated[
        str | None,
        typer.Option("--ladder", help="As in race plan; default: the records' own.", show_default=False),
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Fit the surrogate to a store and save it; print leave-one-run-out diagnostics."""
    from planner.reporting import ladder_of
    from race.ladders import ladder as choose_ladder
    from surrogate import Surrogate
    from surrogate.files import check_writable

    asked = None if ladder is None else choose_ladder(ladder)
    check_writable(out)
    evidence = gather_evidence(store)
    records, problems = evidence.records, evidence.problems
    if not records:
        raise CannotDo("store: none was named; a fit needs records")
    rungs = asked or ladder_of(records)
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
    console.print(bullets(data["notes"]))
