"""Planner replay: who finds the full grid's decision with the fewest FLOPs, choosing among recorded runs?

    race            this planner on half of the grid's FLOPs; recommends what it would decide, the best (model, ρ)
                    anywhere, of which the nearest arm is taken
    race, of arms   the same pilots; recommends the arm with the greatest posterior mean
    grid            all arms once, in shuffled order, then once more with the next seed
    random          arms at random
    tpe, gp         Optuna's TPESampler and GPSampler over (model, position of ρ)

A peer recommends the arm with the best mean so far. It has no notion of pilot size, so it is run at whole runs and at a
third, and the better is its result. An arm with no run left answers a peer with the mean of its runs, free of charge.

The score is the share of the grid's FLOPs after which the decision equals the full grid's and stays so until `horizon`;
infinite when it does not. Asked strictly, as-good (see `recorded`), and for the regime of the recommended arm alone.
The full grid's means have noise of their own, and whoever has seen the same whole runs repeats it: what an arm falls
short of the best one, `lost`, is told beside it. Asked last of every method's runs: does the planner decide from them
what it decides from the whole grid (see `deciding`)? That compares choices of runs, without recommendations of arms.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner import NoProposal
from planner.progress import Pilot, Progress
from planner.proposer import Proposer
from planner.space import Cell
from planner.stopping import StoppingRule
from race.records import PilotRecord
from race.simulator import Settings
from real_runs.study.results.deciding import Decider, space_of
from real_runs.study.results.recorded import Grid, RecordedWorld
from real_runs.study.results.statistics import share_of

HORIZON = 0.5
PEER_SIZES = (1 / 3, 1.0)
# Shares of the grid's FLOPs at which the planner's own decision is asked for.
CHECKPOINTS = (1 / 8, 1 / 4, 3 / 8, 1 / 2)


@dataclass(frozen=True)
class Step:
    """The arm that would be recommended after ``spent`` FLOPs, on the runs ``seen``."""

    spent: float
    arm: int
    seen: tuple[PilotRecord, ...] = ()
    # Where the decision is not bound to arms: the best of the arms.
    of_arms: int | None = None


@dataclass
class RecordedProposer(Proposer):
    """The planner, choosing among the runs that a recorded world still has."""

    world: RecordedWorld | None = None

    def able(self, remaining: float) -> list[Cell]:
        """Cells of the arms, at sizes that are left and paid for."""
        assert self.world is not None
        models = [m.name for m in self.space.models]
        return [
            Cell(models.index(arm.model), 0, size, arm.rho)
            for i, arm in enumerate(self.world.grid.arms)
            for size, flops in enumerate(self.space.sizes)
            if flops <= remaining and self.world.left(i, flops)
        ]


def race(world: RecordedWorld, order: int, horizon: float = HORIZON) -> Iterator[Step]:
    """Our planner, on a pilot budget of ``horizon`` of the grid's FLOPs."""
    grid = world.grid
    space = space_of(grid, horizon)
    proposer, pilots = RecordedProposer(space, seed=order, world=world), dict[str, Pilot]()
    # As a plan would: once a regime counts as certain, larger pilots are asked for first. Nothing stops a replay.
    proposer.rule = StoppingRule(min_pilots=proposer.start_count)
    replaced: list[Pilot] = []
    specs = [arm.runs[0].spec for arm in grid.arms]
    asked = Settings.build([(grid.rungs[s.model], s.recipe, grid.budget) for s in specs])
    while True:
        progress = Progress((*replaced, *pilots.values()))
        decided = proposer.decide(progress).view
        of_arms = int(proposer.surrogate(progress).predict(asked, grid.target).mean.argmax())
        yield Step(world.spent, grid.snap(decided.model, decided.best_rho), progress.records, of_arms)
        try:
            cell = proposer.propose(progress).cell
        except NoProposal:
            return
        flops = space.sizes[cell.size]
        arm = world.nearest(space.models[cell.model].name, cell.rho, flops)
        if arm is None:
            return
        record = world.run(arm, flops)
        number = len(pilots) + len(replaced)
        name = str(record.provenance.get("cut_from", record.id))
        if name in pilots:
            # The same run, longer: its beginning is no second piece of evidence, but was paid for.
            before = pilots.pop(name)
            assert before.record is not None
            spec = replace(before.spec, budget=int(before.record.spent))
            replaced.append(replace(before, spec=spec, state="lost", record=None))
        pilots[name] = Pilot(number, space.spec(cell, seed=number), "finished", record)


Proposals = Generator[int, float, None]


