"""Integer equality with torch's FLOP counter over real Hugging Face + PEFT modules.

Every case draws a shape, an adapter, a batch, lengths and switches from its own seed. Together the tests
draw well over two hundred shapes.
"""

from __future__ import annotations

import pytest
import torch
from flop_oracle import (
    FAMILIES,
    Draw,
    build,
    counted,
    draw_config,
    draw_lora,
    forward,
    rotary_of_this_transformers,
    tokens,
    update,
)

from race.flops import Architecture, forward_flops, generate_flops, update_flops

ROTARY = rotary_of_this_transformers()
DRAWS = [Draw(family, seed) for family in FAMILIES for seed in range(8)]


@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_forward(draw: Draw) -> None:
    config = draw_config(draw.family, draw.rng)
    arch = Architecture.from_config(config)
    lora = draw_lora(arch, draw.rng) if draw.rng.random() < 0.6 else None
    model = build(config, lora).eval()
    batch, length = draw.rng.randint(1, 3), draw.rng.randint(1, 14)
    keep = draw.rng.choice([None, 1, draw.rng.randint(1, length)])
    ids = tokens(config, batch, length)
    with torch.no_grad():
        truth = counted(lambda: forward(model, ids, keep))
    ours = forward_flops(
        arch, [length] * batch, attention="full", logits=keep or "all", lora=lora, rotary=ROTARY
    )
    assert ours.total == truth
    if lora is not None:
        with torch.no_grad(), model.disable_adapter():
            truth = counted(lambda: forward(model, ids, keep))
        base = forward_flops(arch, [length] * batch, attention="full", logits=keep or "all", rotary=ROTARY)
        assert base.total == truth


@pytest.mark.parametrize("full", [False, True], ids=["lora", "full"])
@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_update(draw: Draw, full: bool) -> None:
    config = draw_config(draw.family, draw.rng)
    arch = Architecture.from_config(config)
    lora = None if full else draw_lora(arch, draw.rng)
    batch, length = draw.rng.randint(1, 3), draw.rng.randint(1, 14)
    keep = draw.rng.choice([None, 1, draw.rng.randint(1, length)])
    ids = tokens(config, batch, length)
    # (checkpointing, reentrant, input_require_grads); None is what transformers does by itself
    switches = [(False, False, None), (False, False, True), (True, False, None), (True, True, None)]
    if not full:
        switches.append((True, False, False))
    for checkpointing, reentrant, input_grads in switches:
        model = build(config, lora).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            if input_grads is False:
                model.disable_input_require_grads()
        elif input_grads:
            model.enable_input_require_grads()
        truth = counted(lambda model=model: update(model, ids, keep))
        ours = update_flops(
            arch,
            [length] * batch,
            lora=lora,
            attention="full",
            logits=keep or "all",
            gradient_checkpointing=checkpointing,
            use_reentrant=reentrant,
            input_require_grads=input_grads,
            rotary=ROTARY,
        )
        assert ours.total == truth, (checkpointing, reentrant, input_grads, lora, ours.parts)


@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_generate(draw: Draw) -> None:
    config = draw_config(draw.family, draw.rng)
    arch = Architecture.from_config(config)
    lora = draw_lora(arch, draw.rng) if draw.rng.random() < 0.5 else None
    model = build(config, lora).eval()
    batch, group = draw.rng.randint(1, 2), draw.rng.randint(1, 2)
    prompt, completion = draw.rng.randint(1, 9), draw.rng.randint(1, 9)
    ids = tokens(config, batch, prompt)

    def run() -> None:
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=group > 1,
            num_return_sequences=group,
            max_new_tokens=completion,
            min_new_tokens=completion,
        )
        assert out.shape == (batch * group, prompt + completion)

    ours = generate_flops(
        arch,
        [prompt] * batch,
        [completion] * (batch * group),
        group_size=group,
        attention="full",
        lora=lora,
        rotary=ROTARY,
    )
    assert ours.total == counted(run)
