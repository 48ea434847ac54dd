"""Adapters read from PEFT's own configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flop_oracle import Draw, build, draw_config
from peft import LoraConfig, get_peft_model

from race.errors import InvalidInput
from race.flops import Architecture, LoraSpec


def test_plain_adapters() -> None:
    assert LoraSpec.from_peft(LoraConfig(r=4, target_modules="all-linear")) == LoraSpec(4)
    some = LoraConfig(
        r=8, target_modules=["v_proj", "self_attn.q_proj"], layers_to_transform=[2, 0], lora_dropout=0.1
    )
    assert LoraSpec.from_peft(some) == LoraSpec(8, ("q_proj", "v_proj"), (0, 2))
    paths = [f"model.layers.{i}.mlp.{name}" for i in (1, 3) for name in ("up_proj", "down_proj")]
    assert LoraSpec.from_peft(LoraConfig(target_modules=paths)) == LoraSpec(
        8, ("up_proj", "down_proj"), (1, 3)
    )
    one = LoraConfig(target_modules=["q_proj"], layers_to_transform=1, use_rslora=True, lora_alpha=64)
    assert LoraSpec.from_peft(one) == LoraSpec(8, ("q_proj",), (1,))


@pytest.mark.parametrize("family", ["qwen2", "phi3"])
def test_the_saved_config_counts_like_the_model(family: str, tmp_path: Any) -> None:
    draw = Draw(family, 7)
    config = draw_config(family, draw.rng)
    model = get_peft_model(build(config), LoraConfig(r=3, target_modules="all-linear"))
    model.save_pretrained(tmp_path)
    lora = LoraSpec.from_peft(json.loads((tmp_path / "adapter_config.json").read_text()))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert Architecture.from_config(config).count_params(lora).trainable == trainable


@pytest.mark.parametrize(
    "change",
    [
        {"use_dora": True},
        {"rank_pattern": {"q_proj": 4}},
        {"modules_to_save": ["lm_head"]},
        {"target_parameters": ["gate_up_proj"]},
        {"exclude_modules": ["k_proj"]},
        {"something_new": 1},
    ],
)
def test_variants_are_refused_by_name(change: dict[str, Any]) -> None:
    plain = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"]}
    assert LoraSpec.from_peft(plain) == LoraSpec(8, ("q_proj",))
    with pytest.raises(InvalidInput, match=rf"^lora\.{next(iter(change))}: "):
        LoraSpec.from_peft({**plain, **change})


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"peft_type": "IA3"},
        {"peft_type": "LORA", "target_modules": ["q_proj"]},
        {"peft_type": "LORA", "r": 8},
        {"peft_type": "LORA", "r": 8, "target_modules": r".*\.q_proj"},
        {
            "peft_type": "LORA",
            "r": 8,
            "target_modules": ["layers.0.self_attn.q_proj", "layers.1.self_attn.k_proj"],
        },
        {"peft_type": "LORA", "r": 8, "target_modules": ["layers.0.self_attn.q_proj", "k_proj"]},
        "adapter",
        None,
    ],
)
def test_not_a_plain_adapter(config: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^lora"):
        LoraSpec.from_peft(config)
