"""What a loop answers when it has ended: for programs and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from planner import Decision, Planner
    from planner.memory import StudyMemory
    from race.records import PilotRecord
    from race.store import Store
    from real_runs.loop import Ending, LoopFolder


def answer(
    planner: Planner, decision: Decision, ending: Ending, folder: LoopFolder, store: Store, study: str
) -> dict[str, Any]:
    """What ``race loop --json`` prints: the keys of ``race plan``, then how it came about."""
    from planner.compromise import weigh_targets

    memory: StudyMemory = planner.memory
    progress = planner.progress
    data = decision.to_dict()
    runs = [_run(memory, pilot, planner.space.targets) for pilot in progress.pilots]
    data |= {
        "pilots_run": len(runs),
        "stopped_because": ending.code,
        "stopped_reason": ending.reason,
        "runs": runs,
        "pilot_flops": {
            "budget": planner.space.pilot_budget,
            "spent": progress.spent,
            "records": sum(p.record.flops.total for p in progress.pilots if p.record is not None),
            "lost_work": sum(
                p.charged - (0.0 if p.record is None else p.record.flops.total) for p in progress.pilots
            ),
        },
        "study": {
            "name": study,
            "storage": memory.storage.where,
            "store": str(store.path),
            "folder": str(folder.path),
        },
    }
    between = weigh_targets(planner.proposer.surrogate(progress), planner.proposer.slice, seed=planner.proposer.seed)
    if between is not None:
        data["compromise"] = between.to_dict()
        data["notes"] = [*between.sentences(), *data["notes"]]
    return data


def _run(memory: StudyMemory, pilot: Any, targets: tuple[str, ...]) -> dict[str, Any]:
    spec, record = pilot.spec, pilot.record
    curves = {} if record is None else record.curves
    return {
        "number": pilot.number,
        "job": memory.job(pilot.number) if record is None else record.id,
        "model": spec.model,
        "reward": spec.reward,
        "rho": spec.rho,
        "budget": spec.budget,
        "spent": pilot.charged,
        "status": pilot.state if record is None else record.health.status,
        "ended": pilot.state if record is None else _how_it_ended(record),
        "reason": "" if record is None else record.health.reason,
        "values": {t: curves[t].value[-1] for t in targets if t in curves},
    }


def _how_it_ended(record: PilotRecord) -> str:
    """The status, in another word for a pilot that was asked to end: neither did it fail nor take too long."""
    from race.records import ENDED, PRUNED, STOPPED

    for flag, word in ((PRUNED, "pruned"), (ENDED, "stopped"), (STOPPED, "stopped")):
        if flag in record.health.flags and record.health.status in ("failed", "timeout"):
            return word
    return record.health.status


def render(console: Console, data: dict[str, Any]) -> None:
    """For people: the pilots, why it ended, and the decision as ``race plan`` shows it."""
    from race.cli.output import facts, table
    from race.cli.plan import render_decision
    from race.units import format_flops

    rows = table(["pilot", "model", ("rho", "right"), ("FLOPs", "right"), "how it ended", (data["target"], "right")])
    for run in data["runs"]:
        value = run["values"].get(data["target"])
        rows.add_row(
            str(run["number"]), run["model"], f"{run['rho']:.2f}", format_flops(run["spent"]) if run["spent"] else "0",
            run["ended"], "-" if value is None else f"{value:.3f}",
        )  # fmt: skip
    console.print(rows)
    spent, budget = data["pilot_flops"]["spent"], data["pilot_flops"]["budget"]
    used = f"{format_flops(spent) if spent else '0'} of {format_flops(budget)} FLOPs ({spent / budget:.0%})"
    console.print(
        facts(
            ("pilots", f"{data['pilots_run']} run, {used}"),
            ("ended", f"{data['stopped_because']}: {data['stopped_reason']}"),
            ("kept in", f"{_near(data['study']['folder'])}, records in {_near(data['study']['store'])}"),
        )
    )
    console.print()
    render_decision(console, data)


def _near(path: str) -> str:
    """A path as seen from here, where it lies below."""
    from pathlib import Path

    whole, here = Path(path).absolute(), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
