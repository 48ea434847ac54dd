"""What the paper found, out of the dynamics and the costs: nothing here is written down in the simulator."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from race.ladders import ladder
from race.simulator import Settings, Worlds, simulate
from race.simulator.paper import PAPER_BUDGET, PAPER_GROUP, RATIOS, best_rho, paper_rhos

RULES = ("sparse", "structured", "dense")
PROCESS = ("proxy-prm", "prm")
LARGEST = 2  # the best model at these budgets, see the last test


@lru_cache
def spread(reward: str, reward_model: str | None = None) -> dict[str, np.ndarray]:
    worlds = Worlds.prior(160, seed=11)
    return paper_rhos(worlds, reward, ("native", "pass@1", "judge"), reward_model=reward_model)


@lru_cache
def centre(reward: str) -> dict[str, np.ndarray]:
    return paper_rhos(Worlds.central(), reward, ("native", "pass@1", "judge"))


@pytest.mark.parametrize("reward", RULES)
def test_rules_prefer_updates(reward: str) -> None:
    assert centre(reward)["native"][0, LARGEST] == pytest.approx(0.72, abs=0.06)
    assert np.median(spread(reward)["native"][:, LARGEST]) == pytest.approx(0.72, abs=0.06)


@pytest.mark.parametrize("reward", PROCESS)
def test_process_rewards_move_the_optimum_down(reward: str) -> None:
    assert centre(reward)["native"][0, LARGEST] == pytest.approx(0.445, abs=0.06)
    assert np.median(spread(reward)["native"][:, LARGEST]) == pytest.approx(0.445, abs=0.06)


@pytest.mark.parametrize("reward", RULES + PROCESS)
def test_the_spread_is_honest(reward: str) -> None:
    """A handful of noisy findings does not pin an optimum: worlds must disagree by more than the tolerance."""
    low, high = np.quantile(spread(reward)["native"], (0.05, 0.95))
    assert high - low > 0.1


@pytest.mark.parametrize("reward", ["dense", "prm"])
def test_pass_at_1_wants_more_updates_than_the_judge(reward: str) -> None:
    assert centre(reward)["pass@1"][0, LARGEST] > centre(reward)["judge"][0, LARGEST] + 0.01
    difference = spread(reward)["pass@1"][:, LARGEST] - spread(reward)["judge"][:, LARGEST]
    assert np.mean(difference > -1e-9) > 0.9


def test_pass_at_1_wants_more_updates_than_the_process_score_trained_on() -> None:
    difference = spread("prm")["pass@1"][:, LARGEST] - spread("prm")["native"][:, LARGEST]
    assert difference.mean() > 0


def test_a_cheaper_reward_model_moves_the_optimum_up_for_prm_only() -> None:
    dear, cheap = (spread("prm", m)["native"] for m in (None, "Qwen2.5-PRM-0.5B"))
    assert np.mean(cheap > dear) > 0.9
    assert np.median(cheap - dear) > 0.05
    for reward in RULES:
        assert ladder().recipe(reward).reward_model is None


def test_dearer_scoring_means_fewer_updates_along_the_whole_range() -> None:
    names = ["Qwen2.5-PRM-0.5B", "Qwen2.5-PRM-1.5B", "Qwen2.5-PRM-3B", None]
    medians = [np.median(spread("prm", name)["native"][:, LARGEST]) for name in names]
    assert np.all(np.diff(medians) < 0)


def test_the_largest_model_is_best_on_the_paper_ladder_at_its_budget() -> None:
    sizes = ladder()
    table = Settings.sweep(sizes.models, sizes.recipe("sparse", group_size=PAPER_GROUP), ratios=[1.0],
                           budget=PAPER_BUDGET)  # fmt: skip
    values = simulate(Worlds.central(), table, targets=("native",))["native"][0]
    assert np.all(np.diff(values) > 0)


def test_best_rho_finds_a_known_maximum_and_stays_on_a_kink() -> None:
    rho = RATIOS / (RATIOS + 0.5)
    smooth = -((np.log(RATIOS) - np.log(0.6)) ** 2)
    assert best_rho(smooth, RATIOS, rho) == pytest.approx(0.6 / 1.1, abs=2e-3)
    kinked = -np.where(RATIOS < 1, -0.3 * np.log(RATIOS), 2 * np.log(RATIOS))
    assert best_rho(kinked, RATIOS, rho) == pytest.approx(1 / 1.5)
