"""The linear layers of an architecture: one table that FLOPs and parameters are both counted from."""

from __future__ import annotations

from typing import NamedTuple

from race.flops.architecture import Architecture


class Linear(NamedTuple):
    """``y = x W (+ b)`` with ``W``: ``n_in x n_out``."""

    n_in: int
    n_out: int
    bias: bool = False


def attention_linears(arch: Architecture) -> dict[str, Linear]:
    """The projections of one attention block by module name, in execution order."""
    hidden, q_width, kv_width = arch.hidden, arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    output = Linear(q_width, hidden, arch.o_bias)
    if arch.fused:
        return {"qkv_proj": Linear(hidden, q_width + 2 * kv_width, arch.qkv_bias), "o_proj": output}
    return {
        "q_proj": Linear(hidden, q_width, arch.qkv_bias),
        "k_proj": Linear(hidden, kv_width, arch.qkv_bias),
        "v_proj": Linear(hidden, kv_width, arch.qkv_bias),
        "o_proj": output,
    }


def mlp_linears(arch: Architecture) -> dict[str, Linear]:
    """The projections of one dense gated MLP by module name, in execution order."""
    hidden, width, bias = arch.hidden, arch.intermediate, arch.mlp_bias
    down = Linear(width, hidden, bias)
    if arch.fused:
        return {"gate_up_proj": Linear(hidden, 2 * width, bias), "down_proj": down}
    return {
        "gate_proj": Linear(hidden, width, bias),
        "up_proj": Linear(hidden, width, bias),
        "down_proj": down,
    }


def expert_linears(arch: Architecture) -> dict[str, Linear]:
    """The weights of one sparse MLP that a token meets: router, one routed expert, the shared expert.

    The routed expert's entries are met ``top_k`` times per token and held ``experts`` times.
    """
    moe = arch.moe
    if moe is None:
        return {}
    hidden, shared = arch.hidden, moe.shared_intermediate
    table = {
        "router": Linear(hidden, moe.experts),
        "expert.gate_up": Linear(hidden, 2 * moe.intermediate),
        "expert.down": Linear(moe.intermediate, hidden),
    }
    if shared:
        table |= {
            "shared_expert.gate_up": Linear(hidden, 2 * shared),
            "shared_expert.down": Linear(shared, hidden),
            "shared_expert.gate": Linear(hidden, 1),
        }
    return table


def head_linears(arch: Architecture) -> tuple[Linear, ...]:
    """What sits on the last hidden state, in execution order."""
    if arch.head == "none":
        return ()
    if arch.head == "lm":
        return (Linear(arch.hidden, arch.vocab),)
    labels = arch.num_labels
    if arch.head == "mlp-score":
        return Linear(arch.hidden, arch.hidden, True), Linear(arch.hidden, labels, True)
    return (Linear(arch.hidden, labels, arch.head == "token-classification"),)


def head_name(arch: Architecture) -> str:
    """Module name of the head, as an adapter would target it."""
    return "lm_head" if arch.head == "lm" else "score"
