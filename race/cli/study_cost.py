"""What ``race study cost`` shows: settings with their price, seeds side by side, and sums per stage, in 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from race.cli.output import bullets, table

if TYPE_CHECKING:
    from rich.console import Console

_PHASES = ("search", "learning", "reward")


def render_cost(console: Console, data: Mapping[str, Any]) -> None:
    """A table per stage, one row per setting; every run by name is in the JSON."""
    priced = bool(data["cost"])
    for stage, runs in _by(data["runs"], lambda run: run["stages"][0]):
        console.print(f"[bold]stage {stage}[/bold]")
        console.print(_settings(runs, priced))
    console.print(f"[bold]{data['study']} on the {data['ladder']} ladder[/bold]")
    console.print(_sums(data, priced))
    notes = [
        "GPU-hours and dollars of a setting are those of one of its seeds; evaluation is beside the budget and on top",
        "reward: its share of the FLOPs; rate: relative to the tuned one, x1 where tuning has yet to say it",
        "runs by name, for race study run --only: --json",
    ]
    if any(len(run["stages"]) > 1 for run in data["runs"]):
        notes.insert(2, "a run that several stages look at is carried out once, and counted in the first of them")
    if priced:
        notes.insert(0, f"ranges on {data['cost']['gpu']}: how well GPUs are used is known no better, phase by phase")
    console.print(bullets(notes if priced else notes[1:]))


def _settings(runs: list[dict[str, Any]], priced: bool) -> Any:
    money = ["GPU-hours", "dollars"] if priced else []
    numbers = ("ρ", "a", "rate", "seeds", "steps", "reward", *money)
    rows = table(["setting", *((name, "right") for name in numbers)])
    rows.padding = (0, 1, 0, 0)  # nine columns in 80 characters
    rows.columns[0].no_wrap = True
    for label, group in _by(runs, _label):
        # The label runs down beside the rows it is about.
        lines = list(label)
        settings = [list(same) for _, same in _by(group, _setting)]
        for i in range(max(len(lines), len(settings))):
            said = lines[i] if i < len(lines) else ""
            if i >= len(settings):
                rows.add_row(said)
                continue
            run, flops = settings[i][0], settings[i][0]["flops"]
            cells = [
                f"{run['rho']:.2f}",
                f"{run['update_ratio']:.3g}",
                f"x{run['learning_rate']:.3g}",
                ",".join(str(one["seed"]) for one in settings[i]),
                str(run["steps"]),
                f"{flops['reward'] / flops['total']:.0%}",
            ]
            rows.add_row(said, *cells, *((_span(run, "gpu_hours"), _span(run, "dollars")) if priced else ()))
        rows.add_section()
    return rows


def _sums(data: Mapping[str, Any], priced: bool) -> Any:
    from race.units import format_flops

    money = ["GPU-hours", "dollars", "kWh"] if priced else []
    rows = table(["stage", *((name, "right") for name in ("runs", "FLOPs", *money))])

    def add(name: str, count: str, flops: float, cost: Mapping[str, Any] | None) -> None:
        spans = [_range(cost, key) for key in ("gpu_hours", "dollars", "kwh")] if priced else []
        rows.add_row(name, count, format_flops(flops), *spans)

    for name, one in data["stages"].items():
        add(name, str(one["runs"]), one["flops"]["total"], one["cost"])
    rows.add_section()
    add("all runs", str(len(data["runs"])), data["flops"]["total"], data["cost"])
    add("evaluation", "", data["flops"]["eval"], data["evaluation_cost"])
    return rows


def _label(run: Mapping[str, Any]) -> tuple[str, ...]:
    from race.units import format_flops

    rank = f"LoRA r = {run['lora_rank']}" if run["lora_rank"] else "full fine-tuning"
    return run["model"].removesuffix("-Instruct"), run["reward"], f"{format_flops(run['budget'])} FLOPs", rank


def _setting(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*_label(run), run["update_ratio"], run["learning_rate"])


def _by(runs: list[dict[str, Any]], key: Any) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Neighbours with the same key; the file's order keeps them together."""
    return [(name, list(group)) for name, group in groupby(runs, key)]


def _span(item: Mapping[str, Any], key: str) -> str:
    return _range(item["cost"], key)


def _range(cost: Mapping[str, Any] | None, key: str) -> str:
    if not cost or not cost[key]:
        return "no price"
    return f"{_two(cost[key]['lo'])}-{_two(cost[key]['hi'])}"


def _two(x: float) -> str:
    """Two significant digits: a range is not better known."""
    rounded = float(f"{x:.2g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:.2g}"
