"""Rollout and training log-probs of the same tokens agree, whichever forward runs, however ragged the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from grpo_toys import EOS, PAD, VOCAB, factory, tiny_model, toy_options, toy_recipe
from peft import LoraConfig, get_peft_model
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from race.errors import InvalidInput
from race.flops import LoraSpec
from real_runs.grpo.batch import collate, micro_batches
from real_runs.grpo.logprobs import token_logprobs
from real_runs.lean.weights import unsupported
from real_runs.policy import Policy, build_policy
from real_runs.rollout import Sample, Sampling, build_backend
from real_runs.rollout.sampling import draw, uniforms

RAGGED = [(2, 3, 4), (5,), (6, 7, 8, 9, 10), (3, 3), (2,) * 9]
EQUAL = [(2, 3, 4), (5, 6, 7), (8, 9, 10)]


def policy(forward: str, *, shift: float = 0.3, model: Any = None, **changes: Any) -> Policy:
    built = build_policy(model or factory(**changes), toy_recipe(), toy_options(forward=forward), seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in built.parameters.items():
            if "lora_B" in name:
                parameter.copy_(shift * torch.randn(parameter.shape, generator=generator))
    return built


def sampled(p: Policy, prompts: list[tuple[int, ...]], sampling: Sampling, *, size: int = 4, seed: int = 0,
            rows: int = 1024, share: bool = True) -> list[Sample]:
    backend = build_backend(p, toy_options(rollout_sequences=rows), max_tokens=64, folder="")
    rollouts = backend.generate(prompts, group_size=size, sampling=sampling, seed=seed, share_prefill=share)
    return [s for group in rollouts.groups for s in group]


def gap(p: Policy, samples: list[Sample], sampling: Sampling) -> float:
    batch = collate(samples, p.device)
    with torch.inference_mode():
        trained = token_logprobs(p, batch, sampling).logp
    return float(((trained - batch.pad([s.logprobs for s in samples])).abs() * batch.mask).max())


@pytest.mark.parametrize("forward", ["lean", "transformers"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("prompts", [RAGGED, EQUAL], ids=["ragged", "equal"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_agree_within_1e_4(forward: str, attention: str, prompts: list[tuple[int, ...]], temperature: float) -> None:
    p = policy(forward, attention=attention)
    sampling = Sampling(max_tokens=12, eos_id=EOS, banned=(PAD,), temperature=temperature)
    samples = sampled(p, prompts, sampling, size=6)
    lengths = {len(s.token_ids) for s in samples}
    assert len(lengths) > 2, "early EOS must occur for this test to mean anything"
    assert gap(p, samples, sampling) <= 1e-4


def test_pad_equal_to_eos_needs_no_ban() -> None:
    p = policy("lean")
    sampling = Sampling(max_tokens=12, eos_id=EOS, banned=())
    samples = sampled(p, RAGGED, sampling, size=8)
    assert any(s.finished for s in samples)
    assert any(PAD in s.token_ids for s in samples), "0 is an ordinary token when it is not banned"
    assert gap(p, samples, sampling) <= 1e-4


@pytest.mark.parametrize("forward", ["lean", "transformers"])
def test_completions_end_at_eos_and_never_hold_pad(forward: str) -> None:
    sampling = Sampling(max_tokens=20, eos_id=EOS, banned=(PAD,))
    for s in sampled(policy(forward), RAGGED, sampling, size=16):
        assert PAD not in s.token_ids
        assert EOS not in s.token_ids[:-1]
        assert s.finished is (s.token_ids[-1] == EOS)
        assert s.finished or len(s.token_ids) == 20
        assert len(s.logprobs) == len(s.token_ids)


def test_samples_follow_the_policy() -> None:
    p = policy("lean", shift=0.0)
    sampling = Sampling(max_tokens=1, eos_id=EOS, banned=(PAD,), temperature=0.8)
    samples = sampled(p, [(2, 3, 4)], sampling, size=20_000, rows=20_000)
    counts = np.bincount([s.token_ids[0] for s in samples], minlength=VOCAB)
    batch = collate([Sample((2, 3, 4), (t,), np.zeros(1, np.float32), False) for t in range(1, VOCAB)], p.device)
    expected = np.exp(token_logprobs(p, batch, sampling).logp.detach().numpy()[:, 0])
    assert counts[PAD] == 0
    assert expected.sum() == pytest.approx(1, abs=1e-5)
    z = (counts[1:] - 20_000 * expected) / np.sqrt(20_000 * expected * (1 - expected))
    assert np.abs(z).max() < 4.5


def test_same_seed_same_completions_whatever_the_chunks() -> None:
    p = policy("transformers")
    sampling = Sampling(max_tokens=10, eos_id=EOS, banned=(PAD,))
    whole = sampled(p, EQUAL, sampling, seed=5)
    again = sampled(p, EQUAL, sampling, seed=5)
    chunks = sampled(p, EQUAL, sampling, seed=5, rows=4)
    other = sampled(p, EQUAL, sampling, seed=6)
    alone = sampled(p, EQUAL, sampling, seed=5, share=False)
    assert [s.token_ids for s in whole] == [s.token_ids for s in again] == [s.token_ids for s in chunks]
    assert [s.token_ids for s in whole] == [s.token_ids for s in alone]
    assert all((a.logprobs == b.logprobs).all() for a, b in zip(whole, again, strict=True))
    assert [s.token_ids for s in whole] != [s.token_ids for s in other]


def test_greedy_takes_the_likeliest_token() -> None:
    p = policy("lean")
    sampling = Sampling(max_tokens=5, eos_id=EOS, banned=(PAD,), temperature=0.0)
    samples = sampled(p, EQUAL, sampling, size=2)
    assert samples[0].token_ids == samples[1].token_ids
    assert gap(p, samples, sampling) <= 1e-4


# -- the draw itself ------------------------------------------------------------------------------------------


def test_draw_inverts_the_cumulative_distribution() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0, 0.0]]).expand(5, -1)
    sampling = Sampling(max_tokens=1, eos_id=0)
    u = torch.tensor([0.0, 0.3333, 0.3334, 0.9999999, 1.0 - 2**-53], dtype=torch.float64)
    tokens, logprobs = draw(logits, u, sampling)
    assert tokens.tolist() == [0, 0, 2, 3, 3]
    assert torch.allclose(logprobs, torch.log(torch.tensor(1 / 3)))


def test_a_trailing_banned_token_is_not_drawn_even_at_the_very_end() -> None:
    logits = torch.zeros(1, 7)
    sampling = Sampling(max_tokens=1, eos_id=0, banned=(6,))
    tokens, _ = draw(logits, torch.tensor([1.0], dtype=torch.float64), sampling)
    assert tokens.item() == 5


@pytest.mark.parametrize(
    ("options", "allowed"),
    [({"top_k": 2}, {3, 4}), ({"top_p": 0.6}, {3, 4}), ({"min_p": 0.5}, {3, 4}), ({"top_p": 0.01}, {4})],
)
def test_truncation_keeps_the_head(options: dict[str, float], allowed: set[int]) -> None:
    logits = torch.log(torch.tensor([[0.1, 0.1, 0.1, 0.3, 0.4]])).expand(500, -1)
    tokens, logprobs = draw(logits, uniforms(range(5), 100, 1, 0)[:, 0], Sampling(max_tokens=1, eos_id=0, **options))
    assert set(tokens.tolist()) == allowed
    # Log-probs stay those of the full distribution.
    assert torch.allclose(logprobs.exp(), torch.tensor([0.1, 0.1, 0.1, 0.3, 0.4])[tokens])


# -- the lean forward against transformers ---------------------------------------------------------------------


def _family(kind: str) -> Any:
    common = {
        "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2,
        "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
    }
    makers: dict[str, Any] = {
        "qwen2": lambda: tiny_model(layers=3),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**common, head_dim=8, tie_word_embeddings=True)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**common, attention_bias=True, mlp_bias=True)),
        "llama-scaled": lambda: LlamaForCausalLM(
            LlamaConfig(**common, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
        ),
        "mistral": lambda: MistralForCausalLM(MistralConfig(**common, sliding_window=None)),
    }

    def build() -> Any:
        torch.manual_seed(0)
        return makers[kind]()

    return build


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "llama-scaled", "mistral"])
@pytest.mark.parametrize("adapter", [True, False])
def test_lean_equals_transformers(family: str, adapter: bool) -> None:
    lean, full = (policy(f, model=_family(family)) for f in ("lean", "transformers"))
    assert lean.lean
    assert not full.lean
    sampling = Sampling(max_tokens=8, eos_id=EOS, banned=(PAD,))
    samples = sampled(full, RAGGED, sampling)
    assert [s.token_ids for s in sampled(lean, RAGGED, sampling)] == [s.token_ids for s in samples]
    batch = collate(samples, full.device)
    found = []
    for p in (lean, full):
        with p.adapter(adapter):
            found.append(token_logprobs(p, batch, sampling))
    a, b = found
    assert torch.allclose(a.logp, b.logp, atol=2e-5)
    assert a.entropy.item() == pytest.approx(b.entropy.item(), rel=1e-4)
    if adapter:
        weights = torch.randn(batch.mask.shape, generator=torch.Generator().manual_seed(3)) * batch.mask
        (a.logp * weights).sum().backward()
        (b.logp * weights).sum().backward()
        for name, parameter in full.parameters.items():
            scale = float(parameter.grad.abs().max())
            assert torch.allclose(lean.parameters[name].grad, parameter.grad, atol=1e-4 * scale + 1e-6), name


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("o_proj", "down_proj"), ("gate_proj",)])
def test_lean_with_adapters_on_some_projections_of_some_layers(targets: tuple[str, ...]) -> None:
    recipe = toy_recipe(lora=LoraSpec(3, targets=targets, layers=(1,)))
    lean, full = (
        build_policy(factory(layers=3), recipe, toy_options(forward=f), seed=0) for f in ("lean", "transformers")
    )
    for p in (lean, full):
        torch.manual_seed(4)
        for name, parameter in p.parameters.items():
            if "lora_B" in name:
                parameter.data.normal_(0, 0.3)
    ids = torch.randint(2, VOCAB, (4, 7))
    outputs = [p.hidden(ids) for p in (lean, full)]
    assert torch.allclose(*outputs, atol=1e-4)
    for output in outputs:
        output.square().sum().backward()
    for name, parameter in full.parameters.items():
        assert torch.allclose(lean.parameters[name].grad, parameter.grad, rtol=1e-3, atol=1e-3), name


def test_lean_refuses_what_it_cannot_read() -> None:
    window = MistralForCausalLM(
        MistralConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                      num_attention_heads=2, num_key_value_heads=1, sliding_window=4)
    )
    assert "sliding window" in str(unsupported(window))
    dora = get_peft_model(tiny_model(), LoraConfig(r=2, target_modules="all-linear", use_dora=True))
    assert "plain LoRA" in str(unsupported(dora.base_model.model))
    with pytest.raises(InvalidInput, match="forward: found 'lean'"):
        build_policy(factory(), toy_recipe(lora=None), toy_options(forward="lean"), seed=0)
    assert not build_policy(factory(), toy_recipe(gradient_checkpointing=True), toy_options(), seed=0).lean


# -- batches ---------------------------------------------------------------------------------------------------


def test_micro_batches_hold_every_sample_once_within_the_limit() -> None:
    samples = [Sample((2,) * p, (3,) * c, np.zeros(c, np.float32), False) for p, c in
               [(3, 9), (1, 1), (5, 5), (2, 30), (4, 4), (1, 2), (8, 8)]]
    chunks = list(micro_batches(samples, range(7), 32))
    assert sorted(i for chunk in chunks for i in chunk) == list(range(7))
    for chunk in chunks:
        width = max(len(samples[i].prompt_ids) + len(samples[i].token_ids) for i in chunk)
        assert width * len(chunk) <= 32 or len(chunk) == 1


def test_collate_points_at_the_position_before_each_token() -> None:
    samples = [Sample((5, 6, 7), (8, 9), np.zeros(2, np.float32), True),
               Sample((2,), (3, 4, 5), np.zeros(3, np.float32), False)]
    batch = collate(samples, torch.device("cpu"))
    assert batch.ids.tolist() == [[5, 6, 7, 8, 9], [2, 3, 4, 5, 0]]
    assert batch.mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.rows.tolist() == [0, 0, 1, 1, 1]
    assert batch.columns.tolist() == [2, 3, 0, 1, 2]