def _follow(
    world: RecordedWorld, peer: Callable[[RecordedWorld, float | None], Proposals], share: float, horizon: float
) -> Iterator[Step]:
    """Run the arms that a peer names, and recommend the best mean so far."""
    grid = world.grid
    flops = None if share == 1 else share * grid.budget
    proposals = peer(world, flops)
    seen: list[list[float]] = [[] for _ in grid.arms]
    records: list[PilotRecord] = []
    value: float | None = None
    # As many questions as there are runs: a peer that only repeats arms it has used up ends here.
    for _ in range(sum(len(arm.runs) for arm in grid.arms)):
        if world.exhausted(flops) or world.spent > horizon * grid.flops:
            return
        try:
            arm = next(proposals) if value is None else proposals.send(value)
        except StopIteration:
            return
        if world.left(arm, flops):
            records.append(world.run(arm, flops))
            value = world.value(records[-1])
            seen[arm].append(value)
            means = np.array([float(np.mean(found)) if found else -np.inf for found in seen])
            yield Step(world.spent, int(means.argmax()), tuple(records))
        else:
            value = float(np.mean(seen[arm]))


def grid_order(world: RecordedWorld, flops: float | None = None) -> Proposals:
    """Every arm, shuffled, then again."""
    arms = world.rng.permutation(len(world.grid.arms)).tolist()
    while not world.exhausted(flops):
        for arm in arms:
            if world.left(arm, flops):
                yield arm


def random_arms(world: RecordedWorld, flops: float | None = None) -> Proposals:
    """Any arm with a run left."""
    while not world.exhausted(flops):
        able = [i for i in range(len(world.grid.arms)) if world.left(i, flops)]
        yield int(world.rng.choice(able))


def _optuna(world: RecordedWorld, sampler: Any) -> Proposals:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    models = world.grid.models
    by_model = [[i for i, arm in enumerate(world.grid.arms) if arm.model == m] for m in models]
    while True:
        trial = study.ask()
        mine = by_model[trial.suggest_int("model", 0, len(models) - 1)]
        position = trial.suggest_float("position", 0, 1)
        study.tell(trial, (yield mine[round(position * (len(mine) - 1))]))


def tpe(world: RecordedWorld, flops: float | None = None) -> Proposals:
    """Optuna's tree-structured Parzen estimator."""
    from optuna.samplers import TPESampler

    return _optuna(world, TPESampler(seed=int(world.rng.integers(2**31)), n_startup_trials=5))


def gp(world: RecordedWorld, flops: float | None = None) -> Proposals:
    """Optuna's Gaussian process with log expected improvement; needs torch."""
    from optuna.samplers import GPSampler

    return _optuna(world, GPSampler(seed=int(world.rng.integers(2**31)), n_startup_trials=5))


PEERS: dict[str, Callable[[RecordedWorld, float | None], Proposals]] = {
    "grid": grid_order, "random": random_arms, "tpe": tpe, "gp": gp,
}  # fmt: skip


def shares(grid: Grid, steps: Sequence[Step], horizon: float = HORIZON) -> dict[str, float]:
    """Share of the grid's FLOPs from which on each question was answered right; infinite when it was not."""
    regime = grid.regime[grid.decision]
    # Where an as-good arm lies in another regime, that regime is as good an answer.
    good = {grid.regime[arm] for arm in grid.as_good}
    questions: dict[str, Callable[[int], bool]] = {
        "arm": lambda arm: arm == grid.decision,
        "arm_as_good": lambda arm: arm in grid.as_good,
        "regime": lambda arm: grid.regime[arm] == regime,
        "regime_as_good": lambda arm: grid.regime[arm] in good,
    }
    out = {}
    for name, right in questions.items():
        reached = np.inf
        for step in steps:
            if step.spent > horizon * grid.flops:
                break
            reached = min(reached, step.spent / grid.flops) if right(step.arm) else np.inf
        out[name] = float(reached)
    return out


def lost(grid: Grid, steps: Sequence[Step], horizon: float = HORIZON) -> dict[str, float | None]:
    """By how much the last recommendation falls short of the best arm, in the full grid's means and in those of runs
    that no method has seen (``None`` where there are none)."""
    seen = [s.arm for s in steps if s.spent <= horizon * grid.flops]
    short = [
        None if means is None or not seen else float(np.max(means) - means[seen[-1]])
        for means in (grid.means, grid.fresh)
    ]
    return {"lost": short[0], "lost_fresh": short[1]}


