"""The short page: answers to what the study asks, and of every table the part at its main budget and LoRA rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from race.units import format_flops
from real_runs.study.results.page import interval, share, table

Found = Mapping[str, Any]
SHOWN = ("native", "pass@1")  # targets of the short page's tables
PAIRS = (("native", "pass@1"), ("judge", "pass@1"))


def main_slice(found: Found) -> tuple[int, int] | None:
    """Budget and LoRA rank of most slices."""
    return most_common(found["peaks"]["tuned"])


def most_common(rows: Sequence[Found]) -> tuple[int, int] | None:
    """Budget and LoRA rank that most rows have, the smaller budget of two; ``None`` of nothing."""
    seen = Counter((r["budget"], r["rank"]) for r in rows)
    return max(seen, key=lambda at: (seen[at], -at[0])) if seen else None


def trimmed(found: Found) -> dict[str, Any]:
    """The results with the rows of the short page alone."""
    at = main_slice(found)

    def keep(rows: Sequence[Found], *targets: str) -> list[Found]:
        mine = [r for r in rows if (r["budget"], r["rank"]) == at]
        return [r for r in mine if not targets or r["target"] in targets]

    out = dict(found)
    out["peaks"] = {k: keep(rows, *SHOWN) for k, rows in found["peaks"].items()}
    out["between_rewards"] = {k: keep(rows, *SHOWN, "judge") for k, rows in found["between_rewards"].items()}
    out["tuned_and_fixed"] = keep(found["tuned_and_fixed"], *SHOWN)
    out["disagreement"] = [r for r in keep(found["disagreement"]) if (r["first"], r["second"]) in PAIRS]
    out["spending"] = keep(found["spending"], "pass@1")
    out["larger_fewer"] = keep(found["larger_fewer"], "pass@1")
    return out


def answers(found: Found) -> str:
    """One line per question."""
    rows: list[list[Any]] = [*_runs(found["integrity"])]
    at = main_slice(found)
    if at:
        rows.append(["the budget and LoRA rank of most slices", f"{format_flops(at[0])} FLOPs, rank {at[1]}"])
    rows += _rewards(found["between_rewards"]["tuned"], at, "")
    rows += _rewards(found["between_rewards"]["more"], at, ", with the runs added later")
    rows += _targets(found["disagreement"])
    for r in found["same_regime"]["rates"]:
        if r["method"] == "race" and r["target"] in SHOWN:
            told = f"{share(r['right'])}; or as good {share(r['as_good'])}"
            told += f"; {r['trials']} trials of {r['slices']} slices"
            rows.append([f"regime named from small pilots, {r['target']}, {r['scope']}", told])
    seen = set()
    for r in found["calibration"]["rows"]:
        if r["runs"] and r["target"] not in seen:
            seen.add(r["target"])
            told = f"{share(r['coverage'])}, {r['runs']} runs; of the means of {r['settings']} settings "
            told += share(r.get("means_covered"))
            rows.append([f"coverage of 90 % intervals leaving one setting out, {r['target']}", told])
    for r in found["replay"]["rows"]:
        told = f"same arm {share(r['arm_by_half'])}; as good an arm {share(r['arm_as_good_by_half'])}"
        if r["decision_by_half"] is not None:
            told += f"; race's decision {share(r['decision_by_half'])}"
        told += f"; {r['replays']} replays"
        rows.append([f"replay, decided by half of the grid's FLOPs: {r['method']}, {r['target']}", told])
    for v in found["prior"]:
        what = f"simulator prior, knowing {v['knowing'].lower()}: its 90 % intervals cover"
        rows += [[f"{what}, {r['target']}", share(r["coverage"])] for r in v["rows"] if r["target"] in SHOWN]
    return table(["question", "answer [95 %]"], rows)


def _runs(checks: Found) -> list[list[Any]]:
    ledgers = f"{checks['ledgers']} read, {len(checks['unequal_ledgers'])} disagree"
    return [
        ["runs there", checks["runs"]],
        ["runs over their budget", len(checks["overruns"])],
        ["ledgers against records", ledgers],
    ]


def _rewards(rows: Sequence[Found], at: tuple[int, int] | None, note: str) -> list[list[Any]]:
    return [
        [
            f"ρ* of {r['reward']} minus ρ* of {r['base']}, {r['model']}, {r['target']}{note}",
            interval(r["value"], r["lo"], r["hi"]),
        ]
        for r in rows
        if (r["budget"], r["rank"]) == at and r["reward"] == "prm" and r["target"] in SHOWN
    ]


def _targets(rows: Sequence[Found]) -> list[list[Any]]:
    out = []
    for pair in PAIRS:
        mine = [r for r in rows if (r["first"], r["second"]) == pair and not r["same_values"]]
        mine = [r for r in mine if r.get("lo") is not None]
        if mine:
            apart = sum(r["lo"] > 0 or r["hi"] < 0 for r in mine)
            told = f"{apart} of {len(mine)} slices"
            out.append([f"optima of {pair[0]} and {pair[1]} apart (0 outside the 95 % interval)", told])
    return out
