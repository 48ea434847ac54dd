"""Pruning: a running pilot whose end can no longer change the decision.

What is left to learn from a pilot is its value at the end of its budget, given its curve so far. When the expected
reduction of regret that the rest of it buys, per FLOP, is a small part of what the best other pilot buys, the rest is
better spent there. Both are scored under the same doubt (`planner.acquisition`): a planner that is sure of itself
would otherwise prune the very pilots it runs to test whether it may be. For the same reason a pilot larger than any
that its model has been seen at is left to finish: it tests the beliefs that it would be pruned by (`planner.proving`).

With several targets a pilot goes on while it is worth it for any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.acquisition import gain_per_flop, score
from planner.beliefs import form_beliefs
from planner.progress import Progress
from planner.proposer import Proposer
from planner.space import Cell
from race.errors import InvalidInput
from race.records import PilotRecord, PilotSpec
from race.units import format_flops

# Of the best other pilot's gain per FLOP.
WORTH = 0.1
# A curve cut earlier says little about its own end, and a surrogate fitted to it even less.
MIN_DONE = 0.25


@dataclass(frozen=True)
class Prune:
    """Stop this pilot.

    Attributes
    ----------
    ratio
        Gain per FLOP of finishing it, relative to the best other pilot's.
    reason
        A sentence for people.
    """

    ratio: float
    reason: str


def check_running(
    proposer: Proposer, progress: Progress, spec: PilotSpec, so_far: PilotRecord, *, worth: float = WORTH
) -> Prune | None:
    """`Prune` when the rest of ``spec`` is better spent elsewhere, else ``None``.

    Parameters
    ----------
    so_far
        Its record up to now: curves and FLOPs spent.
    worth
        Least gain per FLOP, relative to the best other pilot, for which it is finished.

    Raises
    ------
    InvalidInput
        The pilot is of a model or reward system outside the space.
    """
    space = proposer.space
    if spec.model not in space.ladder or spec.reward not in space.rewards:
        raise InvalidInput(f"spec: found {spec.model} with reward {spec.reward}, which is outside this plan's space")
    curve = so_far.curves.get(space.target)
    left = spec.budget - so_far.flops.total
    if curve is None or curve.flops[-1] < MIN_DONE * spec.budget or left <= 0:
        return None
    if _tests_the_beliefs(progress, spec):
        return None
    others = tuple(p for p in progress.pilots if p.spec != spec)
    known = replace(progress, pilots=others, evidence=(*progress.evidence, so_far))
    remaining = space.pilot_budget - known.spent - so_far.flops.total
    able = proposer.able(remaining)
    if not able:
        return None  # nothing else can be bought with what would be saved
    model = [m.name.lower() for m in space.models].index(spec.model.lower())
    own = Cell(model, space.rewards.index(spec.reward), 0, spec.rho)
    cost = np.array([left, *(space.sizes[cell.size] for cell in able)], dtype=np.float64)
    settings = space.settings([own, *able], [spec.budget, *cost[1:]])
    running = proposer.running(known)
    ratio = 0.0
    for target in space.targets:
        surrogate = proposer.surrogate(known).condition(running, target)
        beliefs = form_beliefs(surrogate, proposer.slice, settings, target=target)
        doubt = score(beliefs, cost, remaining).doubt
        _, single = gain_per_flop(replace(beliefs, cov=doubt**2 * beliefs.cov), cost, remaining)
        rate = single / cost
        best = float(rate[1:].max())
        ratio = max(ratio, float(rate[0]) / best if best > 0 else float("inf"))
    if ratio >= worth:
        return None
    return Prune(
        ratio,
        f"per FLOP, the {format_flops(left)} FLOPs it has left would lower the expected regret {ratio:.2g} times as "
        f"much as the best other pilot, below {worth:g}",
    )


def _tests_the_beliefs(progress: Progress, spec: PilotSpec) -> bool:
    """Whether a pilot is larger than all that have been seen of its model."""
    ended = [p.spec for p in progress.pilots if p.state != "running"] + [r.spec for r in progress.evidence]
    largest = max((s.budget for s in ended if s.model.lower() == spec.model.lower()), default=0)
    return spec.budget > largest
