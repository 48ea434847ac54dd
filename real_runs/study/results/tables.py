"""What the runs show, as Markdown: integrity, frontiers, optima, targets, learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from race.units import format_flops
from real_runs.study.results.page import folded, interval, table

Row = Mapping[str, Any]


def slice_cells(row: Row) -> list[str]:
    """The cells under `SLICE`."""
    return [row["reward"], row["model"], format_flops(row["budget"]), str(row["rank"])]


SLICE = ["reward", "model", "budget", "rank"]


def slices(rows: Sequence[Row]) -> str:
    """Names of slices in a sentence."""
    return "; ".join(f"{r['reward']} {r['model']} {format_flops(r['budget'])} rank {r['rank']}" for r in rows)


def integrity(found: Row) -> str:
    """Runs by stage and status, and the checks."""
    planned, statuses = found["planned"], found["statuses"]
    kinds = sorted({k for counts in statuses.values() for k in counts} | {"ok", "collapsed"}, reverse=True)
    rows = []
    for stage, count in planned.items():
        there = statuses.get(stage, {})
        rows.append(
            [
                stage,
                count,
                sum(there.values()),
                count - sum(there.values()),
                *(there.get(k, 0) for k in kinds),
                found["failed"].get(stage, 0),
            ]
        )
    least = f"{found['least_used']:.4f} ({found['least_used_run']})" if found["least_used"] else None
    checks: list[list[Any]] = [
        ["runs over their budget", len(found["overruns"])],
        ["least used share of a budget", least],
        ["records of no stage of the study", len(found["foreign"])],
        ["FLOPs of all runs", format_flops(found["spent"])],
        ["runs whose curves end elsewhere than their FLOPs", len(found["unequal_ends"])],
        ["ledgers read", found["ledgers"]],
        ["ledgers that disagree with their record", len(found["unequal_ledgers"])],
    ]
    head = ["stage", "planned", "there", "missing", *kinds, "failed tries"]
    return table(head, rows) + "\n\nA run may belong to several stages.\n\n" + table(["check", "found"], checks)


def rates(found: Row | None, chosen: Row | None) -> str:
    """Learning rates that the stages used, what was compared, and what tuning runs at hand say where that differs."""
    if found is None:
        return "Missing: tuning is not over."
    head = ["model", "update ratio", "tuned rate", "pass@1 by rate (multiples of the size's default)"]
    again = {(m, a): entry for m, by_ratio in (chosen or {}).items() for a, entry in by_ratio.items()}
    if differ := again and again != {(m, a): entry for m, by_ratio in found.items() for a, entry in by_ratio.items()}:
        head += ["tuned again", "pass@1 by rate"]
    rows = []
    for model, by_ratio in found.items():
        for ratio, entry in by_ratio.items():
            entries = [entry, again[model, ratio]] if differ else [entry]
            rows.append([model, ratio, *(cell for e in entries for cell in (f"{e['best']:g}", _means(e)))])
    return table(head, rows)


def _means(entry: Row) -> str:
    return ", ".join(f"{rate}: {value:.3f}" for rate, value in entry["means"].items())


def curves(tuned: Sequence[Row], fixed: Sequence[Row]) -> str:
    """Mean ± standard deviation (runs) over ρ; tuned and fixed side by side where both exist."""
    rhos = sorted({rho for row in (*tuned, *fixed) for rho in row["rho"]})
    if not rhos:
        return "Missing: no slice yet."
    rows = []
    other = {(r["reward"], r["model"], r["budget"], r["rank"]): r for r in fixed}
    for row in tuned:
        rows.append([*slice_cells(row), "tuned", *_arms(row, rhos)])
        match = other.pop((row["reward"], row["model"], row["budget"], row["rank"]), None)
        if match:
            rows.append([*slice_cells(match), "fixed", *_arms(match, rhos)])
    rows += [[*slice_cells(row), "fixed", *_arms(row, rhos)] for row in other.values()]
    return table([*SLICE, "rate", *(f"ρ {rho:g}" for rho in rhos)], rows)


def _arms(row: Row, rhos: Sequence[float]) -> list[str | None]:
    at = {rho: i for i, rho in enumerate(row["rho"])}
    top = max(row["mean"])
    cells: list[str | None] = []
    for rho in rhos:
        if rho not in at:
            cells.append(None)
            continue
        i = at[rho]
        sd = "" if row["sd"][i] is None else f" ± {row['sd'][i]:.3f}"
        mean = f"{row['mean'][i]:.3f}"
        cells.append((f"**{mean}**" if row["mean"][i] == top else mean) + f"{sd} ({row['n'][i]})")
    return cells


def peaks(rows: Sequence[Row]) -> str:
    """ρ* with its interval, the chance of each arm to be the best, and whether the slice is flat."""
    if not rows:
        return "Missing: no slice yet."
    lines = []
    for r in rows:
        lo, hi = r["lo_hi"] or (None, None)
        chances = None if r["p_best"] is None else " / ".join(f"{p:.2f}" for p in r["p_best"])
        flat = None if r["within_noise"] is None else "spans the grid" if r["within_noise"] else "no"
        p = None if r["p_flat"] is None else f"{r['p_flat']:.3f}"
        lines.append(
            [
                *slice_cells(r),
                r["target"],
                interval(r["rho"], lo, hi) + (" *" if r["borrowed"] else ""),
                r["regime"],
                f"{r['best_rho']:g}: {r['best_value']:.3f}",
                chances,
                p,
                flat,
            ]
        )
    head = [
        *SLICE,
        "target",
        "ρ* [95 %]",
        "regime",
        "best arm",
        "P(arm is best), ρ ascending",
        "p(flat)",
        "within noise",
    ]
    note = (
        "\n\n\\* one seed per arm: the spread between seeds is borrowed from other slices of this model and reward."
    )
    return table(head, lines) + (note if any(r["borrowed"] for r in rows) else "")


_EXTRA_COLUMNS: dict[str, tuple[list[str], Callable[[Row], list[Any]]]] = {
    "best_gain": (["gain of the best arm", "runs in both"], lambda r: [f"{r['best_gain']:+.3f}", r["shared"]]),
    "priced": (["at one update ratio"], lambda r: [f"{r['priced']:+.2f}" if "priced" in r else None]),
}


def differences(rows: Sequence[Row], what: str) -> str:
    """ρ* minus ρ* with intervals; an interval without 0 is marked."""
    if not rows:
        return "Missing: no pair of slices yet."
    extra_head, extra = _EXTRA_COLUMNS["best_gain" if "best_gain" in rows[0] else "priced"]
    lines = []
    for r in rows:
        away = r["lo"] is not None and (r["lo"] > 0 or r["hi"] < 0)
        lines.append([*slice_cells(r), r["target"], interval(r["value"], r["lo"], r["hi"]), away, *extra(r)])
    return table([*SLICE, "target", f"{what} [95 %]", "0 outside", *extra_head], lines)


def disagreement(rows: Sequence[Row]) -> str:
    """How far two targets are apart, and what it costs."""
    if not rows:
        return "Missing: no slice yet."
    lines = []
    for r in rows:
        if r["same_values"]:
            lines.append([*slice_cells(r), f"{r['first']} − {r['second']}", "the same measurement", None, None, None])
            continue
        lines.append(
            [
                *slice_cells(r),
                f"{r['first']} − {r['second']}",
                interval(r["difference"], r["lo"], r["hi"]),
                r["p_same_best_arm"],
                interval(r["lost"], r["lost_lo"], r["lost_hi"], 3),
                None if r["lost_cross_validated"] is None else f"{r['lost_cross_validated']:.3f}",
            ]
        )
    head = [
        *SLICE,
        "targets",
        "difference of ρ* [95 %]",
        "P(same best arm)",
        "second lost at the first's best arm [95 %]",
        "the same, cross-validated",
    ]
    return table(head, lines)


def spending(rows: Sequence[Row], larger: Sequence[Row]) -> str:
    """Shares, steps and update ratio at the best arm; and whether larger models take fewer steps."""
    if not rows:
        return "Missing: no slice yet."
    lines = [
        [
            *slice_cells(r),
            r["target"],
            f"{r['rho']:g}",
            f"{r['search_share']:.3f}",
            f"{r['learning_share']:.3f}",
            f"{r['reward_share']:.3f}",
            r["update_ratio"],
            r["learning_rate"],
            r["steps"],
            f"{r['samples']:.0f}",
        ]
        for r in rows
    ]
    head = [
        *SLICE,
        "target",
        "best ρ",
        "search",
        "learning",
        "reward share",
        "update ratio",
        "rate",
        "steps",
        "rollouts",
    ]
    steps = [
        [
            r["reward"],
            format_flops(r["budget"]),
            str(r["rank"]),
            r["target"],
            " > ".join(r["models"]),
            " / ".join(f"{s:.0f}" for s in r["steps_at_optimum"]),
            r["fewer_at_optimum"],
            r["fewer_at_every_equal_rho"],
        ]
        for r in larger
    ]
    second = [
        "reward",
        "budget",
        "rank",
        "target",
        "models",
        "steps at their optimum",
        "falling",
        "falling at every equal ρ",
    ]
    return table(head, lines) + ("\n\n" + table(second, steps) if steps else "")


def learning(rows: Sequence[Row], arms: Sequence[Row] = ()) -> str:
    """Lowest, best and highest ρ side by side; every arm on a click."""
    if not rows:
        return "Missing: no slice yet."
    head = [
        *SLICE,
        "arm",
        "ρ",
        "update ratio",
        "steps",
        "rollouts",
        "final pass@1",
        "gain in the second half",
        "done at half",
        "silent groups",
        "training − held-out",
        "collapsed",
    ]
    whole = table([h for h in head if h != "arm"], [_arm(r)[:4] + _arm(r)[5:] for r in arms])
    return table(head, [_arm(r) for r in rows]) + (folded("Every arm", whole) if arms else "")


def _arm(r: Row) -> list[Any]:
    return [
        *slice_cells(r),
        r.get("arm"),
        f"{r['rho']:g}",
        r["update_ratio"],
        r["steps"],
        f"{r['samples']:.0f}",
        f"{r['final']:.3f}",
        f"{r['late_gain']:+.3f}",
        r["done_half"],
        r["silent"],
        r["memorised"],
        r["collapsed"],
    ]
