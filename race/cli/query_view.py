"""What ``race query`` says to people: a table per question, and sentences that can be pasted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from race.cli.output import bullets, evidence_of, facts, odds_of, run_length, table, with_interval

if TYPE_CHECKING:
    from rich.console import Console


def render_query(console: Console, data: Mapping[str, Any], source: str = "") -> None:
    """The whole answer; every number in it is also in the JSON. ``source`` says where the records are from."""
    from race.cli.plan import cost_facts
    from race.units import format_flops

    value, star, where, flops = data["value"], data["rho_star"], data["setting"], data["flops"]
    odds = sorted(data["regime"]["probabilities"].items(), key=lambda item: -item[1])
    shares = ", ".join(f"{phase} {share:.1%}" for phase, share in flops["shares"].items())
    console.print(
        f"[bold]{format_flops(data['budget'])} FLOPs, reward {data['reward']}, target {data['target']}[/bold]\n"
    )
    console.print(
        facts(
            ("setting", f"[bold]{where['model']}[/bold] at rho {where['rho']:.2f}"),
            (data["target"], with_interval(value, ".3f")),
            ("rho*", with_interval(star, ".2f")),
            ("regime", f"[bold]{data['regime']['label']}[/bold]  ({odds_of(odds)})"),
            ("collapse", f"probability {data['collapse_risk']:.2f} that such a run does not stay healthy"),
            ("recipe", f"{run_length(data['recipe'])}, a = {data['recipe']['update_ratio']:.3g}"),
            ("shares", f"{shares} of {format_flops(flops['total'])} FLOPs"),
            ("evidence", evidence_of(data["evidence"]) + (f", of {source}" if source else "")),
        )
    )
    if "cost" in data:
        console.print(cost_facts(data["cost"]))
    if "argmax" in data:
        _argmax(console, data["argmax"])
    if data["compare"]:
        _compare(console, data)
    if "targets" in data:
        _targets(console, data["targets"])
    if "change_mind" in data:
        _minds(console, data)
    console.print()
    for line in data["sentences"]:
        console.print(line, markup=False)
    if data["notes"]:
        console.print()
        console.print(bullets(data["notes"]))


def _argmax(console: Console, found: list[dict[str, Any]]) -> None:
    rows = table(["best of each model", ("rho", "right"), ("value (90 %)", "right"), ("P(best)", "right")])
    for one in found:
        value = one["value"]
        rows.add_row(
            one["model"],
            f"{one['rho']:.2f}",
            f"{value['mean']:.3f} ({value['lo']:.3f} to {value['hi']:.3f})",
            f"{one['probability_best']:.2f}",
        )
    console.print(rows)


def _compare(console: Console, data: Mapping[str, Any]) -> None:
    from race.units import format_flops

    rows = table(["against", ("value", "right"), ("difference (90 %)", "right"), ("P(better)", "right")])
    for other in data["compare"]:
        gap = other["difference"]
        name = f"{other['model']}@{other['rho']:.2f}"
        if other["reward"] != data["reward"]:
            name += f", {other['reward']}"
        if _scored_otherwise(other, data):
            name += f", {other['reward_model']}"
        if other["budget"] != data["budget"]:
            name += f", {format_flops(other['budget'])}"
        rows.add_row(
            name,
            f"{other['value']['mean']:.3f}",
            f"{gap['mean']:+.3f} ({gap['lo']:+.3f} to {gap['hi']:+.3f})",
            f"{other['probability_better']:.2f}",
        )
    console.print(rows)


def _targets(console: Console, targets: Mapping[str, Any]) -> None:
    rows = table(["target", ("here", "right"), "its own best", ("value", "right"), ("lost here", "right")])
    for name, view in targets.items():
        best = view["best"]
        rows.add_row(
            name,
            f"{view['value']['mean']:.3f}",
            f"{best['model']}@{best['rho']:.2f}",
            f"{best['value']['mean']:.3f}",
            f"{view['loss']:.3f}",
        )
    console.print(rows)


def _minds(console: Console, data: Mapping[str, Any]) -> None:
    from race.units import format_flops

    if not data["change_mind"]:
        console.print("\nThe pilot budget pays for no pilot: nothing can change the decision.")
        return
    if data["change_mind"][0]["probability"] < 0.005:
        return  # a table of zeros says less than the sentence below
    rows = table(
        ["pilot", ("FLOPs", "right"), ("P(flip)", "right"), "to", ("if it ends", "right"), ("expected", "right")]
    )
    for mind in data["change_mind"]:
        flips = mind["flips_if"]
        rows.add_row(
            f"{mind['model']}@{mind['rho']:.2f}",
            format_flops(mind["budget"]),
            f"{mind['probability']:.2f}",
            f"{mind['to']['model']}, {mind['to']['regime']}" if flips else "-",
            f"{flips['direction']} {flips['value']:.3f}" if flips else "-",
            f"{mind['expected']['mean']:.3f}",
        )
    console.print(rows)


def sentences(data: Mapping[str, Any]) -> list[str]:
    """Each answer in one sentence that stands alone."""
    from race.units import format_flops

    value, where, target = data["value"], data["setting"], data["target"]
    this = f"{where['model']} at rho {where['rho']:.2f}"
    counts = data["evidence"]
    rests = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    records = "record" if sum(counts.values()) == 1 else "records"
    rests = f"evidence: {rests} {records}" if rests else "prior only, no evidence"
    out = [
        f"At {format_flops(data['budget'])} FLOPs with reward {data['reward']}, {this} is expected to reach {target} "
        f"{value['mean']:.3f} (90 % interval {value['lo']:.3f} to {value['hi']:.3f}; {rests})."
    ]
    if "argmax" in data:
        best = data["argmax"][0]
        near = best["near"]
        out.append(
            f"The best setting is {best['model']} at rho {best['rho']:.2f} ({target} {best['value']['mean']:.3f}), the "
            f"best model with probability {best['probability_best']:.2f}; rho from {near['lo']:.2f} to "
            f"{near['hi']:.2f} loses next to nothing."
        )
    for other in data["compare"]:
        gap = other["difference"]
        out.append(
            f"{_named(other, data)} beats {this} with probability "
            f"{other['probability_better']:.2f} (difference {gap['mean']:+.3f}, 90 % interval {gap['lo']:+.3f} to "
            f"{gap['hi']:+.3f})."
        )
    out += _trade_offs(data.get("targets", {}), this)
    if "change_mind" in data:
        out.append(_mind_sentence(data["change_mind"], target, data["pilot_budget"]))
    return out


def _named(other: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """A compared setting with all in which it differs from the question."""
    from race.units import format_flops

    said = f"{other['model']} at rho {other['rho']:.2f}"
    if other["reward"] != data["reward"]:
        said += f" with reward {other['reward']}"
    if _scored_otherwise(other, data):
        said += f" scored by {other['reward_model']}"
    if other["budget"] != data["budget"]:
        said += f" for {format_flops(other['budget'])} FLOPs"
    return said


def _scored_otherwise(other: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether a compared setting has a reward model that the question does not have."""
    return other["reward_model"] is not None and other["reward_model"] != data["reward_model"]


def _trade_offs(targets: Mapping[str, Any], this: str) -> list[str]:
    """Who loses what at this setting; targets that lose nothing worth a digit share one sentence."""
    content = [name for name, view in targets.items() if view["loss"] < 5e-4]
    out = [f"{this} is as good as the best setting for {', '.join(content)}."] if content else []
    for name, view in targets.items():
        if name not in content:
            best = view["best"]
            out.append(
                f"For {name} the best setting is {best['model']} at rho {best['rho']:.2f} "
                f"({best['value']['mean']:.3f}); {this} gets {view['value']['mean']:.3f}, {view['loss']:.3f} less."
            )
    return out


def _mind_sentence(minds: list[dict[str, Any]], target: str, pilots: int) -> str:
    from race.reports.words import would_flip
    from race.units import format_flops

    most = f"the pilot budget of {format_flops(pilots)} FLOPs"
    if not minds:
        return f"{most[0].upper()}{most[1:]} pays for no pilot, so nothing can change the decision."
    if minds[0]["probability"] < 0.005:
        return f"No single pilot within {most} would change the decision."
    return would_flip(minds[0], target)
