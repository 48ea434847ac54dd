from __future__ import annotations

import pytest

from planner.grid import GRID_POSITIONS, candidates, isoflop_grid, start_grid, start_size
from planner.space import PilotSpace
from race.ladders import Ladder


def test_a_slice_is_models_times_update_fractions(space: PilotSpace) -> None:
    cells = isoflop_grid(space, size=2)
    assert len(cells) == 3 * len(GRID_POSITIONS) == len(set(cells))
    assert {c.size for c in cells} == {2}
    for cell in cells:
        low, high = space.rho_range(cell.model, 0)
        assert low < cell.rho < high


def test_every_round_runs_each_model_once_at_different_positions(space: PilotSpace) -> None:
    cells = isoflop_grid(space, size=2)
    for turn in range(0, len(cells), 3):
        part = cells[turn : turn + 3]
        assert {c.model for c in part} == {0, 1, 2}
        positions = {min(range(3), key=lambda k, c=c: abs(c.rho - space.rhos(c.model, 0, GRID_POSITIONS[k])))
                     for c in part}
        assert positions == {0, 1, 2}


def test_only_runnable_pilots_are_in_the_grid(rungs: Ladder) -> None:
    tight = PilotSpace.build(rungs, budget="1e17", reward="prm")
    size = start_size(tight)
    assert size is not None
    assert size > 0
    cells = isoflop_grid(tight, size=size)
    assert len({c.model for c in cells}) >= 2
    assert all(tight.runnable(c) for c in cells)


def test_no_slice_when_nothing_can_be_compared(rungs: Ladder) -> None:
    tiny = PilotSpace.build(rungs, budget="1e15", reward="prm")
    assert start_size(tiny) is None
    assert start_grid(tiny, 5) == []
    assert candidates(tiny, remaining=tiny.pilot_budget) == []


def test_start_alternates_between_rewards(rungs: Ladder) -> None:
    space = PilotSpace.build(rungs, budget="1e20", reward=("sparse", "prm"), target="judge")
    assert [c.reward for c in start_grid(space, 4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("share", [1.0, 0.3, 0.05, 0.01])
def test_candidates_fit_what_remains(space: PilotSpace, share: float) -> None:
    remaining = share * space.pilot_budget
    cells = candidates(space, remaining=remaining)
    assert all(space.sizes[c.size] <= remaining and space.runnable(c) for c in cells)
    assert bool(cells) == (remaining >= space.sizes[0])
