"""``race run``: one real run within a budget, from a spec to a record."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import RecipeOptions, recipe_options, split_targets
from race.cli.output import JsonFlag, emit, facts, note, run_length, table
from race.cli.run_config import merged, read_config, words
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from race.records import PilotRecord, PilotSpec
    from real_runs.assemble import Parts, Setup
    from real_runs.config import RunOptions

SETUP_FILE = "setup.json"
_FLAGS = ("model", "reward", "budget", "rho", "seed", "targets")


def _flag(*names: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel)


SetOption = Annotated[
    list[str] | None,
    _flag("--set", help="NAME=VALUE: a run option such as learning_rate=1e-3, or prm.NAME, data.NAME; repeatable."),
]
JudgeOption = Annotated[
    str | None, _flag("--judge-model", help="Process reward model that judges; nano has its own.", panel="Data")
]


@recipe_options
def run(
    recipe: RecipeOptions,
    model: Annotated[
        str | None, _flag("--model", help="nano-s, nano-m, nano-l, or a causal LM: folder, hub id, built-in name.")
    ] = None,
    reward: Annotated[
        str | None, _flag("--reward", help="sparse, structured, dense, proxy-prm, prm, or a mix: 0.9*prm+0.1*sparse.")
    ] = None,
    budget: Annotated[
        str | None, _flag("--budget", help="FLOPs to spend: 1e18, 300PFLOP; nano models have a default.")
    ] = None,
    rho: Annotated[float | None, _flag("--rho", help="Solve the update ratio for this update fraction.")] = None,
    target: Annotated[
        str | None, _flag("--target", help="What to evaluate: native, judge, pass@1, pass@1:<benchmark>; by commas.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything random.")] = None,
    spec: Annotated[
        Path | None, _flag("--spec", help="JSON of a planned pilot, instead of all of the above; - for stdin.")
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
    setup, pilot, options = _settle(told, spec)
    folder = Path(told["out"]) if told.get("out") else _default_folder(setup, pilot, options)
    _same_setup(folder, setup)
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


def _settle(told: dict[str, Any], file: Path | None) -> tuple[Setup, PilotSpec, RunOptions]:
    """Everything about the run, before anything heavy is imported."""
    from real_runs.assemble import Setup, default_options, priced_reward
    from real_runs.config import RunOptions

    pilot = None
    if file is not None:
        given = [name for name in (*_FLAGS, "recipe") if told.get(name)]
        if given:
            raise InvalidInput(f"spec: given together with {', '.join(given)}, which it says itself; drop one of them")
        pilot = _read_spec(file)
        told = {**told, "model": pilot.model, "reward": pilot.reward}
    if not told.get("model"):
        raise InvalidInput("model: missing; give --model nano-s, a folder or a hub id (see --help)")
    reward = told.get("reward") or "sparse"
    priced = priced_reward(reward)
    reward_model = told.get("reward_model") or told["recipe"].pop("reward_model", None)
    setup = Setup(
        model=told["model"],
        reward=reward,
        reward_model=reward_model,
        judge_model=told.get("judge_model"),
        data=told["data"],
        prm=told["prm"],
    )
    options = RunOptions.from_dict({**default_options(setup.model), **told["options"]})
    if pilot is None:
        pilot = _spec(told, setup, priced)
    return _with_reward_model(setup, pilot), pilot, options


def _spec(told: dict[str, Any], setup: Setup, priced: str) -> PilotSpec:
    from race.allocation import size_run
    from race.flops import Architecture
    from race.ladder import ladder
    from race.records import PilotSpec
    from race.units import parse_budget
    from real_runs.assemble import default_budget, default_recipe, locate, reward_model_for

    model = setup.model.lower() if setup.nano else setup.model
    architecture = Architecture.from_config(locate(model))
    scorer = reward_model_for(model, priced, setup.reward_model)
    given = {**default_recipe(model), **told["recipe"], "reward_model": scorer}
    built = RecipeOptions({k: v for k, v in given.items() if v is not None}).build(
        ladder("nano" if setup.nano else "qwen2.5"), priced
    )
    budget = told.get("budget") or default_budget(model)
    if budget is None:
        raise InvalidInput("budget: missing; give the FLOPs to spend, such as 1e16 (race flops says what a step costs)")
    rho = told.get("rho")
    if rho is not None and "update_ratio" in told["recipe"]:
        raise InvalidInput("rho: given together with update_ratio; drop one, since each fixes the other")
    plan = size_run(architecture, built, parse_budget(budget), rho=rho)
    targets = words(told.get("targets"), "targets")
    return PilotSpec(
        model=model,
        params=architecture.params(),
        recipe=plan.recipe,
        rho=plan.step.rho if rho is None else float(rho),
        budget=plan.budget,
        seed=told.get("seed") or 0,
        targets=tuple(split_targets(",".join(targets)) if targets else _default_targets(setup)),
    )


def _default_targets(setup: Setup) -> list[str]:
    judged = ["judge"] if setup.nano or setup.judge_model else []
    return ["native", "pass@1", *judged, *(f"pass@1:{name}" for name in setup.data.get("benchmarks", {}))]


def _with_reward_model(setup: Setup, pilot: PilotSpec) -> Setup:
    """The setup with the reward model that the spec prices; one that a nano model does not have is refused."""
    from dataclasses import replace

    from real_runs.assemble import reward_model_for

    priced = pilot.recipe.reward_model
    if priced is None:
        return setup
    return replace(setup, reward_model=reward_model_for(setup.model, pilot.reward, priced))


def _read_spec(path: Path) -> PilotSpec:
    from race.records import PilotSpec

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise InvalidInput(f"spec: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"spec: {path} is not JSON: {error}") from None
    return PilotSpec.from_dict(data)


def _default_folder(setup: Setup, pilot: PilotSpec, options: RunOptions) -> Path:
    """A folder of this run's own: the same command finds it again, and another never does."""
    text = json.dumps([setup.to_dict(), pilot.to_dict(), options.to_dict()], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.+-]+", "-", f"{Path(setup.model).name}-{setup.reward}").strip("-")
    return Path("runs") / f"{name}-{digest}"


