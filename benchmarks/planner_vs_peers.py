"""How many pilot FLOPs does it take to find where the budget should go? This planner against its peers.

    python benchmarks/planner_vs_peers.py --worlds 60

Every method faces the same worlds with the same budgets, the same noise (it depends on the pilot's spec and seed) and
the same pilot budget, a tenth of the real one. Own worlds are draws of the simulator the planner's prior comes from;
alien worlds have a response of another functional form. They are reported apart.

    race       this planner: prior, IsoFLOP start, regret-per-FLOP acquisition, posterior decision
    grid       the paper's fixed IsoFLOP grid, in order, then the best observed setting
    random     uniform over models and update fractions, best observed setting
    tpe        Optuna's TPESampler, best observed setting
    gp         Optuna's GPSampler, best observed setting
    botorch    SingleTaskGP with log expected improvement, best posterior mean among the settings tried

A peer has no notion of pilot size, so it runs at one size; every peer is run at 1/16 and at 1/8 of the pilot budget
and reported at whichever is better for it. What a peer finds best at pilot size it recommends for the real budget,
which is what argmax means.

Regret is f(best) - f(recommended) at the real budget, f the world's noiseless value, as a share of the range of f over
all models and feasible update fractions. "FLOPs to 1 %" is what had been spent when the recommendation came within 1 %
of that range and stayed there; a method that never does is counted as needing more than the whole pilot budget. Where
that is more than half of the worlds the median is infinite, and the lower quartile and the share of worlds decided say
who is ahead.

Ties. Many worlds, alien ones above all, are flat: settings of two regimes, or with update fractions far apart, are
worth the same, and which of them is "the" optimum is a matter of the tenth decimal. So whatever is asked of a statement
is asked twice, strictly and "or as good". The tolerance is the one by which decisions are judged, 1 % of the range:

    regime      right if it is the optimum's; as good if its best setting loses at most 1 % of the range
    rho*        covered if the interval holds the optimum's update fraction; as good if it holds one with which some
                model loses at most 1 % of the range

A peer states no regime; the regime of the setting that it recommends is held to the same two questions.

Finished runs are kept in ``runs.jsonl`` and not run again; delete the folder to start afresh.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads on a 50-point GP are slower than one

import numpy as np

from planner import NoProposal, PilotSpace, Planner, StoppingRule
from planner.grid import isoflop_grid
from planner.seeds import trial_seed
from planner.slices import BudgetSlice
from planner.space import Cell
from race.allocation import REGIMES, regime_of, unit_costs
from race.ladders import Ladder, ladder
from race.rewards import REWARD_SYSTEMS
from race.simulator.worlds import Truth, World, alien_worlds, own_worlds

PEER_SIZES = (1 / 16, 1 / 8)
BUDGETS = ("1e18", "3e18", "1e19", "1e20")
WITHIN = 0.01
ROUNDING = 1e-6  # of rho: an optimum that sits on a kink of the costs may be the end of an interval
CHECKPOINTS = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Problem:
    """One world with one question; ``truth`` is what only the benchmark may look at."""

    family: str
    world: World
    seed: int
    budget: str
    reward: str
    rungs: Ladder = field(repr=False)

    @property
    def key(self) -> str:
        return f"{self.world.name}/{self.budget}/{self.reward}"

    @cached_property
    def space(self) -> PilotSpace:
        return PilotSpace.build(self.rungs, budget=self.budget, reward=self.reward)

    def with_size(self, share: float) -> PilotSpace:
        size = int(share * self.space.pilot_budget)
        return PilotSpace.build(self.rungs, budget=self.budget, reward=self.reward, sizes=[size])

    @cached_property
    def truth(self) -> Truth:
        return self.world.truth(self.rungs, self.space.recipes[0], self.space.budget)

    @cached_property
    def dense(self) -> tuple[BudgetSlice, np.ndarray]:
        """A fine slice at the real budget and what every setting on it loses, as a share of the range, (L, Q)."""
        on = BudgetSlice.build(self.space, points=121)
        values = np.where(on.affordable.ravel(), self.world.physics.expected(on.settings, "native"), -np.inf)
        loss = np.clip((self.truth.value - values) / max(self.truth.range, 1e-12), 0, 1)
        return on, loss.reshape(on.rhos.shape)

    @property
    def loss_by_regime(self) -> dict[str, float]:
        """What the best setting of each regime loses, as a share of the range; absent regimes lose everything."""
        on, loss = self.dense
        regimes = on.settings.regime
        return {name: float(loss.ravel()[regimes == i].min(initial=1.0)) for i, name in enumerate(REGIMES)}

    @property
    def near_rhos(self) -> list[list[float]]:
        """Stretches of update fractions with which some model loses at most `WITHIN` of the range."""
        on, loss = self.dense
        found = [[self.truth.rho, self.truth.rho]]
        for rhos, good in zip(on.rhos, loss <= WITHIN, strict=True):
            edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]]).astype(int)))
            found += [[float(rhos[a]), float(rhos[b - 1])] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        return found


@dataclass(frozen=True)
class Step:
    """What a method would recommend after spending ``spent`` FLOPs."""

    spent: float
    model: int
    rho: float
    extra: dict[str, Any] = field(default_factory=dict)


# ---------------------------------------------------------------- methods


def race(problem: Problem) -> Iterator[Step]:
    # Like its peers it spends the whole pilot budget: it never ends, so it buys nothing to be allowed to end.
    never = StoppingRule(certainty=1.0, min_pilots=10**9)
    planner = Planner(problem.rungs, budget=problem.budget, reward=problem.reward, seed=problem.seed, rule=never)
    names = [m.name for m in planner.space.models]

    def step() -> Step:
        decision = planner.decide(pilots=0)
        view = decision.view
        return Step(
            planner.progress.spent,
            names.index(view.model),
            decision.rho.mean,
            {
                "regimes": dict(view.regimes),
                "rho_star": [view.rho_star.mean, view.rho_star.lo, view.rho_star.hi],
                "value": [view.value.lo, view.value.hi],
            },
        )

    yield step()
    while True:
        try:
            spec = planner.ask()
        except NoProposal:
            return
        planner.tell(spec, problem.world(spec))
        yield step()


def _argmax(problem: Problem, proposals: Generator[Cell, float, None], space: PilotSpace) -> Iterator[Step]:
    """Run proposals in turn and recommend the best observed so far; collapsed runs score what they ended at."""
    spent, best = 0.0, (-np.inf, 0, 0.5)
    number = 0
    value: float | None = None
    while True:
        try:
            cell = next(proposals) if value is None else proposals.send(value)
        except StopIteration:
            return
        if spent + space.sizes[0] > space.pilot_budget:
            return
        record = problem.world(space.spec(cell, seed=trial_seed(problem.seed, number)))
        number += 1
        spent += record.flops.total
        value = record.curves["native"].value[-1]
        best = max(best, (value, cell.model, cell.rho))
        yield Step(spent, best[1], best[2])


def _able(space: PilotSpace, model: int, rho: float) -> Cell:
    """The cell itself, or the nearest update fraction whose two steps the one size pays for."""
    low, high = space.rho_range(model, 0)
    for at in np.linspace(np.clip(rho, low, high), low, 60):
        cell = Cell(model, 0, 0, float(at))
        if space.runnable(cell):
            return cell
    return Cell(0, 0, 0, float(space.costs[0][0].rho(1.0)))


def grid(problem: Problem, share: float) -> Iterator[Step]:
    """The paper's grid with as many update fractions per model as the pilot budget pays for."""
    space = problem.with_size(share)
    count = int(1 / share) // len(space.models)
    positions = np.linspace(0, 1, count + 2)[1:-1]

    cells = isoflop_grid(space, size=0, positions=positions)
    return _argmax(problem, (cell for cell in cells), space)


