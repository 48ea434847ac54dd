"""Others' formulas: their published ratios to the exact count, and what each of them misses."""

from __future__ import annotations

import pytest
from flop_oracle import Draw, build, draw_config
from transformers import AutoConfig

from race.flops import FORMULAS, Architecture, LoraSpec, formula, forward_flops, update_flops

QWEN = Architecture.from_config("qwen2.5-1.5b")


# Ratio to the exact causal count of a full update, one sequence of 1000 tokens of Qwen2.5-1.5B, computed from the
# tools' own sources at the commits named in each formula.
@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("verl-qwen2", 1.1471),
        ("nemo-rl-qwen2", 1.0693),
        ("prime-rl", 1.0271),
        ("palm", 1.0272),
        ("transformers-total-flos", 0.8259),
        ("6nd", 0.9729),
    ],
)
def test_published_ratios(name: str, ratio: float) -> None:
    exact = update_flops(QWEN, [1000], lora=None).total
    assert formula(name).update(QWEN, [1000]).total / exact == pytest.approx(ratio, abs=2e-4)


def test_only_prime_rl_knows_of_adapters() -> None:
    lora = LoraSpec(16)
    exact = update_flops(QWEN, [1000], lora=lora).total
    for name, other in FORMULAS.items():
        ratio = other.update(QWEN, [1000], lora=lora).total / exact
        if name == "prime-rl":
            assert ratio == pytest.approx(1, abs=0.05)
        else:
            assert ratio > 1.2, name


def test_palm_and_ours_agree_where_they_should() -> None:
    """Tied head, no biases to speak of, full attention, everything trained: PaLM's count is the exact one."""
    exact = update_flops(QWEN, [1000], lora=None, attention="full").total
    assert formula("palm").update(QWEN, [1000]).total == pytest.approx(exact, rel=1e-3)


def test_total_flos_is_the_trainers_own_number() -> None:
    draw = Draw("llama", 1)
    config = draw_config("llama", draw.rng)
    arch, lora = Architecture.from_config(config), LoraSpec(3)
    for adapter in (None, lora):
        model = build(config, adapter)
        logged = 6 * 40 * model.num_parameters(exclude_embeddings=True)  # Trainer.floating_point_ops
        assert formula("transformers-total-flos").update(arch, [15, 25], lora=adapter).total == logged


def test_trl_helper() -> None:
    """TRL's own arithmetic on a config, per token at one sequence length."""
    arch = Architecture.from_config("qwen3-0.6b")
    config = AutoConfig.for_model(
        "qwen3",
        hidden_size=1024,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
    )
    s, h, width = 500, config.hidden_size, config.num_attention_heads * config.head_dim
    per_layer = 2 * h * (width + 2 * 8 * 128) + 2 * width * h + 4 * width * s + 6 * h * 3072
    assert formula("trl").update(arch, [s]).total == s * 3 * (28 * per_layer + 2 * 151936 * h)


def test_each_formula_is_documented_and_scales() -> None:
    for name, other in FORMULAS.items():
        assert other.name == other.convention.name == name
        assert other.source
        assert other.expression
        assert other.deviates
        one, two = other.update(QWEN, [300]), other.update(QWEN, [300, 300])
        assert two.total == 2 * one.total == (one + one).total
        assert other.forward(QWEN, [300]).total == pytest.approx(one.total / 3)
        assert other.forward(QWEN, [300]).total == pytest.approx(forward_flops(QWEN, [300]).total, rel=0.25)
