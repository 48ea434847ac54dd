from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Planner
from planner.space import MIN_PILOT_STEPS, Cell, PilotSpace
from race.allocation import step_allocation
from race.errors import InvalidInput
from race.ladders import Ladder, ladder
from race.records import PilotSpec

RUNGS = ladder("qwen2.5")
SPACES = {
    reward: PilotSpace.build(RUNGS, budget="1e19", reward=reward) for reward in ("sparse", "proxy-prm", "prm")
}


def test_defaults_are_a_tenth_of_the_budget_in_doubling_sizes(space: PilotSpace) -> None:
    assert space.pilot_budget == 10**18
    assert space.sizes == tuple(10**18 // n for n in (16, 8, 4, 2))


@given(
    reward=st.sampled_from(sorted(SPACES)),
    model=st.integers(0, 2),
    size=st.integers(0, 3),
    position=st.floats(0, 1),
)
@settings(max_examples=80, deadline=None)
def test_a_cell_becomes_the_spec_that_spends_rho_on_learning(
    reward: str, model: int, size: int, position: float
) -> None:
    space = SPACES[reward]
    rho = float(space.rhos(model, 0, position))
    low, high = space.rho_range(model, 0)
    assert low <= rho <= high
    spec = space.spec(Cell(model, 0, size, rho), seed=3)
    costs = space.costs[0][model]
    assert costs.rho(spec.recipe.update_ratio) == pytest.approx(rho, abs=1e-9)
    assert (spec.model, spec.params) == (space.models[model].name, space.models[model].params)
    assert spec.budget == space.sizes[size]
    assert PilotSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_positions_are_even_in_logit(space: PilotSpace) -> None:
    rhos = space.rhos(1, 0, np.linspace(0, 1, 9))
    gaps = np.diff(np.log(rhos / (1 - rhos)))
    assert gaps == pytest.approx(np.full(8, gaps[0]))


def test_runnable_is_two_whole_steps(rungs: Ladder) -> None:
    recipe = rungs.recipe("sparse")
    step = step_allocation(rungs.models[0].architecture, recipe).total
    rho = float(PilotSpace.build(rungs, budget="1e19", reward="sparse").costs[0][0].rho(1.0))
    for budget, able in ((MIN_PILOT_STEPS * step - 1, False), (MIN_PILOT_STEPS * step + 1, True)):
        space = PilotSpace.build(rungs, budget="1e19", reward="sparse", sizes=[int(budget)])
        assert space.runnable(Cell(0, 0, 0, rho)) is able


def test_settings_are_priced_like_the_specs(rungs: Ladder) -> None:
    """The two ways to price a cell, the simulator's table and the spec's own recipe, must not drift apart."""
    space = PilotSpace.build(rungs, budget="1e19", reward=("sparse", "prm"), target="judge")
    cells = [Cell(2, 1, 3, 0.4), Cell(0, 0, 0, 0.7), Cell(1, 1, 2, 0.2), Cell(0, 0, 1, 0.5), Cell(2, 1, 0, 0.41)]
    table = space.settings(cells, [space.sizes[c.size] for c in cells])
    assert table.rho == pytest.approx([c.rho for c in cells], abs=1e-9)
    assert table.budget.tolist() == [float(space.sizes[c.size]) for c in cells]
    assert table.params.tolist() == [float(space.models[c.model].params) for c in cells]
    for row, cell in enumerate(cells):
        spec = space.spec(cell, seed=0)
        costs = space.costs[cell.reward][cell.model]
        assert table.a[row] == pytest.approx(spec.recipe.update_ratio)
        per_sample = float(costs.learning(spec.recipe.update_ratio)) + costs.overhead
        assert table.step_flops[row] == pytest.approx(per_sample * spec.recipe.samples_per_step)


def test_nearest_moves_into_the_feasible_region(rungs: Ladder) -> None:
    space = PilotSpace.build(rungs, budget="1e18", reward="prm")
    low, _ = space.rho_range(0, 0)
    assert space.nearest(0, 0, 0, 0.001).rho == low
    tight = space.nearest(2, 0, 0, 0.9)
    assert tight.size > 0
    assert space.runnable(tight)
    with pytest.raises(InvalidInput, match="no size up to"):
        PilotSpace.build(rungs, budget="1e15", reward="prm").nearest(2, 0, 0, 0.5)


def test_a_frozen_space_survives_json_and_names_what_differs(space: PilotSpace) -> None:
    stored = json.loads(json.dumps(space.frozen()))
    space.check_frozen(stored)
    for changed, field in (
        (replace(space, budget=2 * space.budget), "budget"),
        (replace(space, sizes=space.sizes[1:]), "sizes"),
        (replace(space, targets=("judge",)), "targets"),
        (replace(space, recipes=(replace(space.recipes[0], group_size=16),)), "recipes"),
        (replace(space, ladder=ladder("qwen3")), "models"),
    ):
        with pytest.raises(InvalidInput, match=f"study: its {field} is"):
            changed.check_frozen(stored)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": "praise"}, "reward: found 'praise'"),
        ({"reward": ()}, "reward: found"),
        ({"reward": ("prm", "prm"), "target": "judge"}, "reward: found"),
        ({"reward": ("prm", "sparse")}, "native rewards have no common scale"),
        ({"target": "elo"}, "target: found 'elo'"),
        ({"budget": "-1"}, "budget: found '-1'"),
        ({"budget": "nan"}, "budget: found 'nan'"),
        ({"budget": 1e31}, "budget: found"),
        ({"pilot_budget": "2e19"}, "pilot_budget: found 2e19; allowed is at most the budget of 1e19"),
        ({"pilot_budget": 0}, "pilot_budget: found '0'"),
        ({"sizes": []}, "sizes: found"),
        ({"sizes": [10**19]}, "sizes: found"),
    ],
)
def test_bad_questions_are_one_line(rungs: Ladder, changes: dict[str, object], message: str) -> None:
    question = {"budget": "1e19", "reward": "sparse", **changes}
    with pytest.raises(InvalidInput, match=message.replace("(", r"\(")) as caught:
        PilotSpace.build(rungs, **question)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_reward_model_stays_with_its_own_reward(rungs: Ladder) -> None:
    recipe = rungs.recipe("prm", reward_model="Qwen2.5-Math-PRM-7B", group_size=4)
    space = PilotSpace.build(rungs, budget="1e19", reward=("prm", "sparse"), target="judge", recipe=recipe)
    assert [r.reward_model for r in space.recipes] == ["Qwen2.5-Math-PRM-7B", None]
    assert [r.group_size for r in space.recipes] == [4, 4]


def test_a_ladder_may_be_named(space: PilotSpace) -> None:
    named = PilotSpace.build("qwen2.5", budget="1e19", reward="sparse")
    assert named.frozen() == space.frozen()
    listed = PilotSpace.build(["Qwen2.5-7B-Instruct", "Qwen2.5-0.5B-Instruct"], budget="1e19", reward="sparse")
    assert [m.name for m in listed.models] == ["Qwen2.5-0.5B-Instruct", "Qwen2.5-7B-Instruct"]
    assert Planner("qwen2.5", budget="1e19", reward="sparse").space.frozen() == space.frozen()
    with pytest.raises(InvalidInput, match="ladder: found 'qwen9'"):
        Planner("qwen9", budget="1e19", reward="sparse")
