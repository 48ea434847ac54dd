"""``race loop``: plan, run pilots, learn, until the decision is sure enough or the pilot budget is spent."""

from __future__ import annotations

import re
import sys
from pathlib import Path
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
from race.cli.output import JsonFlag, emit, note
from race.cli.sources import gather_evidence
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from planner import Planner
    from planner.storage import Storage
    from race.ladders import Ladder
    from race.records import PilotRecord
    from race.store import Store
    from real_runs.executors import Executor
    from real_runs.loop import Ending, Forecast, LoopFolder, LoopOptions

_HELP = typer.Option


@hardware_options
@recipe_options
def loop(
    recipe: RecipeOptions,
    hardware: HardwareOptions,
    budget: Annotated[str, _HELP("--budget", help="The real budget: 1e18, 2.5e17, 300PFLOP, 1EFLOP.")],
    reward: RewardOption = None,
    target: TargetOption = "native",
    ladder: LadderOption = "qwen2.5",
    pilot_budget: PilotBudgetOption = "10%",
    executor: Annotated[
        str,
        _HELP("--executor", help="local[:N], simulator:WORLD, ray[:ADDRESS], command:COMMAND, or a TOML file."),
    ] = "local",
    workers: Annotated[
        int | None, _HELP("--workers", min=1, max=10_000, help="Pilots at a time, where --executor does not say.")
    ] = None,
    config: Annotated[
        Path | None, _HELP("--config", help="TOML file of race run: data, options, prm, for real runs.")
    ] = None,
    out: Annotated[
        Path | None, _HELP("--out", help="The loop's folder; of the same loop: resume. Default: loops/STUDY.")
    ] = None,
    storage: Annotated[
        str | None,
        _HELP("--storage", help="Study: SQLite file, NAME.journal or postgresql://... Default: OUT/study.db."),
    ] = None,
    study: Annotated[str | None, _HELP("--study", help="The study's name. Default: from the question.")] = None,
    store: Annotated[
        Path | None, _HELP("--store", help="Folder of records; those in it inform the plan. Default: OUT/store.")
    ] = None,
    evidence: Annotated[
        list[Path] | None,
        _HELP(
            "--evidence",
            help="More records to inform the plan, which stay as they are: a folder, a packed study, or nano-study; "
            "repeatable. Default: none.",
        ),
    ] = None,
    pilot_size: Annotated[
        list[str] | None, _HELP("--pilot-size", help="FLOPs of a pilot to choose among; may be repeated.")
    ] = None,
    certainty: Annotated[float, _HELP("--certainty", help="Probability of the regime that is enough.")] = 0.9,
    min_pilots: Annotated[
        int | None, _HELP("--min-pilots", min=0, help="Pilots before certainty counts. Default: one per model.")
    ] = None,
    prune: Annotated[
        bool, _HELP("--prune/--no-prune", help="Stop pilots that cannot change the decision any more.")
    ] = True,
    yes: Annotated[bool, _HELP("--yes", "-y", help="Do not ask before a large spend.")] = False,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Run pilots until it is sure enough where the budget should go. Run the same command again to resume."""
    from dataclasses import replace

    from planner import Planner, StoppingRule
    from planner.storage import open_storage
    from race.cli.loop_answer import answer, render
    from race.cli.loop_view import LoopView
    from race.ladders import ladder as choose_ladder
    from race.units import parse_budget
    from real_runs.loop import Loop, LoopFolder

    _quiet()
    hardware.check()
    reward = recipe.reward(reward)
    rungs = choose_ladder(ladder)
    flops = parse_budget(budget)
    runner, careful = _runner(executor, config, workers)
    kind = executor.strip() if runner.name == "simulator" else "real runs"
    name = study or _study_name(rungs, reward, flops, kind)
    folder = LoopFolder(out or Path("loops") / name)
    folder.prepare()
    place = open_storage(storage or folder.study)
    try:
        place.own()
        records = _store(store or folder.store)
        known = _evidence(records, evidence, place, name, rungs, simulated=runner.name == "simulator")
        planner = Planner(
            rungs,
            budget=flops,
            reward=reward,
            target=split_targets(target),
            recipe=recipe.build(rungs.recipe(reward)),
            pilot_budget=pilot_flops(pilot_budget, flops),
            sizes=[parse_budget(size, field="pilot_size") for size in pilot_size] if pilot_size else None,
            records=known,
            storage=place,
            study_name=name,
            seed=seed,
        )
        least = planner.proposer.start_count if min_pilots is None else min_pilots
        planner.rule = StoppingRule(certainty=certainty, min_pilots=least)
        planner.memory.agree(executor=kind)
        ahead = _forecast(planner, runner, hardware)
        if ahead is not None:
            _confirm(ahead, yes)
        title = f"{name}: {len(rungs.models)} models, reward {reward}"
        history = [(line["spent"], max(line["regime"].values())) for line in folder.lines(planner.memory.token)]
        with LoopView(title, history) as view:
            machine = Loop(
                planner, runner, folder=folder, store=records, options=replace(careful, prune=prune), watch=view,
                tell=view.tell,
            )  # fmt: skip
            ending = _carried_out(machine, folder)
        decision = planner.decide(pilots=0 if ending.failed else 3)
        data = answer(planner, decision, ending, folder, records, name)
    finally:
        place.close()
    cost = hardware.cost(decision.sized.plan.flops)
    if cost is not None:
        data["cost"] = cost.to_dict()
    if ahead is not None:
        data["forecast"] = ahead.to_dict()
    folder.keep(data)
    emit(data, as_json, lambda console: render(console, data))
    if ending.failed:
        raise CannotDo(f"pilots: {ending.reason}; see the stderr.log files in {folder.pilots}, then run it again")


def _quiet() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _study_name(rungs: Ladder, reward: str, budget: int, kind: str) -> str:
    parts = [rungs.name, reward, f"{budget:.12g}".replace("+", "")]
    if kind != "real runs":
        parts.append(kind)
    return re.sub(r"[^A-Za-z0-9_.]+", "-", "-".join(parts)).strip("-")


def _runner(text: str, config: Path | None, workers: int | None) -> tuple[Executor, LoopOptions]:
    """The executor, and how the loop treats it.

    Work that a crash makes a run of ours do again is paid from its own budget, so that it never spends more than was
    reserved for it. Other trainers know nothing of that: the loop itself tries them again, and reserves first.
    """
    from real_runs.executors import build_executor
    from real_runs.executors.build import executor_options
    from real_runs.loop import LoopOptions

    options = executor_options(text)
    foreign = "command" in options
    told = _run_config(config, foreign or options.get("kind") == "simulator")
    if not foreign:
        return build_executor(options, config=told, slots=workers), LoopOptions()
    tries = options.pop("retries", 1)
    careful = LoopOptions(lost_work_inside=False, retries=tries)
    return build_executor({**options, "retries": 0}, slots=workers), careful


def _run_config(path: Path | None, unused: bool) -> dict[str, Any] | None:
    """What every run of ours is told."""
    from race.cli.run_config import read_config

    if unused:
        if path is not None:
            raise InvalidInput(f"config: found {path}, which only runs of our own trainer read; drop it")
        return None
    told = read_config(path)
    for fixed in ("model", "reward", "budget", "rho", "seed", "targets", "recipe", "out", "store"):
        if told.get(fixed) not in (None, {}):
            raise InvalidInput(f"config.{fixed}: found in {path}; the loop decides that: drop it")
    told["options"] = {"lost_work": "inside", **told.get("options", {})}
    return told


def _store(path: Path) -> Store:
    from race.store import Store

    records = Store(path, create=True)
    records.add_all([])  # a store that cannot be written is found out now, not after the first pilot
    return records


def _evidence(
    store: Store, more: list[Path] | None, place: Storage, study: str, rungs: Ladder, *, simulated: bool
) -> list[PilotRecord]:
    """Records of the store that are not this study's own pilots, those it has itself, and ``more`` from elsewhere.

    Raises
    ------
    InvalidInput
        None of either is about a model of the ladder, or they are simulated and the pilots are not.
    """
    from planner.memory import own_prefix

    loaded = store.records()
    named = gather_evidence(more)
    for problem in (*(str(problem) for problem in loaded.problems), *named.problems):
        note(f"skipped {problem}")
    own = own_prefix(place, study)
    others = [r for r in loaded.records if own is None or not r.id.startswith(own)]
    own_ids = {record.id for record in others}
    others = _about(others, "store", str(store.path), rungs, simulated=simulated)
    where = ", ".join(str(path) for path in more or [])
    elsewhere = [record for record in named.records if record.id not in own_ids]
    return others + _about(elsewhere, "evidence", where, rungs, simulated=simulated)


def _about(
    others: list[PilotRecord], option: str, where: str, rungs: Ladder, *, simulated: bool
) -> list[PilotRecord]:
    """``others``, said to inform the plan; see `_evidence` for what is refused."""
    if not others:
        return []
    if not any(record.spec.model in rungs for record in others):
        found = ", ".join(sorted({r.spec.model for r in others})[:3])
        raise InvalidInput(
            f"{option}: {where} is about {found}, and the ladder has {', '.join(m.name for m in rungs.models)}; use "
            f"another --{option}, or the ladder it belongs to"
        )
    made_up = sum(r.evidence == "simulated" for r in others)
    if made_up and not simulated:
        raise InvalidInput(
            f"{option}: {where} holds {made_up} simulated records, and these pilots are real; use another --{option}"
        )
    if made_up < len(others) and simulated:
        raise InvalidInput(
            f"{option}: {where} holds measured records, and these pilots are simulated; use another --{option}"
        )
    rewards = sorted({r.spec.reward for r in others})
    note(f"{len(others)} records in {where} inform the plan (reward {', '.join(rewards)})")
    return others


def _forecast(planner: Planner, executor: Executor, hardware: HardwareOptions) -> Forecast | None:
    """What is still to be spent; ``None`` for simulated pilots, which cost nothing, and where nothing is left."""
    from race.allocation import Allocation, size_run
    from race.hardware import hardware_cost
    from race.units import format_flops
    from real_runs.loop import forecast

    smallest = planner.proposer.smallest
    remaining = planner.remaining
    if executor.name == "simulator" or smallest is None or remaining < smallest:
        return None
    plans = [
        size_run(planner.space.ladder[spec.model].architecture, spec.recipe, spec.budget).flops
        for spec in planner.next_pilots(3)
    ]
    total = sum(plan.total for plan in plans)
    scale = remaining / total if total else 0.0
    shares = Allocation(*(scale * sum(getattr(p, phase) for p in plans) for phase in ("search", "learning", "reward")))
    cpu = planner.space.ladder.name == "nano"
    ahead = forecast(
        remaining,
        smallest,
        shares=shares,
        workers=executor.slots,
        records=[p.record for p in planner.progress.pilots if p.record is not None],
        hardware=hardware.cost(shares),
        guess=None if cpu else hardware_cost(shares),
    )
    most = format_flops(planner.space.sizes[-1])
    note(f"forecast: {ahead.sentence()}; {executor.slots} pilots at a time, none above {most} FLOPs")
    return ahead


def _confirm(ahead: Forecast, yes: bool) -> None:
    """Ask before a large spend; without a terminal to ask on, ``--yes`` must be there already.

    Raises
    ------
    InvalidInput
        There is nobody to ask.
    CannotDo
        The answer was no.
    """
    if yes or not ahead.large:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"yes: missing; this would spend {ahead.sentence()}, and there is no terminal to ask on")
    if not typer.confirm("Start?", default=False, err=True):
        raise CannotDo("nothing was started, and nothing was spent")


def _carried_out(machine: Any, folder: LoopFolder) -> Ending:
    from race.cli.live import stdout_to_stderr

    try:
        with stdout_to_stderr(), _terminated_like_interrupted():
            ending: Ending = machine.run()
            return ending
    except KeyboardInterrupt:
        raise CannotDo(
            f"interrupted; running pilots have kept their state in {folder.pilots}: run the same command again to go on"
        ) from None


def _terminated_like_interrupted() -> Any:
    """SIGTERM, as batch systems send it, ends a loop the way Ctrl-C does."""
    import signal
    import threading
    from contextlib import contextmanager

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    @contextmanager
    def caught() -> Any:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    return caught()
