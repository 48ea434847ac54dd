"""``race run``: one real run within a budget, from a spec to a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import RecipeOptions, recipe_options
from race.cli.output import JsonFlag, emit, facts, note, run_length, table
from race.cli.run_config import merged, read_config, words
from race.cli.run_spec import SETUP_FILE, check_setup, default_folder, settle
from race.errors import CannotDo

if TYPE_CHECKING:
    from rich.console import Console

    from race.records import PilotRecord, PilotSpec
    from real_runs.assemble import Parts, Setup
    from real_runs.config import RunOptions


def _flag(*names: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel)


SetOption = Annotated[
    list[str] | None,
    _flag(
        "--set",
        help="NAME=VALUE: a run option such as learning_rate=1e-3, or prm.NAME, data.NAME; repeatable.",
    ),
]
JudgeOption = Annotated[
    str | None,
    _flag("--judge-model", help="Process reward model that judges; nano has its own.", panel="Data"),
]


@recipe_options
def run(
    recipe: RecipeOptions,
    model: Annotated[
        str | None,
        _flag("--model", help="nano-s, nano-m, nano-l, or a causal LM: folder, hub id, built-in name."),
    ] = None,
    reward: Annotated[
        str | None,
        _flag("--reward", help="sparse, structured, dense, proxy-prm, prm, or a mix: 0.9*prm+0.1*sparse."),
    ] = None,
    budget: Annotated[
        str | None, _flag("--budget", help="FLOPs to spend: 1e18, 300PFLOP; nano models have a default.")
    ] = None,
    rho: Annotated[
        float | None, _flag("--rho", help="Solve the update ratio for this update fraction.")
    ] = None,
    target: Annotated[
        str | None,
        _flag("--target", help="What to evaluate: native, judge, pass@1, pass@1:<benchmark>; by commas."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything random.")] = None,
    spec: Annotated[
        Path | None,
        _flag("--spec", help="JSON of a planned pilot, instead of all of the above; - for stdin."),
    ] = None,
    config: Annotated[Path | None, _flag("--config", help="TOML file with all of this; flags win.")] = None,
    settings: SetOption = None,
    out: Annotated[
        Path | None, _flag("--out", help="The run's folder; of the same run: resume. Default: runs/NAME.")
    ] = None,
    store: Annotated[Path | None, _flag("--store", help="Folder of records to add the record to.")] = None,
    monitor: Annotated[
        list[str] | None,
        _flag("--monitor", help="tensorboard (default where installed), wandb, trackio or none; repeatable."),
    ] = None,
    data: Annotated[
        str | None, _flag("--data", help="Training problems: file, polaris-53k, gsm8k, hub id.", panel="Data")
    ] = None,
    heldout: Annotated[
        str | None, _flag("--heldout", help="Held-out problems; default: split off --data.", panel="Data")
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        _flag("--benchmark", help="NAME or NAME=SOURCE behind target pass@1:NAME; repeatable.", panel="Data"),
    ] = None,
    judge_model: JudgeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """One real GRPO run within a budget. Run the same command again to resume it."""
    from race.store import Store
    from real_runs import require_runs_extra

    flags: dict[str, Any] = {
        "model": model, "reward": reward, "budget": budget, "rho": rho, "seed": seed, "targets": target,
        "judge_model": judge_model, "recipe": recipe.given, "store": None if store is None else str(store),
        "out": None if out is None else str(out), "monitor": monitor,
        "data": {"train": data, "heldout": heldout, "benchmarks": dict(map(_benchmark, benchmark or [])) or None},
    }  # fmt: skip
    told = merged(read_config(config), flags, settings or [])
    require_runs_extra()
    from real_runs.grpo.ranks import writes

    setup, pilot, options = settle(told, spec)
    folder = Path(told["out"]) if told.get("out") else default_folder(setup, pilot, options)
    if not writes():
        _take_part(setup, pilot, options, folder)
        return
    check_setup(folder, setup)
    records = Store(told["store"], create=True) if told.get("store") else None
    if records is not None:
        records.add_all([])  # a store that cannot be written is found out now, not after the run
    _show_plan(setup, pilot, options, folder)
    record = _carry_out(setup, pilot, options, folder, words(told.get("monitor"), "monitor"))
    if records is not None:
        if record.id in records:
            note(f"the record is in {records.path} already")
        else:
            records.add(record)
    emit(record.to_dict(), as_json, lambda console: _render(console, record, folder))


def _benchmark(text: str) -> tuple[str, str]:
    name, equals, source = text.partition("=")
    return (name.strip(), source.strip()) if equals else (Path(text).stem, text)


def _show_plan(setup: Setup, pilot: PilotSpec, options: RunOptions, folder: Path) -> None:
    """The effective spec and options, on stderr."""
    from dataclasses import fields

    from race.allocation import size_run
    from race.cli.output import console
    from race.flops import Architecture
    from race.units import format_flops
    from real_runs.assemble import locate

    plan = size_run(Architecture.from_config(locate(pilot.model)), pilot.recipe, pilot.budget)
    lora = pilot.recipe.lora
    defaults = type(options)()
    changed = [f.name for f in fields(options) if getattr(options, f.name) != getattr(defaults, f.name)]
    rows = facts(
        (
            "run",
            f"{pilot.model}, reward {setup.reward}, {format_flops(pilot.budget)} FLOPs, seed {pilot.seed}",
        ),
        (
            "forecast",
            f"{run_length(plan.to_dict())}, {pilot.recipe.prompt_tokens:g} + {pilot.recipe.completion_tokens:g} "
            f"tokens, a = {plan.recipe.update_ratio:.3g}, rho = {plan.flops.rho:.2f}",
        ),
        (
            "adapter",
            "full fine-tuning" if lora is None else f"LoRA r = {lora.rank}, alpha {options.lora_alpha:g}",
        ),
        (
            "options",
            ", ".join(f"{name} = {getattr(options, name)}" for name in changed) or "all at their defaults",
        ),
        ("targets", ", ".join(pilot.targets)),
        ("folder", f"{folder}"),
    )
    console(stderr=True).print(rows)


def _carry_out(
    setup: Setup, pilot: PilotSpec, options: RunOptions, folder: Path, monitors: list[str] | None
) -> PilotRecord:
    """Run the pilot with everything that watches it."""
    from race.cli.live import LiveRun, quiet_libraries, stdout_to_stderr, stops_between_steps
    from real_runs.assemble import assembled
    from real_runs.monitors import RunMonitors, build_monitors

    watching = RunMonitors(
        build_monitors(monitors),
        folder=folder,
        run=f"{pilot.model.rsplit('/', 1)[-1]}-{setup.reward}",
        config={"spec": pilot.to_dict(), "options": options.to_dict(), "setup": setup.to_dict()},
        complain=note,
    )
    quiet_libraries()
    with stdout_to_stderr(), stops_between_steps() as check, assembled(setup, options) as parts:
        for line in parts.notes:
            note(line)
        with LiveRun(pilot, f"{pilot.model}, {setup.reward}") as live:
            try:
                return _run(
                    parts, pilot, options, folder, [live, _keep(folder, setup), watching, lambda _: check()]
                )
            except KeyboardInterrupt:
                raise CannotDo(
                    f"interrupted at step {live.step}; everything up to it is kept in {folder}: run the same command "
                    "again to resume"
                ) from None
            finally:
                watching.close()


def _take_part(setup: Setup, pilot: PilotSpec, options: RunOptions, folder: Path) -> None:
    """The run in a process beside the one that writes and talks; errors of its own are told."""
    from race.cli.live import quiet_libraries, stdout_to_stderr, stops_between_steps
    from real_runs.assemble import assembled

    quiet_libraries()
    with stdout_to_stderr(), stops_between_steps(quiet=True), assembled(setup, options) as parts:
        try:
            _run(parts, pilot, options, folder, [])
        except KeyboardInterrupt:
            raise typer.Exit(1) from None


def _run(
    parts: Parts, pilot: PilotSpec, options: RunOptions, folder: Path, callbacks: list[Any]
) -> PilotRecord:
    from real_runs.run import run_pilot

    if parts.reward is None:
        raise CannotDo("reward: this setup has none to train on")

    def progress(now: Any) -> None:
        for call in callbacks:
            call(now)

    return run_pilot(
        pilot,
        task=parts.task,
        reward=parts.reward,
        policy=parts.policy,
        out_dir=folder,
        judge=parts.judge if "judge" in pilot.targets else None,
        benchmarks=parts.benchmarks,
        options=options,
        progress=progress,
    )


def _keep(folder: Path, setup: Setup) -> Any:
    """Write the setup beside the run, once the folder is known to be this run's."""
    done: list[bool] = []

    def write(_: Any) -> None:
        if not done:
            (folder / SETUP_FILE).write_text(json.dumps(setup.to_dict(), indent=1), encoding="utf-8")
            done.append(True)

    return write


