"""Passes over the same samples: whole, in micro-batches, side by side; and what an update promises."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from grpo_toys import EOS, PAD, factory, toy_options, toy_recipe
from torch.utils.flop_counter import FlopCounterMode

from race.flops import cost_functions
from real_runs.grpo.lanes import Lanes
from real_runs.grpo.optimizer import load_moments, make_optimizer, moments
from real_runs.grpo.pricing import Tally
from real_runs.grpo.update import Learner, run_passes
from real_runs.policy import build_policy
from real_runs.rollout import Sample, Sampling, build_backend

SAMPLING = Sampling(max_tokens=8, eos_id=EOS, banned=(PAD,))
PROMPTS = [(2, 3, 4), (5,), (6, 7, 8, 9, 10)]


def learner(lanes: int = 1, **options: Any) -> Learner:
    recipe = toy_recipe()
    settings = toy_options(**options)
    policy = build_policy(factory(), recipe, settings, seed=0)
    costs = cost_functions(policy.architecture, lora=policy.lora, attention="full")
    return Learner(policy, make_optimizer(policy, recipe, settings), settings, SAMPLING, costs, False, Lanes(lanes))


def samples_of(built: Learner) -> list[Sample]:
    backend = build_backend(built.policy, built.options, max_tokens=8, folder="")
    rollouts = backend.generate(PROMPTS, group_size=6, sampling=SAMPLING, seed=0)
    return [s for group in rollouts.groups for s in group]


def weights_after(built: Learner, passes: list[Any], *, steps: int = 2) -> dict[str, torch.Tensor]:
    samples = samples_of(built)
    advantages = np.random.default_rng(0).normal(size=len(samples))
    for _ in range(steps):
        tally = Tally(built.costs)
        indices = sorted({int(i) for p in passes[1:] for i in p})
        old = built.logprobs(samples, indices, tally, adapter=True) if indices else {}
        report = run_passes(built, samples, advantages, passes, old=old, reference={}, compare_first=False,
                            tally=tally, rate=1e-2)
        assert report.stable
    return built.policy.state()


def difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


PASSES = [np.arange(18), np.array([1, 4, 7, 16])]


@pytest.mark.parametrize("changes", [{"micro_batch_tokens": 30}, {"lanes": 2}, {"lanes": 3, "micro_batch_tokens": 60},
                                     {"forward": "transformers", "micro_batch_tokens": 30}])
def test_how_a_pass_is_cut_changes_only_rounding(changes: dict[str, Any]) -> None:
    whole = weights_after(learner(), PASSES)
    assert difference(whole, build_policy(factory(), toy_recipe(), toy_options(), seed=0).state()) > 1e-3
    assert difference(whole, weights_after(learner(**changes), PASSES)) < 1e-4


def test_lanes_give_the_same_bits_every_time() -> None:
    first, again = (weights_after(learner(lanes=2), PASSES) for _ in range(2))
    assert difference(first, again) == 0.0


def test_lanes_keep_the_order_and_use_other_threads() -> None:
    lanes = Lanes(2)
    threads = set()

    def work(item: int) -> int:
        threads.add(threading.get_ident())
        return item * item

    assert lanes.map(work, list(range(20))) == [i * i for i in range(20)]
    assert threading.get_ident() not in threads
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        lanes.map(lambda i: 1 // i, [1, 0])
    assert torch.get_num_threads() == before
    lanes.close()


def test_under_a_counter_everything_stays_in_one_thread() -> None:
    built = learner(lanes=2)
    with FlopCounterMode(display=False) as counter:
        assert built.lanes.count == 1
        assert built.lanes.map(lambda _: threading.get_ident(), [0, 1]) == [threading.get_ident()] * 2
        weights_after(built, PASSES, steps=1)
    assert built.lanes.count == 2
    assert counter.get_total_flops() > 0


def test_a_pass_that_is_not_finite_takes_no_step() -> None:
    built = learner()
    samples = samples_of(built)
    before = built.policy.state()
    advantages = np.ones(len(samples))
    advantages[3] = np.nan
    report = run_passes(built, samples, advantages, PASSES, old={}, reference={}, compare_first=False,
                        tally=Tally(built.costs), rate=1e-2)
    assert not report.stable
    assert difference(before, built.policy.state()) == 0.0


def test_zero_advantages_move_nothing() -> None:
    built = learner()
    samples = samples_of(built)
    before = built.policy.state()
    run_passes(built, samples, np.zeros(len(samples)), PASSES[:1], old={}, reference={}, compare_first=False,
               tally=Tally(built.costs), rate=1e-2)
    assert difference(before, built.policy.state()) == 0.0


def test_moments_survive_a_round_trip() -> None:
    a, b = learner(), learner()
    weights_after(a, PASSES)
    b.policy.load_state(a.policy.state())
    load_moments(b.optimizer, b.policy, moments(a.optimizer, a.policy))
    assert difference(weights_after(a, PASSES), weights_after(b, PASSES)) == 0.0


def test_importance_cap_bounds_what_an_odd_engine_can_do() -> None:
    """Samples whose rollout log-probs are far off weigh at most the cap."""
    built = learner(importance_cap=1.0)
    plain = learner()
    samples = samples_of(built)
    off = [Sample(s.prompt_ids, s.token_ids, s.logprobs - 5, s.finished) for s in samples]
    advantages = np.random.default_rng(1).normal(size=len(samples))
    for target, given in ((built, off), (plain, samples)):
        run_passes(target, given, advantages, PASSES[:1], old={}, reference={}, compare_first=False,
                   tally=Tally(target.costs), rate=1e-2)
    # exp(+5) capped at 1 is no correction at all.
    assert difference(built.policy.state(), plain.policy.state()) < 1e-6
