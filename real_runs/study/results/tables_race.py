"""What the surrogate and the planner make of the runs, as Markdown: regimes, calibration, replay, prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from race.units import format_flops
from real_runs.study.results.page import folded, interval, share, show, table
from real_runs.study.results.tables import SLICE, slice_cells

Row = Mapping[str, Any]


def same_regime(found: Row) -> str:
    """Rates of naming the regime, and every trial."""
    if not found["trials"]:
        return "Missing: no slice with pilots yet."
    rows = [
        [r["target"], r["scope"], r["method"], r["trials"], r["slices"], share(r["right"]), share(r["as_good"])]
        for r in found["rates"]
    ]
    head = ["target", "scope", "method", "trials", "slices", "same regime [95 %]", "or as good [95 %]"]
    lines = []
    for t in found["trials"]:
        truth = ", ".join(f"{k} {v:.2f}" for k, v in t["truth_probabilities"].items())
        lines.append(
            [
                t["reward"],
                t["model"],
                format_flops(t["budget"]),
                t["target"],
                f"{t['source']}, {t['split']}",
                t["pilots"],
                t["pilot_share"],
                t["truth"],
                truth,
                f"{t['answers']['race']} {t['race_probabilities'][t['answers']['race']]:.2f}",
                t["answers"]["best pilot arm"],
            ]
        )
    second = [
        "reward",
        "model",
        "budget",
        "target",
        "pilots from",
        "pilots",
        "size of each, share of budget",
        "truth",
        "bootstrap",
        "RACE",
        "best pilot arm",
    ]
    sizes = [t["pilot_share"] for t in found["trials"]]
    note = f"Pilots had {min(sizes):.2f} to {max(sizes):.2f} of the budget each."
    return f"{table(head, rows)}\n\n{note}" + folded("Every trial", table(second, lines))


def ranks(found: Row) -> str:
    """Leaving one LoRA rank out."""
    if not found["trials"]:
        return "Missing: no slices at several ranks yet."
    rows = [[r["target"], r["trials"], share(r["right"]), share(r["as_good"])] for r in found["rates"]]
    lines = [
        [
            t["reward"],
            t["model"],
            format_flops(t["budget"]),
            t["left_out_rank"],
            t["target"],
            t["answer"],
            t["truth"],
            ", ".join(f"{k} {v:.2f}" for k, v in t["truth_probabilities"].items()),
        ]
        for t in found["trials"]
    ]
    second = [
        "reward",
        "model",
        "budget",
        "rank left out",
        "target",
        "RACE from the others",
        "its own runs",
        "bootstrap",
    ]
    return table(["target", "trials", "same regime [95 %]", "or as good [95 %]"], rows) + folded(
        "Every trial", table(second, lines)
    )


def calibration(found: Row) -> str:
    """Coverage and error by target, along every axis, and the settings furthest off."""
    if not any(r["runs"] for r in found["rows"]):
        return "Missing: fewer than two settings yet."
    head = [
        "runs",
        "settings",
        "coverage of 90 % [95 %]",
        "of setting means",
        "RMSE",
        "bias",
        "spread",
        "mean width",
        "z mean",
        "z sd",
        "noise sd stated",
        "seed sd measured",
        "widened",
    ]

    def line(r: Row) -> list[Any]:
        if not r["runs"]:
            return [0] + [None] * (len(head) - 1)
        digits = [f"{r[k]:.3f}" for k in ("rmse", "bias", "spread", "width")]
        seed = None if r["seed_sd"] is None else f"{r['seed_sd']:.3f}"
        return [
            r["runs"],
            r["settings"],
            share(r["coverage"]),
            share(r.get("means_covered")),
            *digits,
            f"{r['z_mean']:.2f}",
            f"{r['z_sd']:.2f}",
            f"{r['noise_sd']:.3f}",
            seed,
            f"{r['widened']:.2f}",
        ]

    text = table(
        ["records", "target", "by", *head],
        [[r["variant"], r["target"], r["left_out"], *line(r)] for r in found["rows"]],
    )
    text += f"\n\nRuns that did not stay healthy are not in the response, and are not scored: {found['not_scored']}."
    for target, rows in found["anatomy"].items():
        inside = table(["axis", "value", *head], [[r["axis"], _value(r), *line(r)] for r in rows])
        far = [
            [*slice_cells(r), f"{r['rho']:g}", f"{r['z']:.1f}", f"{r['measured']:.3f}", f"{r['predicted']:.3f}"]
            for r in found["furthest"].get(target, ())
        ]
        inside += "\n\n" + table([*SLICE, "ρ", "mean z", "measured", "predicted"], far)
        text += folded(f"{target} along every axis", inside)
    return text


def _value(row: Row) -> str:
    return format_flops(row["value"]) if row["axis"] == "budget" else show(row["value"])


def replay(found: Row) -> str:
    """Share of the grid's FLOPs that each method needs."""
    if not found["rows"]:
        return "Missing: no reward system has a grid of two models with three arms yet."
    grids = [
        [
            g["reward"],
            g["target"],
            g["runs"],
            format_flops(g["flops"]),
            g["model"],
            f"{g['rho']:g}",
            g["regime"],
            f"{g['value']:.3f}",
            "; ".join(f"{m} {rho:g}" for m, rho in g["as_good"]),
            _decided(g["decision"]),
        ]
        for g in found["grids"]
    ]
    rows = []
    for r in found["rows"]:
        size = None if r["size"] is None else f"{r['size']:.2f} C"
        cells = [x for q in ("arm", "arm_as_good", "regime_as_good", "decision") for x in _reached(r, q)]
        lost = [None if r[short] is None else f"{r[short]:.3f}" for short in ("lost", "lost_fresh")]
        rows.append([r["target"], r["method"], size, r["replays"], *cells, *lost])
    head = [
        "target",
        "method",
        "run size",
        "replays",
        "same arm",
        "by half",
        "as good an arm",
        "by half ",
        "as good a regime",
        "by half  ",
        "race's decision",
        "by half   ",
        "lost",
        "lost, fresh seeds",
    ]
    note = (
        f"Median share of the grid's FLOPs after which the decision is the full grid's and stays so until "
        f"{found['horizon']:g} of it; “never”: not in half of the replays. “By half”: share of replays decided with at "
        "most half of the grid's FLOPs [95 %]."
    )
    return (
        table(
            ["reward", "target", "runs", "FLOPs", "model", "ρ", "regime", "mean", "as good", "race decides"],
            grids,
        )
        + f"\n\n{note}\n\n"
        + table(head, rows)
        + "\n\nRace's decision by half of the grid's FLOPs, replays by reward system:\n\n"
        + _by_reward(found)
    )