def _render(console: Console, record: PilotRecord, folder: Path) -> None:
    from race.cli.live import PHASES
    from race.units import format_flops

    health = record.health
    verdict = health.status + (f": {health.reason}" if health.reason else "")
    console.print(
        f"[bold]{record.spec.model}, reward {record.provenance.get('reward', record.spec.reward)}[/bold], "
        f"{record.steps:,} steps, {verdict}" + (f" ({', '.join(health.flags)})" if health.flags else "")
    )
    rows = table(["phase", ("FLOPs", "right"), ("share", "right"), ("seconds", "right")])
    flops = record.flops
    for name, label in PHASES.items():
        seconds = sum(s for phase, s in record.seconds.items() if _column(phase) == name)
        rows.add_row(label, format_flops(getattr(flops, name)), f"{flops.shares[name]:.1%}", f"{seconds:.1f}")
    rows.add_section()
    rows.add_row("total", format_flops(flops.total), f"{flops.total / record.spec.budget:.1%} of budget", "")
    console.print(rows)
    curves = table(["target", ("base", "right"), ("trained", "right"), ("standard error", "right")])
    for target, curve in record.curves.items():
        curves.add_row(target, f"{curve.value[0]:.3f}", f"{curve.value[-1]:.3f}", f"{curve.se[-1]:.3f}")
    console.print(curves)
    console.print(f"Adapter, record and ledger: {folder}")


def _column(phase: str) -> str:
    return phase if phase in ("search", "reward", "eval") else "learning"
