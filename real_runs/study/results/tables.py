"""The numbers of `real_runs.study.results.study` as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from race.units import format_flops
from real_runs.study.results.page import interval, share, show, table

Row = Mapping[str, Any]


def _slice(row: Row) -> list[str]:
    return [row["reward"], row["model"], format_flops(row["budget"]), str(row["rank"])]


SLICE = ["reward", "model", "budget", "rank"]


def integrity(found: Row) -> str:
    """Runs by stage and status, and the checks."""
    planned, statuses = found["planned"], found["statuses"]
    kinds = sorted({k for counts in statuses.values() for k in counts} | {"ok", "collapsed"}, reverse=True)
    rows = []
    for stage, count in planned.items():
        there = statuses.get(stage, {})
        rows.append([stage, count, sum(there.values()), count - sum(there.values()),
                     *(there.get(k, 0) for k in kinds), found["failed"].get(stage, 0)])  # fmt: skip
    checks = [
        ["runs over their budget", len(found["overruns"])],
        ["least used share of a budget", f"{found['least_used']:.4f} ({found['least_used_run']})" if found["least_used"] else None],
        ["FLOPs of all runs", format_flops(found["spent"])],
        ["runs whose curves end elsewhere than their FLOPs", len(found["unequal_ends"])],
        ["ledgers read", found["ledgers"]],
        ["ledgers that disagree with their record", len(found["unequal_ledgers"])],
    ]
    head = ["stage", "planned", "there", "missing", *kinds, "failed tries"]
    return table(head, rows) + "\n\nA run may belong to several stages.\n\n" + table(["check", "found"], checks)


def rates(found: Row | None) -> str:
    """Tuned learning rates and what was compared."""
    if found is None:
        return "Missing: tuning is not over."
    rows = []
    for model, by_ratio in found.items():
        for ratio, entry in by_ratio.items():
            means = ", ".join(f"{rate}: {value:.3f}" for rate, value in entry["means"].items())
            rows.append([model, ratio, f"{entry['best']:g}", means])
    return table(["model", "update ratio", "tuned rate", "pass@1 by rate (multiples of the size's default)"], rows)


def curves(tuned: Sequence[Row], fixed: Sequence[Row]) -> str:
    """Mean ± standard deviation (runs) over ρ; tuned and fixed side by side where both exist."""
    rhos = sorted({rho for row in (*tuned, *fixed) for rho in row["rho"]})
    if not rhos:
        return "Missing: no slice yet."
    rows = []
    other = {(r["reward"], r["model"], r["budget"], r["rank"]): r for r in fixed}
    for row in tuned:
        rows.append([*_slice(row), "tuned", *_arms(row, rhos)])
        match = other.pop((row["reward"], row["model"], row["budget"], row["rank"]), None)
        if match:
            rows.append([*_slice(match), "fixed", *_arms(match, rhos)])
    rows += [[*_slice(row), "fixed", *_arms(row, rhos)] for row in other.values()]
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
        lines.append([*_slice(r), r["target"], interval(r["rho"], lo, hi) + (" *" if r["borrowed"] else ""),
                      r["regime"], f"{r['best_rho']:g}: {r['best_value']:.3f}", chances, p, flat])  # fmt: skip
    head = [*SLICE, "target", "ρ* [95 %]", "regime", "best arm", "P(arm is best), ρ ascending", "p(flat)", "within noise"]
    note = "\n\n\\* one seed per arm: the spread between seeds is borrowed from other slices of this model and reward."
    return table(head, lines) + (note if any(r["borrowed"] for r in rows) else "")


def differences(rows: Sequence[Row], what: str) -> str:
    """ρ* minus ρ* with intervals; an interval without 0 is marked."""
    if not rows:
        return "Missing: no pair of slices yet."
    lines = []
    for r in rows:
        away = r["lo"] is not None and (r["lo"] > 0 or r["hi"] < 0)
        extra = [f"{r['best_gain']:+.3f}"] if "best_gain" in r else []
        lines.append([*_slice(r), r["target"], interval(r["value"], r["lo"], r["hi"]), away, *extra])
    extra_head = ["gain of the best arm"] if "best_gain" in rows[0] else []
    return table([*SLICE, "target", f"{what} [95 %]", "0 outside", *extra_head], lines)


def disagreement(rows: Sequence[Row]) -> str:
    """How far two targets are apart, and what it costs."""
    if not rows:
        return "Missing: no slice yet."
    lines = []
    for r in rows:
        if r["same_values"]:
            lines.append([*_slice(r), f"{r['first']} − {r['second']}", "the same measurement", None, None, None])
            continue
        lines.append([*_slice(r), f"{r['first']} − {r['second']}", interval(r["difference"], r["lo"], r["hi"]),
                      r["p_same_best_arm"], interval(r["lost"], r["lost_lo"], r["lost_hi"], 3),
                      None if r["lost_cross_validated"] is None else f"{r['lost_cross_validated']:.3f}"])  # fmt: skip
    head = [*SLICE, "targets", "difference of ρ* [95 %]", "P(same best arm)", "second lost at the first's best arm [95 %]",
            "the same, cross-validated"]  # fmt: skip
    return table(head, lines)


def spending(rows: Sequence[Row], larger: Sequence[Row]) -> str:
    """Shares, steps and update ratio at the best arm; and whether larger models take fewer steps."""
    if not rows:
        return "Missing: no slice yet."
    lines = [
        [*_slice(r), r["target"], f"{r['rho']:g}", f"{r['search_share']:.3f}", f"{r['learning_share']:.3f}",
         f"{r['reward_share']:.3f}", r["update_ratio"], r["learning_rate"], r["steps"], f"{r['samples']:.0f}"]
        for r in rows
    ]  # fmt: skip
    head = [*SLICE, "target", "best ρ", "search", "learning", "reward share", "update ratio", "rate", "steps", "rollouts"]
    steps = [
        [r["reward"], format_flops(r["budget"]), str(r["rank"]), r["target"], " > ".join(r["models"]),
         " / ".join(f"{s:.0f}" for s in r["steps_at_optimum"]), r["fewer_at_optimum"], r["fewer_at_every_equal_rho"]]
        for r in larger
    ]  # fmt: skip
    second = ["reward", "budget", "rank", "target", "models", "steps at their optimum", "falling", "falling at every equal ρ"]
    return table(head, lines) + ("\n\n" + table(second, steps) if steps else "")


def learning(rows: Sequence[Row]) -> str:
    """Lowest, best and highest ρ side by side."""
    if not rows:
        return "Missing: no slice yet."
    lines = [
        [*_slice(r), r["arm"], f"{r['rho']:g}", r["update_ratio"], r["steps"], f"{r['samples']:.0f}", f"{r['final']:.3f}",
         f"{r['late_gain']:+.3f}", r["done_half"], r["silent"], r["memorised"], r["collapsed"]]
        for r in rows
    ]  # fmt: skip
    head = [*SLICE, "arm", "ρ", "update ratio", "steps", "rollouts", "final pass@1", "gain in the second half",
            "done at half", "silent groups", "training − held-out", "collapsed"]  # fmt: skip
    return table(head, lines)


def same_regime(found: Row) -> str:
    """Rates of naming the regime, and every trial."""
    if not found["trials"]:
        return "Missing: no slice with pilots yet."
    rows = [[r["target"], r["scope"], r["method"], r["trials"], r["slices"], share(r["right"]), share(r["as_good"])]
            for r in found["rates"]]  # fmt: skip
    head = ["target", "scope", "method", "trials", "slices", "same regime [95 %]", "or as good [95 %]"]
    lines = []
    for t in found["trials"]:
        truth = ", ".join(f"{k} {v:.2f}" for k, v in t["truth_probabilities"].items())
        lines.append([t["reward"], t["model"], format_flops(t["budget"]), t["target"], f"{t['source']}, {t['split']}",
                      t["pilots"], t["pilot_share"], t["truth"], truth, t["answers"]["race"],
                      t["answers"]["best pilot arm"]])  # fmt: skip
    second = ["reward", "model", "budget", "target", "pilots from", "pilots", "size of each, share of budget", "truth",
              "bootstrap", "RACE", "best pilot arm"]  # fmt: skip
    return table(head, rows) + "\n\n<details><summary>Every trial</summary>\n\n" + table(second, lines) + "\n\n</details>"


def ranks(found: Row) -> str:
    """Leaving one LoRA rank out."""
    if not found["trials"]:
        return "Missing: no slices at several ranks yet."
    rows = [[r["target"], r["trials"], share(r["right"]), share(r["as_good"])] for r in found["rates"]]
    lines = [[t["reward"], t["model"], format_flops(t["budget"]), t["left_out_rank"], t["target"], t["answer"], t["truth"],
              ", ".join(f"{k} {v:.2f}" for k, v in t["truth_probabilities"].items())] for t in found["trials"]]  # fmt: skip
    second = ["reward", "model", "budget", "rank left out", "target", "RACE from the others", "its own runs", "bootstrap"]
    return (
        table(["target", "trials", "same regime [95 %]", "or as good [95 %]"], rows)
        + "\n\n<details><summary>Every trial</summary>\n\n" + table(second, lines) + "\n\n</details>"
    )  # fmt: skip


def calibration(found: Row) -> str:
    """Coverage and error by target, along every axis, and the settings furthest off."""
    if not any(r["runs"] for r in found["rows"]):
        return "Missing: fewer than two settings yet."
    head = ["runs", "settings", "coverage of 90 % [95 %]", "RMSE", "bias", "spread", "mean width", "z mean", "z sd",
            "noise sd stated", "seed sd measured"]  # fmt: skip

    def line(r: Row) -> list[Any]:
        if not r["runs"]:
            return [0] + [None] * (len(head) - 1)
        digits = [f"{r[k]:.3f}" for k in ("rmse", "bias", "spread", "width")]
        seed = None if r["seed_sd"] is None else f"{r['seed_sd']:.3f}"
        return [r["runs"], r["settings"], share(r["coverage"]), *digits, f"{r['z_mean']:.2f}", f"{r['z_sd']:.2f}",
                f"{r['noise_sd']:.3f}", seed]  # fmt: skip

    text = table(["records", "target", "by", *head],
                 [[r["variant"], r["target"], r["left_out"], *line(r)] for r in found["rows"]])  # fmt: skip
    text += f"\n\nRuns that did not stay healthy are not in the response, and are not scored: {found['not_scored']}."
    for target, rows in found["anatomy"].items():
        text += f"\n\n<details><summary>{target} along every axis</summary>\n\n"
        text += table(["axis", "value", *head], [[r["axis"], _value(r), *line(r)] for r in rows])
        far = [[*_slice(r), f"{r['rho']:g}", f"{r['z']:.1f}", f"{r['measured']:.3f}", f"{r['predicted']:.3f}"]
               for r in found["furthest"].get(target, ())]  # fmt: skip
        text += "\n\n" + table([*SLICE, "ρ", "mean z", "measured", "predicted"], far) + "\n\n</details>"
    return text


def _value(row: Row) -> str:
    return format_flops(row["value"]) if row["axis"] == "budget" else show(row["value"])


def replay(found: Row) -> str:
    """Share of the grid's FLOPs that each method needs."""
    if not found["rows"]:
        return "Missing: no reward system has a grid of two models with three arms yet."
    grids = [[g["reward"], g["target"], g["runs"], format_flops(g["flops"]), g["model"], f"{g['rho']:g}", g["regime"],
              f"{g['value']:.3f}", "; ".join(f"{m} {rho:g}" for m, rho in g["as_good"])] for g in found["grids"]]  # fmt: skip
    rows = []
    for r in found["rows"]:
        size = None if r["size"] is None else f"{r['size']:.2f} C"
        cells = [x for q in ("arm", "arm_as_good", "regime_as_good") for x in (r[q], share(r[f"{q}_by_half"]))]
        rows.append([r["target"], r["method"], size, r["replays"], *cells])
    head = ["target", "method", "run size", "replays", "same arm", "by half", "as good an arm", "by half ",
            "as good a regime", "by half  "]  # fmt: skip
    note = (
        f"Median share of the grid's FLOPs after which the decision is the full grid's and stays so until "
        f"{found['horizon']:g} of it; “never”: not in half of the replays. “By half”: share of replays decided with at "
        "most half of the grid's FLOPs [95 %]."
    )
    return (
        table(["reward", "target", "runs", "FLOPs", "model", "ρ", "regime", "mean", "as good"], grids)
        + f"\n\n{note}\n\n" + table(head, rows)
    )  # fmt: skip


def prior(found: Row) -> str:
    """What the simulator said before any run."""
    if not found["rows"]:
        return "Missing: no slice yet."
    rows = [[r["target"], r["settings"], share(r["coverage"]), f"{r['rmse']:.3f}", f"{r['bias']:+.3f}",
             f"{r['spread']:.3f}", r["slices"], share(r["rho_star_inside"]), r["median_lost"], r["median_correlation"]]
            for r in found["rows"]]  # fmt: skip
    head = ["target", "settings", "coverage of 90 % [95 %]", "RMSE", "bias", "spread", "slices",
            "measured ρ* inside the prior's 90 % [95 %]", "median lost at the prior's arm", "median correlation"]  # fmt: skip
    lines = [[*_slice(p), p["target"], f"{p['rho_star']:.2f}", interval(p["prior_rho_star"], p["lo"], p["hi"]), p["inside"],
              f"{p['lost']:.3f}", p["correlation"]] for p in found["peaks"]]  # fmt: skip
    second = [*SLICE, "target", "measured ρ*", "prior's ρ* [90 %]", "inside", "lost", "correlation"]
    return table(head, rows) + "\n\n<details><summary>Every slice</summary>\n\n" + table(second, lines) + "\n\n</details>"
