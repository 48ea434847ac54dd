"""What would change your mind: which single pilot, at what cost, would most likely flip the decision.

A decision is a model and a regime: those of the setting with the greatest mean value at the real budget. Seeing pilot
c moves the means by s_dc Z, Z ~ N(0, 1) (`planner.acquisition`), so the probability of a flip is the share of Z for
which another model or regime comes out on top, times the probability that the pilot does not collapse. The smallest
|Z| that flips says what the pilot would have to show.

Coming out on top by next to nothing is no change of mind: on a flat top every pilot would flip between neighbours.
The other decision has to be ahead by `MARGIN`, half a point of a score.

This is not the acquisition: that weighs a flip by what it gains, and asks about sequences of pilots. This answers
what someone who has to defend the decision is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.beliefs import form_beliefs
from planner.grid import candidates
from planner.slices import BudgetSlice, FloatArray
from planner.space import Cell, PilotSpace
from race.allocation import regime_of
from race.simulator import Settings
from surrogate import Surrogate
from surrogate.link import to_value

OUTCOMES = 201
MARGIN = 0.005
_Z = np.array([NormalDist().inv_cdf((i + 0.5) / OUTCOMES) for i in range(OUTCOMES)])


@dataclass(frozen=True)
class MindChanger:
    """One pilot and what it could do to the decision.

    Attributes
    ----------
    probability
        That another decision is ahead by `MARGIN` after this pilot.
    to
        ``(model, regime)`` it would most likely flip to; the present one where nothing flips it.
    expected
        Value the pilot is expected to end at, with the 90 % interval of what it may measure.
    above
        True when a flip needs more than ``threshold``, False when less; ``None`` where nothing flips it.
    threshold
        Value the pilot has to end beyond.
    """

    model: str
    reward: str
    rho: float
    budget: int
    probability: float
    to: tuple[str, str]
    expected: float
    lo: float
    hi: float
    above: bool | None
    threshold: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "model": self.model,
            "reward": self.reward,
            "rho": self.rho,
            "budget": self.budget,
            "probability": self.probability,
            "to": {"model": self.to[0], "regime": self.to[1]},
            "expected": {"mean": self.expected, "lo": self.lo, "hi": self.hi},
            "flips_if": None
            if self.threshold is None
            else {"direction": "above" if self.above else "below", "value": self.threshold},
        }


def change_of_mind(
    surrogate: Surrogate, space: PilotSpace, *, on: BudgetSlice | None = None, count: int = 5
) -> list[MindChanger]:
    """The ``count`` pilots most likely to flip the decision, one per model, reward system and size.

    Empty when the pilot budget pays for no pilot at all.
    """
    on = BudgetSlice.build(space) if on is None else on
    cells = candidates(space, remaining=space.pilot_budget)
    if not cells:
        return []
    cost = np.array([space.sizes[cell.size] for cell in cells], dtype=np.float64)
    table = space.settings(cells, cost)
    beliefs = form_beliefs(surrogate, on, table)
    decisions = len(beliefs.mean)
    spread = np.sqrt(np.maximum(np.diag(beliefs.cov)[decisions:], 0.0) + beliefs.noise)
    swing = beliefs.slope[:, None] * beliefs.cov[:decisions, decisions:] / np.maximum(spread, 1e-9)
    labels, names = _labels(on)
    now = int(labels[int(beliefs.mean.argmax())])
    latent = surrogate.state.posterior.mean(surrogate.points(table, space.target))
    found = []
    for c, cell in enumerate(cells):
        outcomes = beliefs.mean[:, None] + swing[:, c, None] * _Z
        belief = float(latent[c]), float(spread[c]), float(beliefs.healthy[c])
        found.append(_changer(space, cell, _tops(outcomes, labels, len(names)), now, names, *belief))
    return _best(found, count)


def _labels(on: BudgetSlice) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Which (model, regime) every setting of the slice stands for, as an index into the names."""
    settings: Settings = on.settings
    models = [on.space.models[model].name for _, model in on.lines for _ in range(on.rhos.shape[1])]
    shares = zip(settings.rho, settings.sigma, settings.phi, strict=True)
    each = [(model, str(regime_of(*share))) for model, share in zip(models, shares, strict=True)]
    names = sorted(set(each))
    return np.array([names.index(name) for name in each]), names


def _tops(outcomes: FloatArray, labels: np.ndarray, count: int) -> FloatArray:
    """Best value of every decision under every outcome, shape (decisions, OUTCOMES)."""
    return np.array([outcomes[labels == label].max(axis=0) for label in range(count)])


def _changer(
    space: PilotSpace,
    cell: Cell,
    tops: FloatArray,
    now: int,
    names: Sequence[tuple[str, str]],
    latent: float,
    spread: float,
    healthy: float,
) -> MindChanger:
    after = tops.argmax(axis=0)
    flips = np.flatnonzero((after != now) & (tops.max(axis=0) >= tops[now] + MARGIN))
    ends = to_value(latent + spread * np.array([_Z[0], *np.array([-1.645, 0.0, 1.645]), _Z[-1]]))
    threshold: float | None = None
    above: bool | None = None
    to = now
    if len(flips):
        counts = np.bincount(after[flips], minlength=len(names))
        to = int(counts.argmax())
        nearest = flips[int(np.abs(_Z[flips]).argmin())]
        above, threshold = bool(_Z[nearest] > 0), float(to_value(latent + spread * _Z[nearest]))
    return MindChanger(
        model=space.models[cell.model].name,
        reward=space.rewards[cell.reward],
        rho=float(cell.rho),
        budget=space.sizes[cell.size],
        probability=float(len(flips) / OUTCOMES * healthy),
        to=names[to],
        expected=float(ends[2]),
        lo=float(ends[1]),
        hi=float(ends[3]),
        above=above,
        threshold=threshold,
    )


def _best(found: Sequence[MindChanger], count: int) -> list[MindChanger]:
    """The likeliest per model, reward system and size; of equals the cheaper."""
    best: dict[tuple[str, str, int], MindChanger] = {}
    for one in found:
        key = (one.model, one.reward, one.budget)
        if key not in best or one.probability > best[key].probability:
            best[key] = one
    return sorted(best.values(), key=lambda m: (-round(m.probability, 2), m.budget, m.model))[:count]
