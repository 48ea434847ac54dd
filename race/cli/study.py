"""``race study``: a whole experiment from one file, priced before it is run and resumable while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import HardwareOptions, hardware_options
from race.cli.output import JsonFlag, emit, facts, note

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
    typer.Option(
        "--rates",
        help="Tuned rates instead of tuning: a rates.json, a packed study, or nano-study.",
        show_default=False,
    ),
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
    from race.cli.study_cost import render_cost
    from real_runs.study import forecast, read_study, study_runs, tuning_runs

    hardware.check()
    study = read_study(file)
    runs: list[StudyRun] = [*tuning_runs(study), *study_runs(study, _rates(rates))]
    if stage:
        for name in stage:
            if name != "tuning" or study.tuning is None:
                study.stage(name)
        runs = [run for run in runs if set(stage) & set(run.stages)]
    found = forecast(study, runs, hardware.cost)
    data = {"study": study.name, "ladder": study.ladder.name, **found.to_dict()}
    emit(data, as_json, lambda console: render_cost(console, data))


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


@app.command("pack")
def pack(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder that race study run --out wrote.")],
    to: Annotated[Path, typer.Option("--to", help="File to write; its name ends in .jsonl.gz.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Default: the study's, as its records say it.", show_default=False)
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Keep a surrogate fitted to it beside it: answers at once.")
    ] = False,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            "--stage", help="Pack the runs of this stage; repeatable. Default: all.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """The records of a study in one small file, which every command takes as evidence."""
    from race.cli.study_pack import pack_study

    data = pack_study(out, to, name, fit, stage or ())
    emit(data, as_json, lambda console: _render_pack(console, data))
    for problem in data["skipped"]:
        note(f"skipped {problem}")


@app.command("check")
def check(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder that race study run --out wrote.")],
    against: Annotated[
        Path, typer.Option("--against", help="Packed study to compare with, or nano-study.")
    ] = Path("nano-study"),
    as_json: JsonFlag = False,
) -> None:
    """Whether runs came out as they did before, bit for bit: compare records with packed ones of the same name."""
    from race.cli.study_pack import check_study

    data = check_study(out, against)
    emit(data, as_json, lambda console: _render_check(console, data))
    if data["different"] or not data["equal"]:
        raise typer.Exit(1)


def _rates(path: Path | None) -> Rates | None:
    from race.cli.sources import find_pack
    from race.errors import InvalidInput
    from real_runs.study import Rates

    if path is None:
        return None
    if not path.exists() or path.suffix == ".gz":
        found = find_pack(path)
        if found.rates is None:
            raise InvalidInput(f"rates: {found.path} has none, since its study tuned nothing; leave --rates out")
        return Rates.from_dict(found.rates)
    return Rates.read(path)


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


def _render_pack(console: Console, data: dict[str, Any]) -> None:
    from race.units import format_flops

    rows = [
        ("study", data["name"]),
        ("records", f"{data['records']}: " + ", ".join(f"{n} {status}" for status, n in data["health"].items())),
        ("stages", ", ".join(f"{stage} {n}" for stage, n in data["stages"].items())),
        ("FLOPs", f"{format_flops(data['flops']['total'])}, evaluation {format_flops(data['flops']['eval'])} beside"),
        ("rates", "tuned" if data["rates"] else "none were tuned"),
        ("file", f"{data['file']}, {data['bytes'] / 1e6:.2f} MB"),
        ("sha256", data["sha256"]),
    ]
    console.print(facts(*rows, *((("surrogate", data["surrogate"]),) if data["surrogate"] else ())))


def _render_check(console: Console, data: dict[str, Any]) -> None:
    against = data["against"]
    for run_id in data["equal"]:
        console.print(f"{run_id}: equal to {against} in every bit")
    for run_id, lines in data["different"].items():
        more = f", {len(lines) - 5} more" if len(lines) > 5 else ""
        console.print(f"[bold]{run_id}: differs from {against} in {len(lines)} value(s)[/bold]")
        for line in lines[:5]:
            console.print(f"  {line}")
        if more:
            console.print(f"  and {more.removeprefix(', ')} (--json has them all)")
    for run_id in data["unknown"]:
        console.print(f"{run_id}: not in {against}")
    for library, pair in data["versions"].items():
        console.print(f"{library} {pair['here']} here, {pair['there']} there: a likely reason")
    if not data["equal"] and not data["different"]:
        console.print("nothing to compare")
