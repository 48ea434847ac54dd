"""The whole evaluation in order: records in, numbers, tables and figures out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.errors import CannotDo
from race.records import PilotRecord
from real_runs.study.frontier import SliceKey
from real_runs.study.results import (
    calibration,
    integrity,
    learning,
    optima,
    prior,
    recorded,
    regimes,
    replay,
    summary,
    tables,
    tables_race,
    targets,
)
from real_runs.study.results.evidence import StudyRecords, relative, slice_key
from real_runs.study.results.legends import LEGENDS
from real_runs.study.results.page import unfolded
from real_runs.study.results.response import Response, responses

ASKED = ("native", "pass@1", "judge")
DIFFICULTIES = ("pass@1:easy", "pass@1:hard")
PAIRS = (("native", "pass@1"), ("judge", "pass@1"), ("native", "judge"), ("pass@1:easy", "pass@1:hard"))
RESULTS_SCHEMA = "race.study-results/1"


@dataclass(frozen=True)
class Effort:
    """How much of the dear parts is done: all of these are counts.

    Attributes
    ----------
    draws
        Bootstrap draws.
    refits
        Settings that the surrogate is fitted again without.
    orders, planner_orders, gp_orders
        Replays per reward system: of a peer, of the planner, of the Gaussian-process peer.
    """

    draws: int = 4000
    refits: int = 6
    orders: int = 10
    planner_orders: int = 2
    gp_orders: int = 2


def evaluate(
    evidence: StudyRecords,
    *,
    jobs: Path | None = None,
    effort: Effort | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Every number, as plain types; what is not there yet is an empty list."""
    effort = effort or Effort()
    rungs = evidence.study.ladder
    asked = [t for t in ASKED if t in evidence.study.targets]
    every = [*asked, *(t for t in DIFFICULTIES if t in evidence.study.targets)]
    told("frontiers")
    tuned = responses(evidence.tuned, every)
    later = {slice_key(r) for r in evidence.later}
    more = {k: r for k, r in responses([*evidence.tuned, *evidence.later], every).items() if k in later}
    fixed_stages = [s.name for s in evidence.study.stages if s.rate != "tuned"]
    fixed = responses(evidence.stage(*fixed_stages), every)
    # Half a grid has its optimum at an end: nothing is said about one until all its arms are there.
    grid = max(len(stage.rhos) for stage in evidence.study.stages)
    whole = {k: r for k, r in tuned.items() if len(r.rhos) == grid}
    whole_fixed = {k: r for k, r in fixed.items() if len(r.rhos) == grid}
    whole_more = {k: r for k, r in more.items() if len(r.rhos) == grid}
    complete = [r for r in evidence.tuned if slice_key(r) in whole]
    arms = learning.arms(tuned) if "pass@1" in asked else []
    restated = [relative(r, evidence.rates) for r in evidence.measured]
    return {
        "schema": RESULTS_SCHEMA,
        "study": evidence.study.name,
        "targets": every,
        "partial_slices": [dict(vars(k)) | {"arms": len(r.rhos)} for k, r in tuned.items() if k not in whole],
        "integrity": integrity.check(evidence, jobs).to_dict(),
        "rates": evidence.rates.to_dict() if evidence.rates else None,
        "rates_chosen": evidence.chosen.to_dict() if evidence.chosen else None,
        "curves": {t: {"tuned": optima.curves(tuned, t), "fixed": optima.curves(fixed, t)} for t in every},
        "peaks": {
            "tuned": optima.peaks(whole, every, rungs, draws=effort.draws),
            "fixed": optima.peaks(whole_fixed, every, rungs, draws=effort.draws),
            "more": optima.peaks(whole_more, every, rungs, draws=effort.draws),
        },
        "between_rewards": {
            "tuned": optima.between_rewards(whole, every, rungs, draws=effort.draws),
            "fixed": optima.between_rewards(whole_fixed, every, rungs, draws=effort.draws),
            "more": optima.between_rewards(whole_more, every, rungs, draws=effort.draws),
        },
        "tuned_and_fixed": optima.tuned_and_fixed(whole, whole_fixed, asked, draws=effort.draws),
        "disagreement": targets.disagreement(whole, PAIRS, draws=effort.draws),
        "spending": optima.at_optimum(whole, asked),
        "larger_fewer": [row for t in asked for row in optima.larger_fewer(_main_rank(whole), rungs, t)],
        "learning": {"arms": arms, "ends": learning.ends_of_range(arms)},
        "same_regime": regimes.same_regime(complete, evidence.rates, rungs, asked, told=told),
        "ranks": regimes.leave_one_rank_out(complete, evidence.rates, rungs, asked, told=told),
        "calibration": calibration.calibration(
            {"rate relative to the tuned one": restated, "rate relative to the default": evidence.measured},
            rungs,
            [t for t in asked if t != "pass@1"] + [t for t in asked if t == "pass@1"],
            refits=effort.refits,
            told=told,
        ),
        "prior": [
            prior.against_prior(whole, evidence.rates, rungs, asked, knowing=knowing)
            for knowing in (prior.NOTHING, prior.BASES)
        ],
        "replay": _replay(complete, evidence, effort, told),
    }


