"""Parameter counts of an ``Architecture``, biases and norms included."""

from __future__ import annotations

from race.flops.architecture import Architecture, ParameterCount
from race.flops.lora import LoraSpec, check_lora
from race.flops.matmuls import adapter_names


def linear_shapes(arch: Architecture, sparse: bool) -> dict[str, tuple[int, int, bool]]:
    """Linear layers of one decoder layer: name -> (inputs, outputs, bias). Routed experts are not here."""
    hidden, q_width, kv_width = arch.hidden, arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    shapes: dict[str, tuple[int, int, bool]] = {}
    if arch.fused:
        shapes["qkv_proj"] = (hidden, q_width + 2 * kv_width, arch.qkv_bias)
    else:
        shapes["q_proj"] = (hidden, q_width, arch.qkv_bias)
        shapes["k_proj"] = (hidden, kv_width, arch.qkv_bias)
        shapes["v_proj"] = (hidden, kv_width, arch.qkv_bias)
    shapes["o_proj"] = (q_width, hidden, arch.o_bias)
    if not sparse:
        if arch.fused:
            shapes["gate_up_proj"] = (hidden, 2 * arch.intermediate, arch.mlp_bias)
        else:
            shapes["gate_proj"] = (hidden, arch.intermediate, arch.mlp_bias)
            shapes["up_proj"] = (hidden, arch.intermediate, arch.mlp_bias)
        shapes["down_proj"] = (arch.intermediate, hidden, arch.mlp_bias)
    return shapes


def _head_shapes(arch: Architecture) -> list[tuple[str, int, int, bool]]:
    if arch.head == "lm":
        return [("lm_head", arch.hidden, arch.vocab, False)]
    if arch.head == "mlp-score":
        return [("score", arch.hidden, arch.hidden, True), ("score", arch.hidden, arch.num_labels, True)]
    if arch.head == "none":
        return []
    return [("score", arch.hidden, arch.num_labels, arch.head == "token-classification")]


def count_parameters(arch: Architecture, lora: LoraSpec | None) -> ParameterCount:
    """See ``Architecture.count_params``."""
    embedding = arch.vocab * arch.hidden
    head = sum(n_in * n_out + bias * n_out for _, n_in, n_out, bias in _head_shapes(arch))
    if arch.head == "lm" and arch.tied:
        head = 0
    norms = arch.norms_per_layer * arch.hidden + (2 * arch.head_dim if arch.qk_norm else 0)
    body = arch.hidden  # the final norm
    idle = 0
    for sparse in arch.sparse:
        shapes = linear_shapes(arch, sparse).values()
        body += norms + sum(n_in * n_out + bias * n_out for n_in, n_out, bias in shapes)
        if sparse and arch.moe is not None:
            moe = arch.moe
            expert = 3 * arch.hidden * moe.intermediate
            body += moe.experts * (expert + arch.hidden)
            idle += (moe.experts - moe.top_k) * expert
            if moe.shared_intermediate:
                body += 3 * arch.hidden * moe.shared_intermediate + arch.hidden
    total = embedding + body + head
    adapter = check_lora(lora)
    trainable = total if adapter is None else _adapter_parameters(arch, adapter)
    return ParameterCount(
        total=total, non_embedding=total - embedding, active=total - idle, trainable=trainable
    )


def _adapter_parameters(arch: Architecture, lora: LoraSpec) -> int:
    names = adapter_names(arch, lora)
    widths = sum(n_in + n_out for name, n_in, n_out, _ in _head_shapes(arch) if name in names)
    for index, sparse in enumerate(arch.sparse):
        if lora.on_layer(index):
            shapes = linear_shapes(arch, sparse).items()
            widths += sum(n_in + n_out for name, (n_in, n_out, _) in shapes if name in names)
    return lora.rank * widths