def random(problem: Problem, share: float) -> Iterator[Step]:
    space = problem.with_size(share)
    rng = np.random.default_rng(problem.seed)

    def cells() -> Generator[Cell, float, None]:
        while True:
            model = int(rng.integers(len(space.models)))
            yield _able(space, model, float(space.rhos(model, 0, rng.uniform())))

    return _argmax(problem, cells(), space)


def _optuna(problem: Problem, share: float, sampler: Any) -> Iterator[Step]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = problem.with_size(share)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def cells() -> Generator[Cell, float, None]:
        while True:
            trial = study.ask()
            model = trial.suggest_int("model", 0, len(space.models) - 1)
            position = trial.suggest_float("position", 0, 1)
            value = yield _able(space, model, float(space.rhos(model, 0, position)))
            study.tell(trial, value)

    return _argmax(problem, cells(), space)


def tpe(problem: Problem, share: float) -> Iterator[Step]:
    from optuna.samplers import TPESampler

    return _optuna(problem, share, TPESampler(seed=problem.seed, n_startup_trials=5))


def gp(problem: Problem, share: float) -> Iterator[Step]:
    from optuna.samplers import GPSampler

    return _optuna(problem, share, GPSampler(seed=problem.seed, n_startup_trials=5))


def botorch(problem: Problem, share: float) -> Iterator[Step]:
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.set_num_threads(1)
    torch.manual_seed(problem.seed)
    space = problem.with_size(share)
    rng = np.random.default_rng(problem.seed)
    count = len(space.models)
    pool = [(m, p) for m in range(count) for p in np.linspace(0, 1, 41)]

    def code(points: list[tuple[int, float]]) -> Any:
        return torch.tensor([[m / (count - 1), p] for m, p in points], dtype=torch.float64)

    tried: list[tuple[int, float]] = []
    cells: list[Cell] = []
    seen: list[float] = []
    spent = 0.0
    while spent + space.sizes[0] <= space.pilot_budget:
        if len(tried) < 5:
            point = (int(rng.integers(count)), float(rng.uniform()))
        else:
            y = torch.tensor(seen, dtype=torch.float64)[:, None]
            gp_model = SingleTaskGP(code(tried), y)  # standardises outcomes by default
            fit_gpytorch_mll(ExactMarginalLogLikelihood(gp_model.likelihood, gp_model))
            with torch.no_grad():
                score = LogExpectedImprovement(gp_model, best_f=y.max())(code(pool)[:, None, :])
            point = pool[int(score.argmax())]
        cell = _able(space, point[0], float(space.rhos(point[0], 0, point[1])))
        record = problem.world(space.spec(cell, seed=trial_seed(problem.seed, len(tried))))
        spent += record.flops.total
        tried.append(point)
        cells.append(cell)
        seen.append(record.curves["native"].value[-1])
        chosen = int(np.argmax(seen))
        if len(tried) > 5:
            y = torch.tensor(seen, dtype=torch.float64)[:, None]
            model = SingleTaskGP(code(tried), y)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            with torch.no_grad():
                chosen = int(model.posterior(code(tried)).mean.argmax())
        yield Step(spent, cells[chosen].model, cells[chosen].rho)


