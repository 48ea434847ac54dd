"""Parameter counts of an ``Architecture``, biases and norms included."""

from __future__ import annotations

from collections.abc import Iterable

from race.flops.architecture import Architecture, ParameterCount
from race.flops.lora import LoraSpec, check_lora
from race.flops.shapes import Linear, attention_linears, expert_linears, head_linears, head_name, mlp_linears
from race.flops.targets import adapter_names


def count_parameters(arch: Architecture, lora: LoraSpec | None) -> ParameterCount:
    """See ``Architecture.count_params``."""
    embedding = arch.vocab * arch.hidden
    head = 0 if arch.head == "lm" and arch.tied else _size(head_linears(arch))
    norms = arch.norms_per_layer * arch.hidden + (2 * arch.head_dim if arch.qk_norm else 0)
    dense = _size(mlp_linears(arch).values())
    sparse, idle = _experts(arch)
    layers = sum(
        norms + _size(attention_linears(arch).values()) + (sparse if s else dense) for s in arch.sparse
    )
    total = embedding + layers + arch.hidden + head  # arch.hidden: the final norm
    adapter = check_lora(lora)
    return ParameterCount(
        total=total,
        non_embedding=total - embedding,
        active=total - idle * sum(arch.sparse),
        trainable=total if adapter is None else _adapter(arch, adapter),
    )


def _size(linears: Iterable[Linear]) -> int:
    return sum(linear.n_in * linear.n_out + linear.bias * linear.n_out for linear in linears)


def _experts(arch: Architecture) -> tuple[int, int]:
    """Parameters of one sparse MLP, and how many of them a token does not meet."""
    if arch.moe is None:
        return 0, 0
    table = expert_linears(arch)
    expert = _size((table.pop("expert.gate_up"), table.pop("expert.down")))
    return _size(table.values()) + arch.moe.experts * expert, (arch.moe.experts - arch.moe.top_k) * expert


def _adapter(arch: Architecture, lora: LoraSpec) -> int:
    """``A: rank x in`` and ``B: out x rank`` for every adapted linear layer."""
    names = adapter_names(arch, lora)
    widths = sum(linear.n_in + linear.n_out for linear in head_linears(arch) if head_name(arch) in names)
    layers = sum(lora.on_layer(index) for index in range(arch.layers))
    table = {**attention_linears(arch), **mlp_linears(arch)}
    widths += layers * sum(linear.n_in + linear.n_out for name, linear in table.items() if name in names)
    return lora.rank * widths
