"""Sentences a person can paste, and the tables' words: plain text, never markup."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from race.reports.data import ReportData, Run
from race.units import format_flops, parse_budget

RISKY = 0.1  # probability of collapse from which the headline says so


def plain(text: str, limit: int = 200) -> str:
    """One printable line of at most ``limit`` characters: names from records may hold newlines and worse."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def three(x: float) -> str:
    """Three significant digits, without an exponent where people would not write one."""
    if x == 0:
        return "0"
    if abs(x) >= 1e6 or abs(x) < 1e-3:
        return format_flops(x)
    rounded = float(f"{x:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{digits}f}"


def short_id(name: str) -> str:
    """The first dozen characters of a hash, and any name that somebody gave as it is."""
    hashed = len(name) >= 24 and all(c in "0123456789abcdef" for c in name)
    return name[:12] if hashed else plain(name, 60)


def budget_text(flops: int) -> str:
    """A budget as short as it can be typed without changing it."""
    short = format_flops(flops)
    return short if parse_budget(short) == flops else str(flops)


def headline(data: ReportData) -> str:
    """The decision in one sentence."""
    decision = data.decision
    advice, regime = decision["recommendation"], decision["regime"]
    value, risk = advice["value"], advice.get("collapse_risk", 0.0)
    warning = f" Such a run collapses with probability {risk:.2f}: that is not in the value." if risk >= RISKY else ""
    return (
        f"With {format_flops(data.budget)} FLOPs and reward {data.reward}, train {advice['model']} at rho "
        f"{advice['rho']['mean']:.2f}: expected {data.target} {value['mean']:.3f} (90 % interval {value['lo']:.3f} to "
        f"{value['hi']:.3f}). The optimum is {regime['label']} with probability "
        f"{regime['probabilities'][regime['label']]:.2f}.{warning}"
    )


def evidence_words(counts: Mapping[str, int]) -> str:
    """What the statement rests on."""
    found = ", ".join(f"{n} {kind} record{'s' if n != 1 else ''}" for kind, n in counts.items() if n)
    if not found:
        return "none: this is the simulator's prior, nothing is measured"
    if {kind for kind, n in counts.items() if n} == {"simulated"}:
        return f"{found}: a simulated world, nothing is measured"
    return found


def gaps(runs: Sequence[Run], targets: Sequence[str]) -> list[str]:
    """What is missing from the evidence, in words."""
    used = [run for run in runs if run.used]
    out = []
    if len(used) == 1:
        out.append("one record entered the fit: it cannot be checked against another, so calibration is empty")
    for target in targets:
        without = sum(target not in run.curves for run in used)
        if used and without:
            out.append(f"target {target}: {without} of {len(used)} records have no curve of it")
    return out


def other_rewards(runs: Sequence[Run], reward: str) -> list[str]:
    """That the evidence holds other reward systems than the one decided on, and how to ask about them."""
    counts = Counter(run.reward for run in runs if run.used)
    others = [f"{name} ({count})" for name, count in counts.items() if name != reward]
    if not others:
        return []
    return [
        f"this page decides for reward {reward} ({counts[reward]} records); the evidence also has {', '.join(others)}: "
        "ask about them in the what-if, or name one with --reward"
    ]


def would_flip(mind: Mapping[str, Any], target: str) -> str:
    """One pilot that could change the decision, as a sentence."""
    pilot = f"{mind['model']} at rho {mind['rho']:.2f} for {format_flops(mind['budget'])} FLOPs"
    if mind["flips_if"] is None:
        return f"No outcome of a pilot of {pilot} would change the decision."
    return (
        f"A pilot of {pilot} would change the decision to {mind['to']['model']} ({mind['to']['regime']}) with "
        f"probability {mind['probability']:.2f}: if its {target} ended {mind['flips_if']['direction']} "
        f"{mind['flips_if']['value']:.3f}, where {mind['expected']['mean']:.3f} is expected."
    )
