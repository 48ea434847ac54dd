"""Closed-form costs for planners: lengths in, FLOPs out, scalars or arrays.

With Python integers the results are exact integers, equal to those of ``forward_flops``,
``update_flops`` and ``generate_flops``. With numpy arrays they broadcast in float64. With floats (mean
lengths) the same polynomial is evaluated: exact for everything linear, while attention, which is
quadratic, costs less at the mean length than ragged sequences do on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from race.errors import InvalidInput
from race.flops import work
from race.flops.architecture import Architecture, check_architecture
from race.flops.checks import Attention, Rotary, check_amount, check_attention, check_rotary
from race.flops.lora import LoraSpec
from race.flops.matmuls import forward_rates, training_rates
from race.flops.training import Training
from race.flops.work import UnitRates, by_unit


@dataclass(frozen=True)
class SequenceCost:
    """FLOPs of a pass over whole sequences. Call it with ``(length, logits=0)``, ``logits <= length``."""

    rates: UnitRates
    windows: tuple[int | None, ...]
    attention: Attention

    @overload
    def __call__(self, length: int, logits: int = 0) -> int: ...
    @overload
    def __call__(self, length: float, logits: float = 0) -> float: ...
    @overload
    def __call__(self, length: ArrayLike, logits: ArrayLike = 0) -> NDArray[np.float64]: ...
    def __call__(self, length: Any, logits: Any = 0) -> Any:
        """FLOPs of one sequence of ``length`` tokens with the head at its last ``logits`` positions."""
        n, k = check_amount("length", length, 1), check_amount("logits", logits, 0)
        if not np.all(k <= n):
            raise InvalidInput(f"logits: {logits!r} is more than length = {length!r}")
        return work.total(self.rates, work.sequence(n, k, self.attention, self.windows))


@dataclass(frozen=True)
class PrefillCost:
    """FLOPs of reading the prompt into the cache, head at the last position. Call with ``(length)``."""

    sequence: SequenceCost

    @overload
    def __call__(self, length: int) -> int: ...
    @overload
    def __call__(self, length: float) -> float: ...
    @overload
    def __call__(self, length: ArrayLike) -> NDArray[np.float64]: ...
    def __call__(self, length: Any) -> Any:
        """FLOPs of prefilling ``length`` prompt tokens; the first completion token is sampled from it."""
        return self.sequence(length, 1)


@dataclass(frozen=True)
class DecodeCost:
    """FLOPs of sampling the rest of a completion from the cache. Call with ``(prompt, completion)``."""

    rates: UnitRates
    windows: tuple[int | None, ...]

    @overload
    def __call__(self, prompt: int, completion: int) -> int: ...
    @overload
    def __call__(self, prompt: float, completion: float) -> float: ...
    @overload
    def __call__(self, prompt: ArrayLike, completion: ArrayLike) -> NDArray[np.float64]: ...
    def __call__(self, prompt: Any, completion: Any) -> Any:
        """FLOPs of the ``completion - 1`` one-token forwards that follow the prefill."""
        p, c = check_amount("prompt", prompt, 1), check_amount("completion", completion, 1)
        return work.total(self.rates, work.decode(p, c, self.windows))


@dataclass(frozen=True)
class CostFunctions:
    """Costs of one model under one way of training it, as functions of lengths.

    Attributes
    ----------
    forward
        ``(length, logits=0)``: one forward, adapter on (old log-probs, scoring).
    forward_base
        ``(length, logits=0)``: the same with the adapter off (reference log-probs).
    update
        ``(length, logits=0)``: forward, backward and recomputation.
    prefill
        ``(length)``: read a prompt, logits at its last position.
    decode
        ``(prompt, completion)``: the cached decoding that follows.
    """

    architecture: Architecture
    attention: Attention
    forward: SequenceCost
    forward_base: SequenceCost
    update: SequenceCost
    prefill: PrefillCost
    decode: DecodeCost


def cost_functions(
    arch: Architecture,
    *,
    lora: LoraSpec | None,
    attention: str = "causal",
    gradient_checkpointing: bool = False,
    use_reentrant: bool = False,
    input_require_grads: bool | None = None,
    rotary: Rotary = "elementwise",
) -> CostFunctions:
    """Build the cost functions of ``arch``; ``lora=None`` is full fine-tuning. See ``update_flops``."""
    convention = check_attention(attention)
    training = Training.of(lora, gradient_checkpointing, use_reentrant, input_require_grads)
    windows = check_architecture(arch).distinct_windows
    check_rotary(rotary)
    forward = SequenceCost(by_unit(forward_rates(arch, lora, rotary)), windows, convention)
    base = SequenceCost(by_unit(forward_rates(arch, None, rotary)), windows, convention)
    update = SequenceCost(by_unit(training_rates(arch, training, rotary)), windows, convention)
    return CostFunctions(
        architecture=arch,
        attention=convention,
        forward=forward,
        forward_base=base,
        update=update,
        prefill=PrefillCost(forward),
        decode=DecodeCost(forward.rates, windows),
    )
