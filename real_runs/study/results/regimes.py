"""RACE decided from small pilots, against what the full budget showed.

Pilots are recorded runs stopped early (`evidence.cut`), one per setting: of another budget where one of their
evaluations lies near a tenth of the budget in question, since these share no run with the truth; else the first
evaluation of the budget's own runs, with the truth from the other seeds. Each seed has its turn. All models' pilots
are fitted together.

The truth of a slice is the regime of its ρ*. Where the bootstrap gives another regime a probability of at least
`TIED`, that one is as good an answer. Beside RACE stand what needs no fit: the best pilot arm itself, the prior
without any pilot, and always saying update-heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from race.ladders import Ladder
from race.records import PilotRecord
from real_runs.study.frontier import SliceKey, optimum
from real_runs.study.results.evidence import cut, final, only, points_of, relative, slice_key, usable
from real_runs.study.results.response import Response, regimes, responses
from real_runs.study.results.statistics import share_of
from real_runs.study.tuning import Rates
from surrogate import Surrogate
from surrogate.optimum import Optimum
from surrogate.optimum import optimum as surrogate_optimum

PILOT_SHARE = 0.1
NEAR = (0.04, 0.125)  # shares of the budget that count as a tenth
TIED = 0.1
METHODS = ("race", "best pilot arm", "prior", "always update-heavy")
Told = Callable[[str], None]


@dataclass(frozen=True)
class Truth:
    """Regime at the full budget, with the bootstrap probability of each."""

    label: str
    probabilities: Mapping[str, float]

    @property
    def as_good(self) -> set[str]:
        """Regimes that noise cannot rule out."""
        return {self.label} | {name for name, p in self.probabilities.items() if p >= TIED}


def truth(response: Response, target: str, rungs: Ladder, *, draws: int = 2000) -> Truth:
    """Read the regime off one slice."""
    label = regimes(rungs, response.key, response.runs[0][0], response.rho_star(target))[0]
    drawn = response.draws(draws)
    if drawn is None:
        return Truth(label, {label: 1.0})
    at = optimum(response.rhos, drawn[:, :, response.column(target)])
    found = regimes(rungs, response.key, response.runs[0][0], at)
    return Truth(label, {name: found.count(name) / len(found) for name in sorted(set(found))})


@dataclass(frozen=True)
class Split:
    """Pilots for one budget, and full runs that share none with them.

    Attributes
    ----------
    sources
        Model to where its pilots come from.
    pilots
        One run per setting, stopped early.
    held
        The full runs that say what is true.
    """

    name: str
    sources: Mapping[str, str]
    pilots: tuple[PilotRecord, ...]
    held: tuple[PilotRecord, ...]


OTHER, OWN = "another budget", "own first evaluation"


def splits(records: Sequence[PilotRecord], budget: int, *, share: float = PILOT_SHARE) -> list[Split]:
    """Pilots near ``share`` of ``budget`` against full runs; records of one reward system and rank.

    The n-th split takes every model's n-th seed: of another budget where one has an evaluation near enough, else of
    the budget's own runs, which then are not part of the truth.
    """
    full = [r for r in records if r.spec.budget == budget]
    by_model: dict[str, tuple[str, list[PilotRecord]]] = {}
    for model in sorted({r.spec.model for r in full}):
        near = [
            stopped
            for r in records
            if r.spec.model == model and r.spec.budget != budget
            if (stopped := _stopped(r, budget, share, NEAR)) is not None
        ]
        own = [r for r in full if r.spec.model == model and points_of(r)]
        first = [c for r in own if (c := cut(r, points_of(r)[0])) is not None]
        by_model[model] = (OTHER, near) if near else (OWN, first)
    seeds = {model: sorted({r.spec.seed for r in found}) for model, (_, found) in by_model.items()}
    out = []
    for turn in range(max((len(s) for s in seeds.values()), default=0)):
        taken = {model: found[turn % len(found)] for model, found in seeds.items() if found}
        shown = [r for m, (_, found) in by_model.items() for r in found if r.spec.seed == taken.get(m)]
        held = [
            r for r in full
            if r.spec.model in taken and (by_model[r.spec.model][0] == OTHER or r.spec.seed != taken[r.spec.model])
        ]  # fmt: skip
        if shown and held:
            sources = {m: source for m, (source, _) in by_model.items() if m in taken}
            out.append(Split(f"seed {turn + 1}", sources, tuple(shown), tuple(held)))
    return out


def _stopped(record: PilotRecord, budget: int, share: float, near: tuple[float, float]) -> PilotRecord | None:
    points = np.array(points_of(record)) if record.curves else np.empty(0)
    able = points[(points >= near[0] * budget) & (points <= near[1] * budget)]
    return cut(record, float(able[np.abs(np.log(able / (share * budget))).argmin()])) if able.size else None


def same_regime(
    records: Iterable[PilotRecord],
    rates: Rates | None,
    rungs: Ladder,
    targets: Sequence[str],
    *,
    told: Told = lambda _: None,
) -> dict[str, Any]:
    """Trials of every slice at tuned rates, and the rate at which each method names the regime."""
    known = [r for r in records if usable(r, targets)]
    ranks = [r.spec.recipe.lora.rank for r in known if r.spec.recipe.lora]
    rank = max(set(ranks), key=ranks.count) if ranks else 0
    known = [r for r in known if slice_key(r).rank == rank]
    trials: list[dict[str, Any]] = []
    priors: dict[str, Surrogate] = {}
    for reward, budget in sorted({(r.spec.reward, r.spec.budget) for r in known}):
        mine = [r for r in known if r.spec.reward == reward]
        told(f"regime of {reward} at {budget:.3g} FLOPs")
        if reward not in priors:
            recipe = rungs.recipe(reward)
            priors[reward] = Surrogate.fit([], ladder=rungs, recipe=recipe, targets=tuple(targets))
        for split in splits(mine, budget):
            for target in targets:
                trials += _trials(split, reward, budget, target, rates, rungs, priors[reward])
    return {"pilot_share": PILOT_SHARE, "trials": trials, "rates": _rates(trials, targets)}


def _trials(
    split: Split, reward: str, budget: int, target: str, rates: Rates | None, rungs: Ladder, prior: Surrogate
) -> list[dict[str, Any]]:
    recipe = rungs.recipe(reward)
    shown = [only(relative(r, rates), [target]) for r in split.pilots]
    fitted = Surrogate.fit(shown, ladder=rungs, recipe=recipe, targets=(target,))
    slices = {k: r for k, r in responses(split.held, [target]).items() if len(r.rhos) >= 3}
    share = float(np.mean([r.spec.budget for r in split.pilots])) / budget
    rows = []
    for key, response in slices.items():
        arms = _best_pilot([r for r in split.pilots if r.spec.model == key.model], target)
        known = truth(response, target, rungs)
        said = surrogate_optimum(fitted, budget=budget, target=target, models=[key.model])
        answers = {
            "race": said.regime,
            "prior": surrogate_optimum(prior, budget=budget, target=target, models=[key.model]).regime,
            "best pilot arm": regimes(rungs, key, response.runs[0][0], arms)[0],
            "always update-heavy": "update-heavy",
        }
        rows.append(_row(split, reward, key.model, budget, target, known, answers, said, share))
    if len(slices) > 1:
        models = [k.model for k in slices]
        at = max(slices, key=lambda k: slices[k].means.max())
        chosen = max(split.pilots, key=lambda r: final(r, target))
        where = regimes(rungs, slice_key(chosen), chosen, chosen.spec.rho)[0]
        said = surrogate_optimum(fitted, budget=budget, target=target, models=models)
        answers = {
            "race": said.regime,
            "prior": surrogate_optimum(prior, budget=budget, target=target, models=models).regime,
            "best pilot arm": where,
            "always update-heavy": "update-heavy",
        }
        known = _overall(slices, target, rungs, at)
        rows.append(_row(split, reward, "all", budget, target, known, answers, said, share))
    return rows


def _best_pilot(found: Sequence[PilotRecord], target: str) -> float:
    return max(found, key=lambda r: final(r, target)).spec.rho


def _overall(slices: Mapping[SliceKey, Response], target: str, rungs: Ladder, at: SliceKey) -> Truth:
    """Regime of the best setting over all models, tied where another model's best may as well be it."""
    label = regimes(rungs, at, slices[at].runs[0][0], slices[at].rho_star(target))[0]
    tops, labels = [], []
    for number, (key, response) in enumerate(slices.items()):
        drawn = response.draws(2000, seed=number)
        if drawn is None:
            return Truth(label, {label: 1.0})
        one = drawn[:, :, response.column(target)]
        tops.append(one.max(axis=1))
        labels.append(np.array(regimes(rungs, key, response.runs[0][0], optimum(response.rhos, one))))
    winner = np.argmax(tops, axis=0)
    found = np.stack(labels)[winner, np.arange(len(winner))].tolist()
    return Truth(label, {name: found.count(name) / len(found) for name in sorted(set(found))})


