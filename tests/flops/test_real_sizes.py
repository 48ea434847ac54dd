"""Full-size models on the meta device, where the counter sees shapes and no memory is needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flop_oracle import counted, rotary_of_this_transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from race.flops import Architecture, LoraSpec, forward_flops, generate_flops, update_flops
from race.flops.models import builtin_config

ROTARY: Any = rotary_of_this_transformers()


def meta_model(name: str, lora: LoraSpec | None = None) -> Any:
    config = AutoConfig.for_model(**(builtin_config(name) or {}), attn_implementation="eager")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if lora is None:
        return model
    return get_peft_model(model, LoraConfig(r=lora.rank, target_modules=lora.targets), low_cpu_mem_usage=True)


def run(model: Any, queries: int, keys: int, **extra: Any) -> torch.Tensor:
    """One forward; a ready 4-D mask keeps transformers from reading values, which meta tensors do not have."""
    ids = torch.ones(1, queries, dtype=torch.long, device="meta")
    mask = torch.zeros(1, 1, queries, keys, device="meta")
    return model(input_ids=ids, attention_mask=mask, **extra).logits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-4b", "llama-3.2-3b"])
def test_forward(name: str) -> None:
    model = meta_model(name)
    with torch.no_grad():
        truth = counted(lambda: run(model, 300, 300, use_cache=False, logits_to_keep=7))
    arch = Architecture.from_config(name)
    assert forward_flops(arch, [300], attention="full", logits=7, rotary=ROTARY).total == truth


def test_lora_update_of_qwen() -> None:
    lora = LoraSpec(16)
    model = meta_model("qwen2.5-1.5b", lora).train()
    truth = counted(lambda: run(model, 1000, 1000, use_cache=False).square().sum().backward())
    arch = Architecture.from_config("qwen2.5-1.5b")
    assert update_flops(arch, [1000], lora=lora, attention="full", rotary=ROTARY).total == truth


@pytest.mark.slow
def test_generation_of_qwen() -> None:
    lora = LoraSpec(16)
    model = meta_model("qwen2.5-1.5b", lora).eval()

    def generate() -> None:
        cache = DynamicCache(config=model.config)
        run(model, 200, 200, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for fed in range(1, 5):
            run(model, 1, 200 + fed, past_key_values=cache, use_cache=True, logits_to_keep=1)

    with torch.no_grad():
        truth = counted(generate)
    arch = Architecture.from_config("qwen2.5-1.5b")
    assert generate_flops(arch, [200], [5], lora=lora, attention="full", rotary=ROTARY).total == truth