def agreed(decider: Decider, steps: Sequence[Step], horizon: float = HORIZON) -> float:
    """Checkpoint from which on the planner decides from the runs seen what it decides from the whole grid; infinite
    when it does not at the last one."""
    reached = np.inf
    for share in (c for c in CHECKPOINTS if c <= horizon):
        seen = [s.seen for s in steps if s.spent <= share * decider.grid.flops]
        right = bool(seen) and decider.agrees(seen[-1])
        reached = min(reached, share) if right else np.inf
    return float(reached)


def replay(
    grids: Sequence[Grid],
    *,
    orders: int = 10,
    planner_orders: int = 2,
    gp_orders: int = 2,
    horizon: float = HORIZON,
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Every method on every grid in several orders; the planner's own decision in the first ``planner_orders``."""
    runs: list[dict[str, Any]] = []

    def add(decider: Decider, method: str, size: float | None, order: int, steps: Sequence[Step]) -> None:
        grid = decider.grid
        about = {"reward": grid.reward, "budget": grid.budget, "target": grid.target}
        track = [[s.spent / grid.flops, s.arm] for s in steps]
        asked = method != "race, of arms" and order < planner_orders
        decision = {"decision": agreed(decider, steps, horizon)} if asked else {}
        runs.append({**about, "method": method, "size": size, "order": order, **shares(grid, steps, horizon),
                     **decision, **lost(grid, steps, horizon), "pilots": len(steps), "track": track})  # fmt: skip

    deciders = [Decider(grid) for grid in grids]
    for decider in deciders:
        grid = decider.grid
        for order in range(planner_orders):
            told(f"replay of {grid.reward}, {grid.target}: race, order {order}")
            steps = list(race(grid.start(order), order, horizon))
            add(decider, "race", None, order, steps)
            best = [replace(s, arm=s.arm if s.of_arms is None else s.of_arms) for s in steps]
            add(decider, "race, of arms", None, order, best)
        for name, peer in PEERS.items():
            told(f"replay of {grid.reward}, {grid.target}: {name}")
            for size in PEER_SIZES:
                for order in range(gp_orders if name == "gp" else orders):
                    add(decider, name, size, order, list(_follow(grid.start(order), peer, size, horizon)))
    asked = planner_orders > 0
    about = [
        {
            "reward": g.reward, "budget": g.budget, "target": g.target, "flops": g.flops, "arms": len(g.arms),
            "runs": sum(len(a.runs) for a in g.arms), "model": g.arms[g.decision].model,
            "rho": g.arms[g.decision].rho, "regime": g.regime[g.decision], "value": float(g.means.max()),
            "as_good": [[g.arms[i].model, g.arms[i].rho] for i in sorted(g.as_good)],
            "decision": _told(d) if asked else None,
        }
        for d in deciders
        for g in [d.grid]
    ]  # fmt: skip
    return {"horizon": horizon, "grids": about, "rows": summary(runs), "runs": runs}


def _told(decider: Decider) -> dict[str, Any]:
    """The planner's decision from the whole grid."""
    whole = decider.whole
    star = whole.view.rho_star
    return {
        "model": whole.model, "odds": whole.view.models[whole.model], "regime": whole.regime,
        "probability": whole.certainty, "rho": whole.view.best_rho, "lo": star.lo, "hi": star.hi,
    }  # fmt: skip


METHODS = ("race", "race, of arms", *PEERS)
QUESTIONS = ("arm", "arm_as_good", "regime", "regime_as_good", "decision")


def summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Median share per method and question, and how often it was at most half; a peer at its better size."""
    rows = []
    for target in sorted({r["target"] for r in runs}):
        for method in METHODS:
            mine = [r for r in runs if r["method"] == method and r["target"] == target]
            sized = []
            for size in sorted({r["size"] for r in mine}, key=str):
                these = [r for r in mine if r["size"] == size]
                row: dict[str, Any] = {"target": target, "method": method, "size": size, "replays": len(these)}
                for question in QUESTIONS:
                    found = [r[question] for r in these if question in r]
                    if not found:
                        row[question] = row[f"{question}_by_half"] = None
                        continue
                    # The lower of two neighbours: a mean with an infinity says nothing.
                    row[question] = float(np.sort(found)[(len(found) - 1) // 2])
                    row[f"{question}_by_half"] = share_of(sum(f <= 0.5 for f in found), len(found))
                for short in ("lost", "lost_fresh"):
                    values = [r[short] for r in these if r[short] is not None]
                    row[short] = float(np.mean(values)) if values else None
                sized.append(row)
            if sized:
                rows.append(max(sized, key=lambda r: (r["arm_by_half"][0], r["arm_as_good_by_half"][0])))
    return rows
