from __future__ import annotations

import numpy as np
import pytest

from race.allocation import REGIMES, regime_of, step_allocation, unit_costs
from race.errors import InvalidInput
from race.ladders import Ladder
from race.simulator import REWARDS, Settings


def test_a_setting_costs_what_the_accounting_says(sizes: Ladder) -> None:
    recipe = sizes.recipe("prm", kl=True, update_ratio=1.5, group_size=4)
    settings = Settings.build([(m, recipe, 10**18) for m in sizes.models])
    for i, model in enumerate(sizes.models):
        step = step_allocation(model.architecture, recipe)
        assert settings.step_flops[i] == pytest.approx(step.total, rel=1e-12)
        assert settings.rho[i] == pytest.approx(step.rho, rel=1e-12)
        assert settings.phi[i] == pytest.approx(step.phi, rel=1e-12)
    assert np.allclose(settings.rho + settings.sigma + settings.phi, 1)
    assert np.allclose(settings.steps * settings.step_flops, 1e18)


def test_grid_is_model_then_budget_then_rho_and_solves_a(sizes: Ladder) -> None:
    recipe = sizes.recipe("sparse")
    rhos, budgets = [0.2, 0.5, 0.8], [1e17, 1e18]
    settings = Settings.grid(sizes, recipe, rhos=rhos, budgets=budgets)
    assert len(settings) == 3 * 2 * 3
    shape = (3, 2, 3)
    assert np.allclose(settings.rho.reshape(shape), np.array(rhos))
    assert np.array_equal(settings.budget.reshape(shape)[0, :, 0], budgets)
    assert np.array_equal(settings.params.reshape(shape)[:, 0, 0], [m.params for m in sizes.models])
    costs = unit_costs(sizes.models[1].architecture, recipe)
    assert settings.a.reshape(shape)[1, 0] == pytest.approx(costs.update_ratio(np.array(rhos)))


def test_an_infeasible_rho_keeps_its_row_and_says_so(sizes: Ladder) -> None:
    settings = Settings.grid(sizes, sizes.recipe("prm"), rhos=[0.001, 0.5], budgets=1e18)
    assert settings.feasible.reshape(3, 2).tolist() == [[False, True]] * 3
    with pytest.raises(InvalidInput, match="rhos"):
        Settings.grid(sizes, sizes.recipe("prm"), rhos=[0.0], budgets=1e18)


def test_rows_concatenate_and_index(sizes: Ladder) -> None:
    one = Settings.sweep(sizes.models, sizes.recipe("dense"), ratios=[0.5, 1, 2], budget=1e17)
    two = Settings.concat([one, one.with_budget(1e18)])
    assert len(two) == 2 * len(one) == 18
    assert np.array_equal(two[two.budget > 5e17].a, one.a)
    assert len(two[3]) == 1
    assert two[3].a[0] == one.a[3]
    assert len(Settings.build([])) == 0
    assert len(Settings.concat([])) == 0
    assert {REWARDS[i] for i in two.reward} == {"dense"}


def test_regimes_are_those_of_the_design(sizes: Ladder) -> None:
    settings = Settings.sweep(sizes.models, sizes.recipe("prm"), ratios=[0.1, 1, 8], budget=1e18)
    for i, name in enumerate(settings.regime):
        assert REGIMES[name] == regime_of(settings.rho[i], settings.sigma[i], settings.phi[i])
