"""Pruning: a running pilot that can no longer change the decision.

What is left to learn from a pilot is its value at the end of its budget, given its curve so far. When the expected
reduction of regret from that is negligible, the rest of its FLOPs are better spent elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.acquisition import expected_gain
from planner.beliefs import form_beliefs
from planner.progress import Progress
from planner.proposer import Proposer
from planner.space import Cell
from race.errors import InvalidInput
from race.records import PilotRecord, PilotSpec
from race.units import format_flops

# In units of the target: a thousandth of a percentage point of regret.
NEGLIGIBLE = 1e-5
# A curve cut earlier says little about its own end, and a surrogate fitted to it even less.
MIN_DONE = 0.25


@dataclass(frozen=True)
class Prune:
    """Stop this pilot: what finishing it was expected to gain, and a sentence for people."""

    gain: float
    reason: str


def check_running(
    proposer: Proposer, progress: Progress, spec: PilotSpec, so_far: PilotRecord, *, negligible: float = NEGLIGIBLE
) -> Prune | None:
    """`Prune` when finishing ``spec`` can no longer change the decision, else ``None``.

    Parameters
    ----------
    so_far
        Its record up to now: curves and FLOPs spent.
    negligible
        Expected reduction of regret below which the rest is not worth running.

    Raises
    ------
    InvalidInput
        The pilot is of a model or reward system outside the space.
    """
    space = proposer.space
    if spec.model not in space.ladder or spec.reward not in space.rewards:
        raise InvalidInput(f"spec: found {spec.model} with reward {spec.reward}, which is outside this plan's space")
    curve = so_far.curves.get(space.target)
    if curve is None or curve.flops[-1] < MIN_DONE * spec.budget:
        return None
    others = tuple(p for p in progress.pilots if p.spec != spec)
    known = replace(progress, pilots=others, evidence=(*progress.evidence, so_far))
    surrogate = proposer.surrogate(known).condition(proposer.running(known), space.target)
    model = [m.name.lower() for m in space.models].index(spec.model.lower())
    here = space.settings([Cell(model, space.rewards.index(spec.reward), 0, spec.rho)], [spec.budget])
    beliefs = form_beliefs(surrogate, proposer.slice, here)
    decisions = len(beliefs.mean)
    cross = beliefs.slope[:, None] * beliefs.cov[:decisions, decisions:]
    spread = np.sqrt(np.maximum(np.diag(beliefs.cov)[decisions:] + beliefs.noise, 1e-18))
    gain = float(expected_gain(beliefs.mean, cross / spread)[0])
    if gain >= negligible:
        return None
    left = max(spec.budget - so_far.flops.total, 0)
    return Prune(
        gain,
        f"finishing it would lower the expected regret by {gain:.1e}, below {negligible:.1e}; "
        f"{format_flops(left) if left else 'no'} FLOPs are saved",
    )