def _by_reward(found: Row) -> str:
    rewards = sorted({g["reward"] for g in found["grids"]})
    rows = []
    for method, size in sorted({(r["method"], r["size"]) for r in found["runs"] if "decision" in r}, key=str):
        row: list[Any] = [method, None if size is None else f"{size:.2f} C"]
        for reward in rewards:
            mine = [r for r in found["runs"] if (r["method"], r["size"], r["reward"]) == (method, size, reward)]
            asked = [r["decision"] for r in mine if "decision" in r]
            row.append(f"{sum(reached <= 0.5 for reached in asked)} of {len(asked)}")
        rows.append(row)
    return table(["method", "run size", *rewards], rows)


def _reached(row: Row, question: str) -> tuple[Any, str | None]:
    by_half = row[f"{question}_by_half"]
    return row[question], None if by_half is None else share(by_half)


def _decided(decision: Row | None) -> str | None:
    if decision is None:
        return None
    rho = interval(decision["rho"], decision["lo"], decision["hi"])
    model = f"{decision['model']} at {decision['odds']:.2f}"
    return f"{model}, {decision['regime']} at {decision['probability']:.2f}, ρ {rho}"


def prior(variants: Sequence[Row]) -> str:
    """What the simulator said before any run, knowing nothing or the base models."""
    if not any(v["rows"] for v in variants):
        return "Missing: no slice yet."
    rows = [
        [
            v["knowing"],
            r["target"],
            r["settings"],
            share(r["coverage"]),
            f"{r['rmse']:.3f}",
            f"{r['bias']:+.3f}",
            f"{r['spread']:.3f}",
            r["slices"],
            share(r["rho_star_inside"]),
            r["median_lost"],
            r["median_correlation"],
        ]
        for v in variants
        for r in v["rows"]
    ]
    head = [
        "knowing",
        "target",
        "settings",
        "coverage of 90 % [95 %]",
        "RMSE",
        "bias",
        "spread",
        "slices",
        "measured ρ* inside the prior's 90 % [95 %]",
        "median lost at the prior's arm",
        "median correlation",
    ]
    lines = [
        [
            v["knowing"],
            *slice_cells(p),
            p["target"],
            f"{p['rho_star']:.2f}",
            interval(p["prior_rho_star"], p["lo"], p["hi"]),
            p["inside"],
            f"{p['lost']:.3f}",
            p["correlation"],
        ]
        for v in variants
        for p in v["peaks"]
    ]
    second = ["knowing", *SLICE, "target", "measured ρ*", "prior's ρ* [90 %]", "inside", "lost", "correlation"]
    return table(head, rows) + folded("Every slice", table(second, lines))
