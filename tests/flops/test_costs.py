"""The closed form is the same arithmetic: exact on integers, float64 on arrays."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import attentions, cases

from race.errors import InvalidInput
from race.flops import Architecture, LoraSpec, cost_functions, forward_flops, generate_flops, update_flops

Case = tuple[Architecture, LoraSpec | None]
settings.register_profile("flops", deadline=None, max_examples=60)
settings.load_profile("flops")


@given(cases(), st.integers(1, 500), st.integers(0, 500), st.integers(1, 500), attentions, st.booleans())
def test_integers_give_the_exact_counts(
    case: Case, n: int, k: int, completion: int, attention: str, checkpointing: bool
) -> None:
    arch, lora = case
    k = min(k, n)
    costs = cost_functions(arch, lora=lora, attention=attention, gradient_checkpointing=checkpointing)
    exact = {
        costs.forward(n, k): forward_flops(arch, [n], logits=k, lora=lora, attention=attention),
        costs.forward_base(n, k): forward_flops(arch, [n], logits=k, attention=attention),
        costs.update(n, k): update_flops(
            arch, [n], logits=k, lora=lora, attention=attention, gradient_checkpointing=checkpointing
        ),
        costs.prefill(n) + costs.decode(n, completion): generate_flops(
            arch, [n], [completion], lora=lora, attention=attention
        ),
    }
    for ours, count in exact.items():
        assert type(ours) is int
        assert ours == count.total


@given(cases(), st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.floats(0, 1), attentions)
def test_arrays_broadcast_to_the_same_numbers(
    case: Case, ns: list[int], share: float, attention: str
) -> None:
    arch, lora = case
    costs = cost_functions(arch, lora=lora, attention=attention)
    ks = [int(n * share) for n in ns]
    n, k = np.array(ns), np.array(ks)
    for function in (costs.forward, costs.forward_base, costs.update):
        np.testing.assert_allclose(
            function(n, k), [function(a, b) for a, b in zip(ns, ks, strict=True)], rtol=1e-14
        )
    np.testing.assert_allclose(costs.prefill(n), [costs.prefill(a) for a in ns], rtol=1e-14)
    grid = costs.decode(n[:, None], np.array([[1, 7, 300]]))
    assert grid.shape == (len(ns), 3)
    assert grid.dtype == np.float64
    exact = [[costs.decode(a, c) for c in (1, 7, 300)] for a in ns]
    np.testing.assert_allclose(grid, exact, rtol=1e-10)  # a difference of two sums


def test_mean_lengths() -> None:
    """A float is a mean length: linear terms exact, attention a lower bound for ragged sequences."""
    arch = Architecture.from_config("qwen2.5-1.5b")
    costs = cost_functions(arch, lora=LoraSpec(16))
    assert isinstance(costs.update(200.5, 100.25), float)
    assert costs.update(1000.0, 800.0) == costs.update(1000, 800)
    ragged = (costs.update(500, 300) + costs.update(1500, 1300)) / 2
    at_mean = costs.update(1000.0, 800.0)
    assert at_mean < ragged < 1.05 * at_mean


def test_costs_travel_to_other_processes() -> None:
    costs = cost_functions(Architecture.from_config("qwen3-0.6b"), lora=LoraSpec(8))
    copy = pickle.loads(pickle.dumps(costs))  # noqa: S301 (our own bytes)
    assert copy.update(100, 50) == costs.update(100, 50)


@pytest.mark.parametrize(
    "length", [0, -1, float("nan"), float("inf"), True, "5", None, [1, float("nan")], [0]]
)
def test_bad_lengths(length: object) -> None:
    costs = cost_functions(Architecture.from_config("nano-s"), lora=LoraSpec(8))
    with pytest.raises(InvalidInput, match=r"^length: "):
        costs.update(length)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"^length: "):
        costs.prefill(length)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"^completion: "):
        costs.decode(5, length)  # type: ignore[call-overload]


@pytest.mark.parametrize("logits", [-1, 6, [1, 6], float("nan")])
def test_bad_logits(logits: object) -> None:
    costs = cost_functions(Architecture.from_config("nano-s"), lora=LoraSpec(8))
    with pytest.raises(InvalidInput, match=r"^logits: "):
        costs.forward(5, logits)  # type: ignore[call-overload]