def _row(
    split: Split,
    reward: str,
    model: str,
    budget: int,
    target: str,
    known: Truth,
    answers: dict[str, str],
    said: Optimum,
    share: float,
) -> dict[str, Any]:
    sources = {source for m, source in split.sources.items() if model in (m, "all")}
    return {
        "reward": reward, "model": model, "budget": budget, "target": target,
        "source": ", ".join(sorted(sources)), "split": split.name, "pilots": len(split.pilots), "pilot_share": share,
        "truth": known.label, "truth_probabilities": dict(known.probabilities), "answers": answers,
        "race_probabilities": dict(said.regimes), "race_rho_star": [said.rho.mean, said.rho.lo, said.rho.hi],
        "right": {m: a == known.label for m, a in answers.items()},
        "as_good": {m: a in known.as_good for m, a in answers.items()},
    }  # fmt: skip


def _rates(trials: Sequence[Mapping[str, Any]], targets: Sequence[str]) -> list[dict[str, Any]]:
    """Per target, scope and method; trials of one slice share its truth, so slices are counted too."""
    rows = []
    for target in targets:
        for scope in ("per model", "over models"):
            mine = [t for t in trials if t["target"] == target and (t["model"] == "all") == (scope == "over models")]
            for method in METHODS if mine else ():
                right = sum(t["right"][method] for t in mine)
                good = sum(t["as_good"][method] for t in mine)
                rows.append(
                    {
                        "target": target, "scope": scope, "method": method, "trials": len(mine),
                        "slices": len({(t["reward"], t["model"], t["budget"]) for t in mine}),
                        "right": share_of(right, len(mine)), "as_good": share_of(good, len(mine)),
                    }
                )  # fmt: skip
    return rows