def _same_setup(folder: Path, setup: Setup) -> None:
    """Refuse to resume with other data or models behind the same recipe."""
    path = folder / SETUP_FILE
    if not path.exists():
        return
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CannotDo(f"out: cannot read {path} ({error}); not run over it") from None
    wanted = json.loads(json.dumps(setup.to_dict()))
    for name, value in wanted.items():
        if found.get(name) != value:
            raise InvalidInput(
                f"{name}: found {value!r}, the run in {folder} has {found.get(name)!r}; resuming needs what the run "
                "was started with: use it, or another folder"
            )


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
        ("run", f"{pilot.model}, reward {setup.reward}, {format_flops(pilot.budget)} FLOPs, seed {pilot.seed}"),
        (
            "forecast",
            f"{run_length(plan.to_dict())}, {pilot.recipe.prompt_tokens:g} + {pilot.recipe.completion_tokens:g} "
            f"tokens, a = {plan.recipe.update_ratio:.3g}, rho = {plan.flops.rho:.2f}",
        ),
        ("adapter", "full fine-tuning" if lora is None else f"LoRA r = {lora.rank}, alpha {options.lora_alpha:g}"),
        ("options", ", ".join(f"{name} = {getattr(options, name)}" for name in changed) or "all at their defaults"),
        ("targets", ", ".join(pilot.targets)),
        ("folder", f"{folder}"),
    )
    console(stderr=True).print(rows)


def _carry_out(
    setup: Setup, pilot: PilotSpec, options: RunOptions, folder: Path, monitors: list[str] | None
) -> PilotRecord:
    """Run the pilot with everything that watches it."""
    from race.cli.live import LiveRun, stdout_to_stderr, stops_between_steps
    from real_runs.assemble import assembled
    from real_runs.monitors import RunMonitors, build_monitors

    watching = RunMonitors(
        build_monitors(monitors),
        folder=folder,
        run=f"{pilot.model.rsplit('/', 1)[-1]}-{setup.reward}",
        config={"spec": pilot.to_dict(), "options": options.to_dict(), "setup": setup.to_dict()},
        complain=note,
    )
    with stdout_to_stderr(), stops_between_steps() as check, assembled(setup, options) as parts:
        for line in parts.notes:
            note(line)
        with LiveRun(pilot, f"{pilot.model}, {setup.reward}") as live:
            try:
                return _run(parts, pilot, options, folder, [live, _keep(folder, setup), watching, lambda _: check()])
            except KeyboardInterrupt:
                raise CannotDo(
                    f"interrupted at step {live.step}; everything up to it is kept in {folder}: run the same command "
                    "again to resume"
                ) from None
            finally:
                watching.close()


def _run(
    parts: Parts, pilot: PilotSpec, options: RunOptions, folder: Path, callbacks: list[Any]
) -> PilotRecord:
    from transformers.utils import logging

    from real_runs.run import run_pilot

    logging.set_verbosity_error()
    logging.disable_progress_bar()
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
