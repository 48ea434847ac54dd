"""The IsoFLOP grid: the paper's pilots, and the points the acquisition chooses among.

A slice is one pilot size; on it every model is run at several update fractions, spread evenly in logit over what
that model can reach. The paper runs the whole grid; here its first points open the loop, in an order in which any
prefix is spread over models and update fractions, and the acquisition takes over.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from planner.space import Cell, PilotSpace

# Update fractions of the paper's grid per model: clearly low, middle, clearly high; a near 1/3, 1 and 3. Further out
# pilots collapse, or do nothing, too often to open a plan with.
GRID_POSITIONS = (0.3, 0.5, 0.7)
# The acquisition may also reach towards the ends of the range, and sees the slope on both sides of an optimum.
CANDIDATE_POSITIONS = tuple(np.round(np.linspace(0.05, 0.95, 13), 4).tolist())


def isoflop_grid(
    space: PilotSpace, *, size: int, reward: int = 0, positions: Iterable[float] = GRID_POSITIONS
) -> list[Cell]:
    """The runnable cells of one slice, in an order whose every prefix is spread out.

    Position ``k`` of model ``m`` comes in round ``(k - m) mod K``: a Latin-square order, so the first round runs
    every model once, each at another update fraction.
    """
    at = tuple(positions)
    cells = []
    for turn in range(len(at)):
        for model in range(len(space.models)):
            # Start the smallest model at the middle: it is the cheapest look at where the optimum lies.
            position = at[(turn + model + len(at) // 2) % len(at)]
            cells.append(Cell(model, reward, size, float(space.rhos(model, reward, position))))
    return [cell for cell in cells if space.runnable(cell)]


def start_size(space: PilotSpace, *, reward: int = 0) -> int | None:
    """Index of the smallest size at which at least two models can run the grid; ``None`` when no size does.

    Two, because a slice on which one model runs compares nothing; the largest model may need bigger pilots, which
    the acquisition can still buy.
    """
    for size in range(len(space.sizes)):
        if len({cell.model for cell in isoflop_grid(space, size=size, reward=reward)}) >= 2:
            return size
    return None


def start_grid(space: PilotSpace, count: int) -> list[Cell]:
    """The first ``count`` IsoFLOP pilots, round robin over the reward axis; empty when no slice can be run."""
    slices = []
    for reward in range(len(space.recipes)):
        size = start_size(space, reward=reward)
        if size is not None:
            slices.append(isoflop_grid(space, size=size, reward=reward))
    cells: list[Cell] = []
    for turn in range(max((len(s) for s in slices), default=0)):
        cells.extend(s[turn] for s in slices if turn < len(s))
    return cells[:count]


def candidates(space: PilotSpace, *, remaining: float) -> list[Cell]:
    """Every cell of the candidate grid that can be run with ``remaining`` FLOPs."""
    cells: list[Cell] = []
    for reward in range(len(space.recipes)):
        for model in range(len(space.models)):
            rhos = space.rhos(model, reward, CANDIDATE_POSITIONS)
            for size in range(len(space.sizes)):
                cells.extend(Cell(model, reward, size, float(rho)) for rho in rhos)
    return [cell for cell in cells if space.affordable(cell, remaining)]
