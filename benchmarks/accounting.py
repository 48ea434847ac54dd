"""The accounting table: this project and other counters against torch's, on one LoRA model.

    python benchmarks/accounting.py                       # Qwen2.5-1.5B, r = 16, 200 + 800 tokens
    python benchmarks/accounting.py --model qwen2.5-7b --json

The truth is ``torch.utils.flop_counter.FlopCounterMode`` over the Hugging Face model wrapped by PEFT, with
eager attention (the counter does not see the fused CPU op). The model lives on the meta device: full size,
no memory, no arithmetic, exact shapes. Decoding is counted at three positions; its cost is affine in the
position, which is checked, and summed over all of them.

Other tools publish a formula for the update only. As is customary, a third of it (2 of 6 N D) stands for a
forward, over all tokens, in the columns where nothing better exists.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

from race.flops import FORMULAS, Architecture, LoraSpec, forward_flops, generate_flops, update_flops
from race.flops.models import builtin_config

COLUMNS = ("forward", "LoRA update", "full update", "generation")


def build(name: str, lora: LoraSpec | None) -> Any:
    config = AutoConfig.for_model(**(builtin_config(name) or {}), attn_implementation="eager")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if lora is not None:
        adapter = LoraConfig(r=lora.rank, target_modules="all-linear")
        model = get_peft_model(model, adapter, low_cpu_mem_usage=True)
    return model


def run(model: Any, queries: int, keys: int, **extra: Any) -> torch.Tensor:
    ids = torch.ones(1, queries, dtype=torch.long, device="meta")
    # A ready 4-D mask keeps transformers from reading values, which meta tensors do not have.
    mask = torch.zeros(1, 1, queries, keys, device="meta")
    logits: torch.Tensor = model(input_ids=ids, attention_mask=mask, **extra).logits
    return logits


def counted(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def count_generation(model: Any, prompt: int, completion: int) -> int:
    """Prefill and ``completion - 1`` cached steps, as the counter sees them."""

    def step(past: int) -> int:
        cache = DynamicCache(config=model.config)
        run(model, past, past, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return counted(
            lambda: run(model, 1, past + 1, past_key_values=cache, use_cache=True, logits_to_keep=1)
        )

    prefill = counted(lambda: run(model, prompt, prompt, use_cache=True, logits_to_keep=1))
    if completion == 1:
        return prefill
    first, last = step(prompt), step(prompt + completion - 2)
    middle = (completion - 2) // 2
    if completion > 2:
        slope, rest = divmod(last - first, completion - 2)
        if rest or step(prompt + middle) != first + middle * slope:
            raise SystemExit("decode steps are not affine in the position; count every one of them")
    return prefill + (first + last) * (completion - 1) // 2


def table(name: str, rank: int, prompt: int, completion: int) -> dict[str, Any]:
    """FLOPs and ratio to the counter, by row and column."""
    arch, lora, length = Architecture.from_config(name), LoraSpec(rank), prompt + completion
    adapted = build(name, lora)
    with torch.no_grad():
        forward = counted(lambda: run(adapted.eval(), length, length, use_cache=False))
        generation = count_generation(adapted, prompt, completion)
    lora_update = counted(lambda: run(adapted.train(), length, length, use_cache=False).sum().backward())
    full_update = counted(lambda: run(build(name, None), length, length, use_cache=False).sum().backward())

    def ours(attention: str) -> list[int]:
        return [
            forward_flops(arch, [length], lora=lora, attention=attention).total,
            update_flops(arch, [length], lora=lora, attention=attention).total,
            update_flops(arch, [length], lora=None, attention=attention).total,
            generate_flops(arch, [prompt], [completion], lora=lora, attention=attention).total,
        ]

    truth = [forward, lora_update, full_update, generation]
    rows = {"torch FlopCounterMode": truth, "race (full)": ours("full"), "race (causal)": ours("causal")}
    for formula_name, formula in FORMULAS.items():
        rows[formula_name] = [
            formula.forward(arch, [length]).total,
            formula.update(arch, [length], lora=lora).total,
            formula.update(arch, [length], lora=None).total,
            formula.forward(arch, [length]).total,
        ]
    return {
        "model": arch.name,
        "params": arch.params(),
        "lora": {"rank": rank, "targets": "all-linear"},
        "prompt": prompt,
        "completion": completion,
        "torch": torch.__version__,
        "columns": list(COLUMNS),
        "flops": rows,
        "ratio": {row: [f / t for f, t in zip(flops, truth, strict=True)] for row, flops in rows.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="qwen2.5-1.5b", help="built-in dense model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--completion", type=int, default=800)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    result = table(options.model, options.rank, options.prompt, options.completion)
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        print()
        return
    lengths = f"{options.prompt} + {options.completion} tokens"
    print(f"{options.model}, LoRA r = {options.rank} on all linear layers, {lengths}")
    print("\n| counter | " + " | ".join(COLUMNS) + " |\n| --- |" + " ---: |" * len(COLUMNS))
    for row, ratios in result["ratio"].items():
        exact = result["flops"][row] == result["flops"]["torch FlopCounterMode"]
        cells = ["1 (exact)" if exact else f"{ratio:.3f}" for ratio in ratios]
        print(f"| {row} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
