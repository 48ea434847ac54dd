"""Whatever lengths a policy may sample, a run sized step by step never overspends and hardly underspends."""

from __future__ import annotations

import numpy as np
import pytest
from grpo_toys import tiny_model, toy_recipe
from hypothesis import given, settings
from hypothesis import strategies as st

from race.allocation import unit_costs
from race.flops import Architecture
from real_runs.grpo.pricing import Prices
from real_runs.grpo.selection import affordable, passes, topped_up
from real_runs.grpo.sizing import Sizer, StepSize

ARCH = Architecture.from_config(tiny_model().config)


def simulate(sizer: Sizer, prices: Prices, price: int, lengths: np.random.Generator) -> tuple[int, list[StepSize]]:
    """Spend a budget as a run does, with random prompts and completions; trains as much as fits."""
    spent, sizes, tokens, samples = 0, [], 0, 0
    while len(sizes) < 10_000:
        prompts = lengths.integers(1, 9, sizer.full.prompts).tolist()
        mean = tokens / samples if samples else 5.0
        size = sizer.next_size(prompts, spent, mean)
        if size is None:
            break
        drawn = [(p, int(c)) for p in prompts[: size.prompts]
                 for c in lengths.integers(1, sizer.max_tokens + 1, size.group_size)]
        for i, p in enumerate(prompts[: size.prompts]):
            group = drawn[i * size.group_size : (i + 1) * size.group_size]
            spent += prices.search(p, [c for _, c in group]) + price * sum(p + c for p, c in group)
        assert spent <= sizer.budget
        def cost(sample: int, times: int, drawn: list[tuple[int, int]] = drawn) -> int:
            return prices.trained(*drawn[sample], times=times)

        rewards = lengths.random((size.prompts, size.group_size))
        planned = passes(rewards, sizer.trained(size), subset="random", seed=len(sizes))
        chosen, paid = affordable(planned, cost, sizer.budget - spent)
        assert chosen, "the hard rule keeps room for one update"
        least = sizer.must_spend(drawn, sizer.budget - spent - paid)
        chosen = topped_up(chosen, len(drawn), cost, least=least, left=sizer.budget - spent - paid)
        times = dict.fromkeys(range(len(drawn)), 0)
        for indices in chosen:
            assert len(set(indices.tolist())) == len(indices)
            for i in indices.tolist():
                spent += cost(i, times[i])
                times[i] += 1
        assert spent <= sizer.budget
        tokens, samples = tokens + sum(c for _, c in drawn), samples + len(drawn)
        sizes.append(size)
    return spent, sizes


@settings(deadline=None, max_examples=60)
@given(
    a=st.floats(0.07, 8), price=st.sampled_from([0, 5_000, 200_000]), kl=st.booleans(), caching=st.booleans(),
    recompute=st.booleans(), steps=st.floats(2, 12), seed=st.integers(0, 1000),
)
def test_never_above_and_at_least_97_percent(
    a: float, price: int, kl: bool, caching: bool, recompute: bool, steps: float, seed: int
) -> None:
    recipe = toy_recipe(update_ratio=a, kl=kl, prefix_caching=caching, recompute_old_logprobs=recompute,
                        prompts_per_step=6, group_size=5)
    prices = Prices.of(ARCH, recipe)
    step = unit_costs(ARCH, recipe).step(6, max(1, round(a * 30))).total + 30 * price * 9
    sizer = Sizer(prices, lambda p, c: price * (p + c), a, StepSize(6, 5), 10, int(steps * step))
    spent, sizes = simulate(sizer, prices, price, np.random.default_rng(seed))
    assert spent >= 0.97 * sizer.budget
    assert sizes[0].prompts == 6 or steps < 3


def test_prices_match_the_planner_at_equal_lengths() -> None:
    for recipe in (toy_recipe(), toy_recipe(kl=True, prefix_caching=False), toy_recipe(recompute_old_logprobs=True)):
        prices, units = Prices.of(ARCH, recipe), unit_costs(ARCH, recipe)
        for trained in (3, 16, 20, 32, 40):
            full, rest = divmod(trained, 16)
            learning = sum(16 * prices.trained(4, 5, times=t) for t in range(full))
            learning += rest * prices.trained(4, 5, times=full)
            planned = units.step(4, trained)
            assert learning == planned.learning
            assert 4 * prices.search(4, [5] * 4) == planned.search


def test_nothing_fits_means_the_run_is_over() -> None:
    recipe = toy_recipe()
    sizer = Sizer(Prices.of(ARCH, recipe), lambda p, c: 0, 1.0, StepSize(4, 4), 6, 10**6)
    assert sizer.next_size([4, 4, 4, 4], 10**6, 5.0) is None
    assert sizer.next_size([4, 4, 4, 4], 10**6 - 10, 5.0) is None
    with pytest.raises(ValueError, match="max"):
        sizer.next_size([], 0, 5.0)