METHODS: dict[str, Callable[..., Iterator[Step]]] = {
    "race": race,
    "grid": grid,
    "random": random,
    "tpe": tpe,
    "gp": gp,
    "botorch": botorch,
}


def missing(method: str) -> str | None:
    """Why a method cannot run here, or ``None``."""
    needs = {"gp": ("torch", "scipy"), "botorch": ("torch", "botorch", "gpytorch")}
    for module in needs.get(method, ()):
        try:
            __import__(module)
        except ImportError as error:
            return f"{module} cannot be imported ({error}); pip install {module}"
    return None


# ---------------------------------------------------------------- worlds


def problems(family: str, count: int) -> Iterator[Problem]:
    """``count`` problems: every world with one budget and one reward system, in a fixed rotation."""
    rungs = ladder("qwen2.5")
    rewards = tuple(REWARD_SYSTEMS)
    for index, world in enumerate({"own": own_worlds, "alien": alien_worlds}[family](count)):
        reward, budget = rewards[index % len(rewards)], BUDGETS[(index // len(rewards)) % len(BUDGETS)]
        yield Problem(family, world, index, budget, reward, rungs)


# ---------------------------------------------------------------- running and scoring


def run_one(problem: Problem, method: str, share: float | None) -> dict[str, Any]:
    start = time.perf_counter()
    steps = METHODS[method](problem) if share is None else METHODS[method](problem, share)
    truth, rows = problem.truth, []
    for step in steps:
        value = truth.value_at(problem.rungs.models[step.model].name, step.rho)
        rows.append(
            {
                "spent": step.spent / problem.space.pilot_budget,
                "regret": max(truth.value - value, 0.0) / max(truth.range, 1e-12),
                "model": step.model,
                "rho": step.rho,
                "true_value": value,
                **step.extra,
            }
        )
    return {
        "key": problem.key,
        "family": problem.family,
        "method": method,
        "share": share,
        "truth": {
            "model": [m.name for m in problem.rungs.models].index(truth.model),
            "rho": truth.rho,
            "regime": truth.regime,
            "value": truth.value,
            "range": truth.range,
            "loss_by_regime": problem.loss_by_regime,
            "near_rhos": problem.near_rhos,
        },
        "steps": rows,
        "seconds": time.perf_counter() - start,
    }


def flops_to(run: dict[str, Any], within: float = WITHIN, *, stay: bool = True) -> float:
    """Share of the pilot budget after which regret is within ``within`` (and stays there); inf when never."""
    reached = np.inf
    for row in run["steps"]:
        if row["regret"] <= within:
            reached = min(reached, row["spent"])
            if not stay:
                break
        elif stay:
            reached = np.inf
    return float(reached)


def at(run: dict[str, Any], share: float) -> dict[str, Any]:
    """The last row at or before ``share`` of the pilot budget, else the first."""
    rows = [row for row in run["steps"] if row["spent"] <= share + 1e-9]
    return rows[-1] if rows else run["steps"][0]


def quantile_interval(values: list[float], share: float, seed: int = 0) -> list[float]:
    """A quantile (the lower of two neighbours) with a 90 % bootstrap interval; infinities stay what they are."""
    array = np.array(values)
    place = int(share * (len(array) - 1))
    rng = np.random.default_rng(seed)
    picks = np.sort(array[rng.integers(len(array), size=(2000, len(array)))], axis=1)
    low, high = np.sort(picks[:, place])[[100, 1899]]
    return [float(np.sort(array)[place]), float(low), float(high)]


def median_interval(values: list[float], seed: int = 0) -> list[float]:
    """Median with a 90 % bootstrap interval; infinities stay what they are."""
    return quantile_interval(values, 0.5, seed)


def share_interval(hits: list[bool]) -> list[float]:
    """Share with its 90 % Wilson interval."""
    n, p, z = len(hits), float(np.mean(hits)), 1.645
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return [p, float(centre - half), float(centre + half)]


def calibration_error(stated: list[dict[str, float]], truth: list[str], bins: int = 10) -> float:
    """Expected calibration error over all (world, regime) pairs."""
    p = np.array([probabilities[name] for probabilities in stated for name in REGIMES])
    hit = np.array([float(name == true) for true in truth for name in REGIMES])
    which = np.minimum((p * bins).astype(int), bins - 1)
    return float(sum(abs(p[which == b].sum() - hit[which == b].sum()) for b in range(bins)) / len(p))


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for family in sorted({run["family"] for run in runs}):
        mine = [run for run in runs if run["family"] == family]
        summary[family] = {"methods": {}, "worlds": len({run["key"] for run in mine})}
        for method in METHODS:
            variants = {}
            for share in sorted({run["share"] for run in mine if run["method"] == method}, key=str):
                these = [run for run in mine if run["method"] == method and run["share"] == share]
                variants[str(share)] = {
                    "worlds": len(these),
                    "flops_to_1pct": median_interval([flops_to(run) for run in these]),
                    "flops_to_1pct_quartile": quantile_interval([flops_to(run) for run in these], 0.25),
                    "first_within_1pct": median_interval([flops_to(run, stay=False) for run in these]),
                    "reached_1pct": share_interval([flops_to(run) <= 1 for run in these]),
                    "median_regret": {c: float(np.median([at(r, c)["regret"] for r in these])) for c in CHECKPOINTS},
                    "mean_regret": {c: float(np.mean([at(r, c)["regret"] for r in these])) for c in CHECKPOINTS},
                    "regime_right_or_as_good": share_interval(
                        [run["truth"]["loss_by_regime"][decided_regime(run)] <= WITHIN for run in these]
                    ),
                    "seconds": float(np.mean([run["seconds"] for run in these])),
                }
            if variants:
                best = min(variants, key=lambda s: (variants[s]["flops_to_1pct"][0], variants[s]["mean_regret"][1.0]))
                summary[family]["methods"][method] = {"size": best, **variants[best], "all_sizes": variants}
        ours = [run for run in mine if run["method"] == "race"]
        peers = {m: v for m, v in summary[family]["methods"].items() if m != "race"}
        if ours and peers:
            summary[family]["against_best_peer"] = against(ours, peers)
        if ours:
            summary[family]["race"] = {str(c): our_claims(ours, c) for c in (0.0, *CHECKPOINTS)}
    return summary


@cache
def _costs(reward: str, model: int) -> Any:
    rungs = ladder("qwen2.5")
    return unit_costs(rungs.models[model].architecture, rungs.recipe(reward))


def decided_regime(run: dict[str, Any]) -> str:
    """Regime of the setting recommended at the end."""
    row = run["steps"][-1]
    costs = _costs(run["key"].split("/")[2], row["model"])
    low, high = costs.rho_range
    sigma, rho, phi = (float(x) for x in costs.shares(costs.update_ratio(float(np.clip(row["rho"], low, high)))))
    return regime_of(rho, sigma, phi)


def against(ours: list[dict[str, Any]], peers: dict[str, Any]) -> dict[str, Any]:
    """Where one median says little, because nobody gets within 1 % in half of the worlds: when the planner's mean
    regret has come down to what the best peer ends at (share of the pilot budget; infinite when never)."""
    best = min(peers, key=lambda m: peers[m]["mean_regret"][1.0])
    target = peers[best]["mean_regret"][1.0]
    shares = np.linspace(0, 1, 101)
    curve = [float(np.mean([at(run, s)["regret"] for run in ours])) for s in shares]
    reached = [float(s) for s, regret in zip(shares, curve, strict=True) if regret <= target]
    quickest = min(peers, key=lambda m: peers[m]["flops_to_1pct"][0])
    return {
        "least_regret": best,
        "its_mean_regret": target,
        "matched_at": reached[0] if reached else float("inf"),
        "quickest_to_1pct": quickest,
        "its_flops_to_1pct": peers[quickest]["flops_to_1pct"][0],
        "ours": median_interval([flops_to(run) for run in ours])[0],
        "its_lower_quartile": min(v["flops_to_1pct_quartile"][0] for v in peers.values()),
        "our_lower_quartile": quantile_interval([flops_to(run) for run in ours], 0.25)[0],
    }


def our_claims(runs: list[dict[str, Any]], share: float) -> dict[str, Any]:
    """How often what the planner states is true, at ``share`` of the pilot budget."""
    rows = [(at(run, share), run["truth"]) for run in runs]
    label = [max(row["regimes"], key=row["regimes"].get) for row, _ in rows]
    return {
        "regime_right": share_interval([a == truth["regime"] for a, (_, truth) in zip(label, rows, strict=True)]),
        # Where two regimes are within 1 % of the range of each other, either is as good an answer.
        "regime_right_or_as_good": share_interval(
            [truth["loss_by_regime"][a] <= WITHIN for a, (_, truth) in zip(label, rows, strict=True)]
        ),
        "model_right": share_interval([row["model"] == truth["model"] for row, truth in rows]),
        "rho_coverage": share_interval(
            [r["rho_star"][1] - ROUNDING <= truth["rho"] <= r["rho_star"][2] + ROUNDING for r, truth in rows]
        ),
        "rho_coverage_or_as_good": share_interval(
            [
                any(
                    r["rho_star"][1] - ROUNDING <= high and low <= r["rho_star"][2] + ROUNDING
                    for low, high in truth["near_rhos"]
                )
                for r, truth in rows
            ]
        ),
        "value_coverage": share_interval([row["value"][0] <= row["true_value"] <= row["value"][1] for row, _ in rows]),
        "regime_ece": calibration_error([row["regimes"] for row, _ in rows], [truth["regime"] for _, truth in rows]),
    }


# ---------------------------------------------------------------- figure and command


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Median regret against pilot FLOPs, and the share of worlds decided to within 1 %."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    families = sorted({run["family"] for run in runs})
    figure, axes = plt.subplots(2, len(families), figsize=(5.2 * len(families), 7), squeeze=False, sharex=True)
    at_share = np.linspace(0, 1, 101)
    for column, family in enumerate(families):
        mine = [run for run in runs if run["family"] == family]
        chosen = summarise(mine)[family]["methods"]
        for method, best in chosen.items():
            these = [r for r in mine if r["method"] == method and str(r["share"]) == best["size"]]
            # Before its first pilot a peer has nothing to say; its curve starts there.
            first = 0.0 if method == "race" else max(r["steps"][0]["spent"] for r in these)
            shown = at_share[at_share >= first]
            regret = np.array([[at(r, s)["regret"] for s in shown] for r in these])
            done = np.array([[flops_to(r) <= s for s in shown] for r in these])
            ours = method == "race"
            style = {"linewidth": 2.4 if ours else 1.3, "label": method, "zorder": 3 if ours else 2}
            axes[0, column].plot(shown, np.median(regret, axis=0), **style)
            axes[1, column].plot(shown, done.mean(axis=0), **style)
        axes[0, column].set_title(f"{family} worlds (n = {len({r['key'] for r in mine})})")
        axes[0, column].set_yscale("symlog", linthresh=1e-3)
        axes[0, column].axhline(WITHIN, color="0.7", linewidth=0.8)
        axes[0, column].set_ylabel("median regret, share of range")
        axes[1, column].set_ylabel("decided to within 1 % for good")
        axes[1, column].set_xlabel("share of the pilot budget spent")
        axes[1, column].set_ylim(0, 1)
        axes[0, column].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def _without_infinity(value: Any) -> Any:
    """JSON has no infinity; ``null`` stands for "more than the whole pilot budget"."""
    if isinstance(value, dict):
        return {str(k): _without_infinity(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_infinity(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def table(summary: dict[str, Any]) -> str:
    lines = []
    for family, part in summary.items():
        lines.append(f"{family} worlds: {part['worlds']}")
        lines.append(
            f"  {'method':9} {'FLOPs to 1 %, median (share of pilots)':40} {'lower quartile':24} {'reached':>8} "
            f"{'regime as good':>15} {'regret at end':>14}"
        )
        for method, m in part["methods"].items():
            mid, low, high = m["flops_to_1pct"]
            text = f"{mid:.3f} [{low:.3f}, {high:.3f}] at size {m['size']}"
            quartile = "{:.3f} [{:.3f}, {:.3f}]".format(*m["flops_to_1pct_quartile"])
            lines.append(
                f"  {method:9} {text:40} {quartile:24} {m['reached_1pct'][0]:8.2f} "
                f"{m['regime_right_or_as_good'][0]:15.2f} {m['mean_regret'][1.0]:14.4f}"
            )
        if "against_best_peer" in part:
            found = part["against_best_peer"]
            lines.append(
                f"  mean regret of the best peer at the end ({found['least_regret']}, {found['its_mean_regret']:.4f}) "
                f"is matched after {found['matched_at']:.2f} of the pilot budget"
            )
        for share, claims in part.get("race", {}).items():
            shown = {k: (f"{v[0]:.2f} [{v[1]:.2f}, {v[2]:.2f}]" if isinstance(v, list) else f"{v:.3f}")
                     for k, v in claims.items()}
            lines.append(f"  race at {share}: " + ", ".join(f"{k} {v}" for k, v in shown.items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=60, help="worlds of each family")
    parser.add_argument("--families", default="own,alien", help="comma-separated")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "planner_vs_peers")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "runs.jsonl"
    runs = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(run["key"], run["method"], run["share"]) for run in runs}
    skipped = {m: reason for m in options.methods.split(",") if (reason := missing(m)) is not None}
    for method, reason in skipped.items():
        print(f"{method} skipped: {reason}", file=sys.stderr)
    started = time.perf_counter()
    for family in options.families.split(","):
        for number, problem in enumerate(problems(family, options.worlds)):
            for method in options.methods.split(","):
                for share in (None,) if method == "race" else PEER_SIZES:
                    if method in skipped or (problem.key, method, share) in done:
                        continue
                    run = run_one(problem, method, share)
                    runs.append(run)
                    with log.open("a") as out:
                        out.write(json.dumps(run) + "\n")
            print(f"{family} {number + 1}/{options.worlds}, {time.perf_counter() - started:.0f} s", file=sys.stderr)
    summary = summarise(runs)
    text = json.dumps(_without_infinity({"skipped": skipped, **summary}), indent=1, allow_nan=False)
    (options.out / "summary.json").write_text(text + "\n")
    draw(runs, options.out / "figure.png")
    print(table(summary))


if __name__ == "__main__":
    main()
