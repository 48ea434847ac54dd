"""Hypothesis strategies for architectures, adapters and lengths; no torch here."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from race.flops import Architecture, LoraSpec

DENSE = ("qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text", "phi3")
SPARSE = ("mixtral", "qwen2_moe", "qwen3_moe")


@st.composite
def architectures(draw: Any) -> Architecture:
    family = draw(st.sampled_from(DENSE + SPARSE))
    kv_heads = draw(st.integers(1, 8))
    heads = kv_heads * draw(st.integers(1, 8))
    head_dim = 2 * draw(st.integers(1, 64))
    config: dict[str, Any] = {
        "model_type": family,
        "num_hidden_layers": draw(st.integers(1, 6)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": heads * head_dim,
        "intermediate_size": draw(st.integers(1, 3000)),
        "vocab_size": draw(st.integers(1, 200_000)),
        "tie_word_embeddings": draw(st.booleans()),
        "sliding_window": draw(st.integers(1, 200)),
        "use_sliding_window": draw(st.booleans()),
        "max_window_layers": draw(st.integers(0, 6)),
        "head_dim": draw(st.sampled_from([head_dim, 64])),
    }
    if family in SPARSE:
        experts = draw(st.integers(1, 16))
        config |= {
            "num_local_experts": experts,
            "num_experts_per_tok": draw(st.integers(1, experts)),
            "moe_intermediate_size": draw(st.integers(1, 500)),
            "shared_expert_intermediate_size": draw(st.integers(1, 500)),
        }
    return Architecture.from_config(config)


@st.composite
def adapters(draw: Any, arch: Architecture) -> LoraSpec:
    names = ["qkv_proj", "o_proj"] if arch.fused else ["q_proj", "k_proj", "v_proj", "o_proj"]
    rank = draw(st.integers(1, 64))
    if arch.moe is None and draw(st.booleans()):
        return LoraSpec(rank)
    return LoraSpec(rank, tuple(draw(st.sets(st.sampled_from([*names, "lm_head"]), min_size=1))))


@st.composite
def cases(draw: Any) -> tuple[Architecture, LoraSpec | None]:
    arch = draw(architectures())
    return arch, draw(st.one_of(st.none(), adapters(arch)))


lengths = st.lists(st.integers(1, 600), min_size=1, max_size=5)
attentions = st.sampled_from(["causal", "full"])
