"""``race study``: a whole experiment from one file, priced before it is run and resumable while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import HardwareOptions, hardware_options
from race.cli.output import JsonFlag, emit, facts, note, table

if TYPE_CHECKING:
    from rich.console import Console

    from real_runs.study import Conduct, Rates, StudyRun
    from real_runs.study.conduct import Standing

app = typer.Typer(
    name="study",
    help="Many settings designed beforehand: what they cost, and running them.",
    no_args_is_help=True,
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The study: a TOML file.")]
StageOption = Annotated[
    list[str] | None,
    typer.Option("--stage", help="Only this stage; repeatable. tuning is one.", show_default=False),
]
RatesOption = Annotated[
    Path | None,
    typer.Option("--rates", help="rates.json of an earlier tuning, instead of tuning.", show_default=False),
]


@app.command("cost")
@hardware_options
def cost(
    hardware: HardwareOptions,
    file: FileArgument,
    stage: StageOption = None,
    rates: RatesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """What every run of a study spends, by phase; with --gpu also GPU-hours, dollars and kWh as ranges."""
    from real_runs.study import forecast, read_study, study_runs, tuning_runs

    hardware.check()
    study = read_study(file)
    runs: list[StudyRun] = [*tuning_runs(study), *study_runs(study, _rates(rates))]
    if stage:
        for name in stage:
            if name != "tuning" or study.tuning is None:
                study.stage(name)
        runs = [run for run in runs if set(stage) & set(run.stages)]
    found = forecast(runs, hardware.cost)
    data = {"study": study.name, "ladder": study.ladder.name, **found.to_dict()}
    emit(data, as_json, lambda console: _render_cost(console, data))


@app.command("run")
def run(
    file: FileArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder of this study's records and checkpoints.")],
    executor: Annotated[
        str, typer.Option("--executor", help="local:N, simulator:WORLD, ray, or a TOML file of an executor.")
    ] = "local:1",
    stage: StageOption = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only the run of this name; repeatable.", show_default=False),
    ] = None,
    rates: RatesOption = None,
    tries: Annotated[int, typer.Option("--tries", min=1, help="How often a failing run is tried.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Carry a study out. Run the same command again to go on after an interruption."""
    from race.units import format_flops
    from real_runs.executors import build_executor
    from real_runs.study import conduct, read_study

    study = read_study(file)
    known = _rates(rates)

    def told(standing: Standing) -> None:
        record = standing.newest
        ends = ", ".join(f"{target} {curve.value[-1]:.3f}" for target, curve in record.curves.items())
        status = "" if record.health.status == "ok" else f" [{record.health.status}: {record.health.reason}]"
        note(
            f"{standing.done}/{standing.total} {record.id}: {format_flops(record.flops.total)} FLOPs, "
            f"{sum(record.seconds.values()):.0f} s, {ends}{status}"
        )

    with build_executor(executor, config=study.run) as running:
        result = conduct(
            study, running, out, stages=stage or (), only=only or (), rates=known, tries=tries, told=told
        )
    data = _summary(study.name, result, out)
    emit(data, as_json, lambda console: _render_result(console, data))
    if result.given_up:
        raise typer.Exit(1)


def _rates(path: Path | None) -> Rates | None:
    from race.errors import InvalidInput
    from real_runs.study import Rates

    if path is None:
        return None
    try:
        return Rates.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidInput(f"rates: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"rates: {path} is not JSON: {error}") from None


def _summary(name: str, result: Conduct, out: Path) -> dict[str, Any]:
    from race.allocation import Allocation

    spent = sum((r.flops for r in result.records.values()), start=Allocation(0, 0, 0))
    return {
        "study": name,
        "store": str(out / "records"),
        "runs": len(result.runs),
        "records": len(result.records),
        "given_up": dict(result.given_up),
        "flops": spent.to_dict(),
        "over_budget": [
            run_id for run_id, record in result.records.items() if record.flops.total > record.spec.budget
        ],
    }


def _render_cost(console: Console, data: dict[str, Any]) -> None:
    from race.units import format_flops

    rows = table(
        ("run", "stage", ("FLOPs", "right"), ("steps", "right"), ("search", "right"), ("ρ", "right"),
         ("reward", "right"), *((("GPU-hours", "right"),) if data["cost"] else ()))
    )  # fmt: skip
    for item in data["runs"]:
        flops = item["flops"]
        total = flops["search"] + flops["learning"] + flops["reward"]
        hours = item["cost"]["gpu_hours"] if item["cost"] else None
        rows.add_row(
            item["id"],
            ",".join(item["stages"]),
            format_flops(total),
            str(item["steps"]),
            f"{flops['search'] / total:.0%}",
            f"{item['rho']:.2f}",
            f"{flops['reward'] / total:.0%}",
            *((f"{hours['lo']:.3g}-{hours['hi']:.3g}",) if hours else ()),
        )
    console.print(rows)
    flops = data["flops"]
    total = flops["search"] + flops["learning"] + flops["reward"]
    lines = [("runs", str(len(data["runs"]))), ("FLOPs", f"{format_flops(total)}, evaluation not included")]
    if data["cost"]:
        cost = data["cost"]

        def span(key: str) -> str:
            return f"{cost[key]['lo']:,.3g} to {cost[key]['hi']:,.3g}" if cost[key] else "no price known"

        lines.append(("GPU-hours", f"{span('gpu_hours')} on {cost['gpu']}"))
        lines += [(name, span(key)) for name, key in (("dollars", "dollars"), ("kWh", "kwh"))]
    console.print(facts(*lines))


def _render_result(console: Console, data: dict[str, Any]) -> None:
    from race.units import format_flops

    flops = data["flops"]
    total = flops["search"] + flops["learning"] + flops["reward"]
    lines = [
        ("runs", f"{data['records']} of {data['runs']} done"),
        ("FLOPs", f"{format_flops(total)}; {len(data['over_budget'])} over budget"),
        ("records", data["store"]),
    ]
    lines += [("given up", f"{name}: {reason}") for name, reason in data["given_up"].items()]
    console.print(facts(*lines))
