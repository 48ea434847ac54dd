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
    positions,
    rotary_of_this_transformers,
    tokens,
    update,
)
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, DynamicCache

from race.flops import Architecture, LoraSpec, forward_flops, generate_flops, logprob_flops, update_flops

ROTARY = rotary_of_this_transformers()
DRAWS = [Draw(family, seed) for family in FAMILIES for seed in range(6)]


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
    model = build(config, lora).train()
    # (checkpointing, reentrant, input_require_grads); None is what transformers and PEFT do by themselves
    switches = [(False, False, True), (True, False, None), (True, True, None), (True, False, False)]
    for checkpointing, reentrant, input_grads in [(False, False, None), *draw.rng.sample(switches, 2)]:
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        if input_grads:
            model.enable_input_require_grads()
        elif input_grads is False:
            model.disable_input_require_grads()
        truth = counted(lambda: update(model, ids, keep))
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
        if checkpointing:
            model.gradient_checkpointing_disable()
        model.disable_input_require_grads()


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


@pytest.mark.parametrize("draw", [Draw(family, seed) for family in FAMILIES for seed in (20, 21)], ids=str)
def test_shared_prefix(draw: Draw) -> None:
    """Prefill each prompt once, repeat its cache for the group, decode; ragged prompts and completions."""
    config = draw_config(draw.family, draw.rng)
    arch = Architecture.from_config(config)
    lora = draw_lora(arch, draw.rng) if draw.rng.random() < 0.5 else None
    model = build(config, lora).eval()
    group, prompts = draw.rng.randint(1, 3), [draw.rng.randint(1, 9) for _ in range(2)]
    completions = [c for _ in prompts for c in [draw.rng.randint(1, 9)] * group]

    def run() -> None:
        for prompt, completion in zip(prompts, completions[::group], strict=True):
            cache = DynamicCache(config=model.config)
            ids = tokens(config, 1, prompt)
            out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(group)
            token = out.logits[:, -1].argmax(-1, keepdim=True).repeat(group, 1)
            for fed in range(completion - 1):
                out = model(
                    input_ids=token,
                    position_ids=positions(token, prompt + fed),
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                token = out.logits[:, -1].argmax(-1, keepdim=True)

    ours = generate_flops(
        arch,
        prompts,
        completions,
        group_size=group,
        shared_prefix=True,
        attention="full",
        lora=lora,
        rotary=ROTARY,
    )
    with torch.no_grad():
        assert ours.total == counted(run)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("auto", [AutoModelForTokenClassification, AutoModelForSequenceClassification])
def test_classification_heads(auto: type, seed: int) -> None:
    draw = Draw("qwen2", 100 + seed)
    config = draw_config("qwen2", draw.rng)
    config.num_labels = draw.rng.randint(1, 4)
    kind = "token-classification" if auto is AutoModelForTokenClassification else "sequence-classification"
    arch = Architecture.from_config(config, head=kind, num_labels=config.num_labels)
    model = build(config, auto=auto).train()
    ids = tokens(config, 2, 7)
    with torch.no_grad():
        truth = counted(lambda: model(input_ids=ids, position_ids=positions(ids), use_cache=False))
    assert forward_flops(arch, [7, 7], attention="full", rotary=ROTARY).total == truth
    truth = counted(
        lambda: model(input_ids=ids, position_ids=positions(ids), use_cache=False).logits.sum().backward()
    )
    assert update_flops(arch, [7, 7], lora=None, attention="full", rotary=ROTARY).total == truth
    assert arch.params() == sum(p.numel() for p in model.parameters())
    for lora in (LoraSpec(2), LoraSpec(2, "all-linear", (0,)), LoraSpec(2, ("score",))):
        model = build(config, lora, auto=auto).train()
        truth = counted(
            lambda model=model: (
                model(input_ids=ids, position_ids=positions(ids), use_cache=False).logits.sum().backward()
            )
        )
        assert update_flops(arch, [7, 7], lora=lora, attention="full", rotary=ROTARY).total == truth
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert arch.count_params(lora).trainable == trainable


def test_process_reward_head() -> None:
    """Qwen2.5-Math-PRM: Linear, ReLU, Linear to two classes on every position."""
    draw = Draw("qwen2", 200)
    config = draw_config("qwen2", draw.rng)
    arch = Architecture.from_config({**config.to_dict(), "architectures": ["Qwen2ForProcessRewardModel"]})
    assert (arch.head, arch.num_labels) == ("mlp-score", 2)
    body = build(config).model
    width = config.hidden_size
    score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    ids = tokens(config, 3, 9)

    def run() -> torch.Tensor:
        return score(body(input_ids=ids, position_ids=positions(ids), use_cache=False).last_hidden_state)

    assert forward_flops(arch, [9] * 3, attention="full", rotary=ROTARY).total == counted(run)
    truth = counted(lambda: run().sum().backward())
    assert update_flops(arch, [9] * 3, lora=None, attention="full", rotary=ROTARY).total == truth
    assert arch.params() == sum(p.numel() for m in (body, score) for p in m.parameters())


def test_logprob_passes() -> None:
    """Old log-probs with the adapter, reference log-probs with it off; only completion positions cost logits."""
    draw = Draw("qwen3", 300)
    config = draw_config("qwen3", draw.rng)
    arch, lora = Architecture.from_config(config), LoraSpec(3)
    model = build(config, lora).eval()
    prompts, completions = [4, 7], [6, 2]

    def run() -> None:
        for p, c in zip(prompts, completions, strict=True):
            positions = torch.arange(p - 1, p + c - 1)
            model(input_ids=tokens(config, 1, p + c), use_cache=False, logits_to_keep=positions)

    with torch.no_grad():
        truth = counted(run)
        old = logprob_flops(arch, prompts, completions, lora=lora, attention="full", rotary=ROTARY)
        assert old.total == truth
        with model.disable_adapter():
            reference = logprob_flops(arch, prompts, completions, attention="full", rotary=ROTARY)
            assert reference.total == counted(run) < truth


def test_the_oracle_sees_attention() -> None:
    """Eager attention is counted; the fused CPU op is not (pytorch#195460), which is why eager is the oracle."""
    draw = Draw("llama", 400)
    config = draw_config("llama", draw.rng)
    arch = Architecture.from_config(config)
    ours = forward_flops(arch, [50], attention="full", rotary=ROTARY)
    attention = ours.by_kind()["attention"]
    assert attention > 0
    with torch.no_grad():
        truth = counted(lambda: forward(build(config), tokens(config, 1, 50), None))
    assert truth == ours.total
