"""Parameter counts against real modules, model cards and every built-in name."""

from __future__ import annotations

import pytest
import torch
from flop_oracle import FAMILIES, Draw, build, draw_config, draw_lora
from transformers import AutoConfig, AutoModelForCausalLM

from race.flops import Architecture, builtin_names
from race.flops.models import builtin_config


@pytest.mark.parametrize("draw", [Draw(family, seed) for family in FAMILIES for seed in range(4)], ids=str)
def test_against_real_modules(draw: Draw) -> None:
    config = draw_config(draw.family, draw.rng)
    arch = Architecture.from_config(config)
    model = build(config)
    count = arch.count_params()
    assert arch.params() == count.total == count.trainable == sum(p.numel() for p in model.parameters())
    assert count.non_embedding == model.num_parameters(exclude_embeddings=True)
    assert count.active <= count.total
    lora = draw_lora(arch, draw.rng)
    adapted = build(config, lora)
    trainable = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert arch.count_params(lora).trainable == trainable


@pytest.mark.parametrize("name", builtin_names())
def test_built_in_models_build_at_full_size(name: str) -> None:
    """Every entry is a config transformers accepts, and the module it describes has our parameter count."""
    fields = builtin_config(name)
    assert fields is not None
    arch = Architecture.from_config(name)
    config = AutoConfig.for_model(
        **{k: v for k, v in fields.items() if k not in ("architectures", "num_labels")}
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    if arch.head == "lm":
        assert arch.params() == sum(p.numel() for p in model.parameters())
    else:
        width, labels = arch.hidden, arch.num_labels
        head = width * labels + labels + (width * width + width if arch.head == "mlp-score" else 0)
        assert arch.params() == sum(p.numel() for p in model.model.parameters()) + head


# (billions of parameters, billions without embedding and head), as the model cards on the hub state them
MODEL_CARDS = {
    "qwen2.5-0.5b": (0.49, 0.36),
    "qwen2.5-1.5b": (1.54, 1.31),
    "qwen2.5-3b": (3.09, 2.77),
    "qwen2.5-7b": (7.61, 6.53),
    "qwen2.5-14b": (14.7, 13.1),
    "qwen2.5-32b": (32.5, 31.0),
    "qwen2.5-72b": (72.7, 70.0),
    "qwen3-0.6b": (0.6, 0.44),
    "qwen3-1.7b": (1.7, 1.4),
    "qwen3-4b": (4.0, 3.6),
    "qwen3-8b": (8.2, 6.95),
    "qwen3-14b": (14.8, 13.2),
    "qwen3-32b": (32.8, 31.2),
    "qwen3-30b-a3b": (30.5, 29.9),
}


@pytest.mark.parametrize("name", MODEL_CARDS)
def test_model_cards(name: str) -> None:
    arch = Architecture.from_config(name)
    total, body = MODEL_CARDS[name]
    count = arch.count_params()
    head = 0 if arch.tied else arch.vocab * arch.hidden
    assert count.total / 1e9 == pytest.approx(total, rel=0.013)
    assert (count.non_embedding - head) / 1e9 == pytest.approx(body, rel=0.013)


def test_active_parameters() -> None:
    assert Architecture.from_config("qwen3-30b-a3b").count_params().active / 1e9 == pytest.approx(
        3.3, rel=0.02
    )