def leave_one_rank_out(
    records: Iterable[PilotRecord], rates: Rates | None, rungs: Ladder, targets: Sequence[str], *, told: Told
) -> dict[str, Any]:
    """Regime of every rank decided from the other ranks' full runs, as the paper does, against that rank's own runs."""
    known = [r for r in records if usable(r, targets)]
    slices = responses(known, targets)
    groups: dict[tuple[str, str, int], list[SliceKey]] = {}
    for key, response in slices.items():
        if len(response.rhos) >= 3:
            groups.setdefault((key.reward, key.model, key.budget), []).append(key)
    trials = []
    for (reward, model, budget), keys in groups.items():
        if len(keys) < 2:
            continue
        for left in keys:
            rest = [r for r in known if slice_key(r) in keys and slice_key(r) != left]
            own = slices[left].runs[0][0].spec.recipe
            recipe = rungs.recipe(reward, lora=own.lora)
            told(f"rank {left.rank} of {model} under {reward} from the others")
            for target in targets:
                shown = [only(relative(r, rates), [target]) for r in rest]
                fitted = Surrogate.fit(shown, ladder=rungs, recipe=recipe, targets=(target,))
                said = surrogate_optimum(fitted, budget=budget, target=target, models=[model]).regime
                known_truth = truth(slices[left], target, rungs)
                trials.append(
                    {
                        "reward": reward, "model": model, "budget": budget, "left_out_rank": left.rank,
                        "target": target, "truth": known_truth.label,
                        "truth_probabilities": dict(known_truth.probabilities), "answer": said,
                        "right": said == known_truth.label, "as_good": said in known_truth.as_good,
                    }
                )  # fmt: skip
    rows = []
    for target in targets:
        mine = [t for t in trials if t["target"] == target]
        n, right, good = len(mine), sum(bool(t["right"]) for t in mine), sum(bool(t["as_good"]) for t in mine)
        rows.append({"target": target, "trials": n, "right": share_of(right, n), "as_good": share_of(good, n)})
    return {"trials": trials, "rates": rows if trials else []}