def _main_rank(slices: dict[SliceKey, Response]) -> dict[SliceKey, Response]:
    ranks = [k.rank for k in slices]
    return {k: r for k, r in slices.items() if k.rank == max(set(ranks), key=ranks.count)}


def _replay(
    complete: list[PilotRecord], evidence: StudyRecords, effort: Effort, told: Callable[[str], None]
) -> dict[str, Any]:
    """On the grid of every reward system at the budget that most models share."""
    slices = _main_rank(responses(complete, ["native"]))
    mine = [r for r in complete if slice_key(r) in slices]
    grids = []
    for reward in sorted({k.reward for k in slices}):
        for budget in sorted({k.budget for k in slices if k.reward == reward}):
            try:
                grids.append(
                    recorded.Grid.build(
                        mine, evidence.rates, evidence.study.ladder, reward, budget, "native", later=evidence.later
                    )
                )
            except CannotDo as error:
                told(str(error))
    most = max((len(g.models) for g in grids), default=0)
    return replay.replay(
        [g for g in grids if len(g.models) == most],
        orders=effort.orders,
        planner_orders=effort.planner_orders,
        gp_orders=effort.gp_orders,
        told=told,
    )


SHORT = (
    "integrity", "rates", "peaks", "rewards", "rewards more", "tuning", "targets", "spending", "regimes", "ranks",
    "calibration", "replay", "prior",
)  # fmt: skip


def blocks(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The short page, for `page.update`: answers first, then the tables at the main budget and LoRA rank."""
    every = appendix(summary.trimmed(found))
    out = {"answers": ("In short", summary.answers(found))}
    return out | {name: (every[name][0], unfolded(every[name][1])) for name in SHORT if name in every}


def appendix(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Every table with its title, for `page.update`."""
    out = {
        "integrity": ("Runs", tables.integrity(found["integrity"])),
        "rates": ("Tuned learning rates", tables.rates(found["rates"], found["rates_chosen"])),
    }
    for target, rows in found["curves"].items():
        out[f"curves {target}"] = (f"IsoFLOP curves: {target}", tables.curves(rows["tuned"], rows["fixed"]))
    both = found["peaks"]
    text = tables.peaks(both["tuned"])
    if found["partial_slices"]:
        text += f"\n\nLeft out, since not all of their arms are there yet: {tables.slices(found['partial_slices'])}."
    out["peaks"] = ("Optimal update fraction, tuned rates", text)
    out["peaks fixed"] = ("Optimal update fraction, fixed rate", tables.peaks(both["fixed"]))
    away = found["between_rewards"]
    what = "ρ* minus ρ* of sparse"
    text = tables.differences(away["tuned"], what)
    text += "\n\nMin-max normalisation moves no optimum, so these hold for native rewards as they are and normalised."
    out["rewards"] = ("Reward systems against sparse, tuned rates", text)
    out["rewards fixed"] = ("Reward systems against sparse, fixed rate", tables.differences(away["fixed"], what))
    if away["more"]:
        both_ways = tables.differences(away["more"], what) + "\n\n" + tables.peaks(both["more"])
        out["rewards more"] = ("Reward systems against sparse, with the runs added later", both_ways)
    moved = tables.differences(found["tuned_and_fixed"], "ρ* tuned minus ρ* fixed")
    out["tuning"] = ("What tuning the rate moves", moved)
    out["targets"] = ("Do targets disagree?", tables.disagreement(found["disagreement"]))
    out["spending"] = ("Shares and steps at the optimum", tables.spending(found["spending"], found["larger_fewer"]))
    out["learning"] = (
        "Ends of the range",
        tables.learning(found["learning"]["ends"], arms=found["learning"]["arms"]),
    )
    out["regimes"] = ("Same-regime rate from small pilots", tables_race.same_regime(found["same_regime"]))
    out["ranks"] = ("Regimes leaving one LoRA rank out", tables_race.ranks(found["ranks"]))
    out["calibration"] = ("Surrogate: leaving one setting out", tables_race.calibration(found["calibration"]))
    out["replay"] = ("Planner replay", tables_race.replay(found["replay"]))
    out["prior"] = ("Simulator prior against real runs", tables_race.prior(found["prior"]))
    return {name: (title, _with_legend(name, text)) for name, (title, text) in out.items()}


def _with_legend(name: str, text: str) -> str:
    legend = LEGENDS.get(name.partition(" ")[0])
    return text if legend is None or text.startswith("Missing") else f"{legend}\n\n{text}"
