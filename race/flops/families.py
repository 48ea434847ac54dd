"""What each supported ``model_type`` does that its config does not spell out.

Facts about the modelling code of Hugging Face transformers (``models/<family>/modeling_*.py`` and
``configuration_*.py``), held as data. A family that is not here is refused: its layers may hold matmuls
that we would not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: How a config's ``sliding_window`` is laid out over layers when ``layer_types`` is not given.
#: ``all``: every layer. ``from_max``: layers >= max_window_layers, if use_sliding_window. ``even_below_max``:
#: every other layer below max_window_layers, if use_sliding_window. ``if_used``: every layer, if
#: use_sliding_window. ``pattern``: all but every sliding_window_pattern-th layer. ``never``: ignored.
WindowLayout = Literal["all", "from_max", "even_below_max", "if_used", "pattern", "never"]


@dataclass(frozen=True)
class Family:
    """One ``model_type``.

    ``defaults`` are the values transformers takes when a config leaves the field out. Only fields that
    published configs do leave out are listed; any other missing field is an error.
    """

    windows: WindowLayout
    qkv_bias: bool | str = False  # a string names the config field that decides
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    norms_per_layer: int = 2
    fused: bool = False
    rotary_per_layer: bool = False  # cos/sin tables are rebuilt for every layer
    moe: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


FAMILIES: Mapping[str, Family] = {
    "llama": Family("never", "attention_bias", "attention_bias", "mlp_bias"),
    "mistral": Family("all", defaults={"sliding_window": 4096, "num_key_value_heads": 8}),
    "qwen2": Family("from_max", qkv_bias=True),
    "qwen3": Family("from_max", "attention_bias", "attention_bias", qk_norm=True, defaults={"head_dim": 128}),
    "gemma2": Family(
        "pattern",
        "attention_bias",
        "attention_bias",
        norms_per_layer=4,
        defaults={
            "head_dim": 256,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "sliding_window_pattern": 2,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3_text": Family(
        "pattern",
        "attention_bias",
        "attention_bias",
        qk_norm=True,
        norms_per_layer=4,
        rotary_per_layer=True,
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262208,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
        },
    ),
    "phi3": Family("all", fused=True),
    "mixtral": Family("all", moe=True, defaults={"num_key_value_heads": 8}),
    "qwen2_moe": Family("even_below_max", "qkv_bias", moe=True, defaults={"qkv_bias": True}),
    "qwen3_moe": Family("if_used", "attention_bias", "attention_bias", qk_norm=True, moe=True),
}
