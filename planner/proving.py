"""Before a plan calls itself certain: one larger pilot of every model that is still in the race.

Small pilots show who starts fastest. A model that levels off early looks best on all of them, and a posterior that is
sure of it has never seen the place where it stops rising. So a regime does not count as certain until every model that
may still hold the optimum has been run at the largest size that half of the pilot budget pays for all of them.

    in the race    probability of at least `IN_THE_RACE` of holding the optimum, for any target asked
    the size       the largest one such that  size x models lacking a pilot of it  <=  half of the pilot budget,
                   and what is left of it

One pilot each is enough: what it finds goes into the posterior, which then decides by the usual rules. A pilot that was
bought and failed counts as bought, or a model that cannot be run would eat the whole budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.decision import Decision
from planner.progress import Progress
from planner.space import PilotSpace

IN_THE_RACE = 0.05
SHARE = 0.5  # of the pilot budget
_SAME = 0.95  # of a size: as good as that size


@dataclass(frozen=True)
class Proof:
    """A larger pilot that is missing: of which model, under which reward, at which update fraction and size."""

    model: str
    reward: str
    rho: float
    size: int


def in_the_race(decision: Decision) -> dict[str, tuple[str, float]]:
    """Models that may still hold the optimum, with the reward and update fraction at which each is best."""
    out: dict[str, tuple[str, float]] = {}
    for view in (decision.view, *decision.others):
        for model, probability in view.models.items():
            if probability >= IN_THE_RACE and model in view.best_of:
                out.setdefault(model, view.best_of[model])
    return out


def missing_proof(
    space: PilotSpace,
    decision: Decision,
    progress: Progress,
    runnable: Callable[[str, str, int], bool],
) -> Proof | None:
    """The larger pilot to buy next, or ``None`` when all are bought or none can be paid for.

    Parameters
    ----------
    runnable
        Whether a model under a reward can be run at a size (index) at all.
    """
    payable = min(space.pilot_budget - progress.spent, space.pilot_budget * SHARE)
    largest = _largest(space, progress)
    racing = in_the_race(decision)
    for size in reversed(range(len(space.sizes))):
        flops = space.sizes[size]
        lacking = [
            model
            for model, (reward, _) in racing.items()
            if largest.get(model, 0.0) < _SAME * flops and runnable(model, reward, size)
        ]
        if lacking and len(lacking) * flops <= payable:
            model = min(lacking, key=lambda name: largest.get(name, 0.0))
            return Proof(model, *racing[model], size)
    return None


def proof_running(space: PilotSpace, decision: Decision, progress: Progress) -> bool:
    """Whether a pilot is out that is larger than any that a model in the race has been seen at."""
    ended = Progress(tuple(p for p in progress.pilots if p.state != "running"), progress.evidence)
    seen = _largest(space, ended)
    racing = in_the_race(decision)
    return any(s.model in racing and _SAME * s.budget > seen.get(s.model, 0.0) for s in progress.pending)


def _largest(space: PilotSpace, progress: Progress) -> dict[str, float]:
    """Budget of the largest pilot of each model, whatever became of it."""
    specs = [p.spec for p in progress.pilots]
    specs += [r.spec for r in progress.evidence if r.spec.reward in space.rewards]
    names = {m.name.lower(): m.name for m in space.models}
    out: dict[str, float] = {}
    for spec in specs:
        name = names.get(spec.model.lower())
        if name is not None:
            out[name] = max(out.get(name, 0.0), float(spec.budget))
    return out
