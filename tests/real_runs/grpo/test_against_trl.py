"""Same batch, same numbers as TRL's GRPOTrainer: advantages, loss and gradient, where both have the variant.

TRL samples a batch (ragged prompts, early EOS), scores it and computes its own loss; we take its completions and
rewards and compute ours, on the same weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grpo_toys import tiny_model, toy_options, toy_recipe

pytest.importorskip("trl", reason="trl is not installed: pip install 'trl==1.16.*' to compare with GRPOTrainer")

from real_runs.grpo.advantage import group_advantages
from real_runs.grpo.batch import collate
from real_runs.grpo.logprobs import token_logprobs
from real_runs.grpo.loss import LossSpec, grpo_loss
from real_runs.policy import Policy, build_policy
from real_runs.rollout import Sample, Sampling

GROUP, PROMPTS, LIMIT = 4, 3, 9
WORDS = [f"w{i}" for i in range(10)]
PAD, EOS = 10, 11


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*WORDS, "<pad>", "<eos>"])}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def build(tmp_path: Path, **config: Any) -> tuple[Any, list[dict[str, str]]]:
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    prompts = [{"prompt": "w1 w2 w3"}, {"prompt": "w4"}, {"prompt": "w5 w6 w7 w8 w9"}]

    def score(completions: list[str], **_: Any) -> list[float]:
        # Distinct within two groups, all equal in the third.
        return [0.5 if i // GROUP == 1 else float(i % GROUP == 0) + 0.1 * (i % 3) for i in range(len(completions))]

    arguments = GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=GROUP * PROMPTS, num_generations=GROUP,
        max_completion_length=LIMIT, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False,
        shuffle_dataset=False, max_steps=1, learning_rate=1e-3, **config,
    )
    trainer = GRPOTrainer(
        model=tiny_model(vocab=12), args=arguments, reward_funcs=score, processing_class=tokenizer(),
        train_dataset=Dataset.from_list(prompts),
        peft_config=LoraConfig(r=4, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    perturb(trainer.model)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    torch.manual_seed(0)
    return trainer, [p for p in prompts for _ in range(GROUP)]


def perturb(model: torch.nn.Module) -> None:
    """Adapters away from zero, the same on both sides."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def ours(trainer: Any, forward: str) -> Policy:
    policy = build_policy(lambda: tiny_model(vocab=12), toy_recipe(), toy_options(forward=forward), seed=0)
    weights = dict(trainer.model.named_parameters())
    with torch.no_grad():
        for name, parameter in policy.parameters.items():
            parameter.copy_(weights[name])
    return policy


def unpad(batch: dict[str, torch.Tensor]) -> list[Sample]:
    samples = []
    for prompt, prompt_mask, completion, mask in zip(
        batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"], batch["completion_mask"], strict=True
    ):
        tokens = tuple(completion[mask.bool()].tolist())
        samples.append(Sample(tuple(prompt[prompt_mask.bool()].tolist()), tokens, np.zeros(len(tokens), np.float32),
                              tokens[-1] == EOS))
    return samples


@pytest.mark.parametrize("forward", ["lean", "transformers"])
@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("corrected", [False, True], ids=["", "importance-weights"])
@pytest.mark.parametrize(
    ("trl", "race"),
    [
        ({"loss_type": "grpo"}, {"loss": "grpo"}),
        ({"loss_type": "dapo"}, {"loss": "dapo"}),
        ({"loss_type": "bnpo"}, {"loss": "dapo"}),
        ({"loss_type": "dr_grpo", "scale_rewards": "none"}, {"loss": "dr-grpo"}),
        ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, {"loss": "grpo", "ratio_level": "sequence"}),
        ({"loss_type": "dapo", "beta": 0.1}, {"loss": "dapo", "beta": 0.1, "unbiased_kl": True}),
        ({"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": False}, {"loss": "grpo", "beta": 0.1}),
        ({"loss_type": "grpo", "beta": 0.1}, {"loss": "grpo", "beta": 0.1, "unbiased_kl": True}),
        ({"loss_type": "dr_grpo", "beta": 0.1}, {"loss": "dr-grpo", "beta": 0.1, "unbiased_kl": True}),
        ({"loss_type": "grpo", "temperature": 0.7, "epsilon_high": 0.4}, {"loss": "grpo", "clip_high": 0.4}),
        ({"loss_type": "dapo", "scale_rewards": "none"}, {"loss": "dapo"}),
        ({"loss_type": "dapo", "importance_sampling_level": "sequence"}, {"loss": "dapo", "ratio_level": "sequence"}),
        ({"loss_type": "dr_grpo", "importance_sampling_level": "sequence"},
         {"loss": "dr-grpo", "ratio_level": "sequence"}),
        ({"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.1},
         {"loss": "grpo", "ratio_level": "sequence", "beta": 0.1, "unbiased_kl": True}),
        ({"loss_type": "dapo", "epsilon": 0.1, "epsilon_high": 0.1},
         {"loss": "dapo", "clip_low": 0.1, "clip_high": 0.1}),
    ],
    ids=["grpo", "dapo", "bnpo", "dr-grpo", "gspo", "kl", "biased-kl", "grpo-kl", "dr-grpo-kl", "temperature",
         "unscaled", "dapo-sequence", "dr-grpo-sequence", "gspo-kl", "symmetric-clip"],
)
def test_loss_gradient_and_advantages(
    tmp_path: Path, forward: str, corrected: bool, reused: bool, trl: dict[str, Any], race: dict[str, Any]
) -> None:
    trainer, inputs = build(tmp_path, **{"beta": 0.0, "epsilon": 0.2, "epsilon_high": 0.28, **trl})
    with torch.no_grad():
        batch = trainer._generate_and_score_completions(inputs)
    samples = unpad(batch)
    assert len({len(s.token_ids) for s in samples}) > 1, "completions must be ragged"

    rewards = np.array([0.5 if i // GROUP == 1 else float(i % GROUP == 0) + 0.1 * (i % 3) for i in range(12)])
    advantages = group_advantages(rewards.reshape(PROMPTS, GROUP), scale=trl.get("scale_rewards") != "none")
    assert np.allclose(advantages.reshape(-1), batch["advantages"].numpy(), atol=1e-5)

    policy = ours(trainer, forward)
    sampling = Sampling(max_tokens=LIMIT, eos_id=EOS, temperature=trl.get("temperature", 1.0))
    collated = collate(samples, policy.device)
    old = None
    if reused:
        # As in a later pass: log-probs of an older policy, so that ratios differ from 1 and some are clipped.
        with torch.no_grad():
            found = token_logprobs(policy, collated, sampling).logp
        shift = 0.6 * torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
        old = (found + shift) * collated.mask
        batch["old_per_token_logps"] = old
    weights = None
    if corrected:
        # Truncated importance weights of trainer over engine, as with vLLM, which need not be there for it.
        noise = 0.3 * torch.randn(collated.mask.shape, generator=torch.Generator().manual_seed(3))
        weights = noise.exp().clamp(max=1.2)
        batch["importance_sampling_ratio"] = weights
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    reference = None
    if trl.get("beta"):
        with torch.no_grad(), policy.adapter(False):
            reference = token_logprobs(policy, collated, sampling).logp
        assert torch.allclose(reference, batch["ref_per_token_logps"] * collated.mask, atol=1e-5)

    trainer.model.zero_grad()
    theirs = trainer._compute_loss(trainer.model, batch)
    theirs.backward()
    spec = LossSpec(**{
        "loss": "dapo", "ratio_level": "token", "clip_low": 0.2, "clip_high": 0.28, "beta": 0.0,
        "unbiased_kl": False, "max_completion_tokens": LIMIT, "samples": len(samples),
        "tokens": int(collated.mask.sum()), **race,
    })
    parts = grpo_loss(
        token_logprobs(policy, collated, sampling).logp, collated.mask,
        torch.tensor(advantages.reshape(-1), dtype=torch.float32), spec, old=old, reference=reference,
        weights=weights,
    )
    parts.total.backward()
    assert parts.total.item() == pytest.approx(theirs.item(), abs=1e-5)
    if reused:
        assert int(parts.clipped) > 0
    named = dict(trainer.model.named_parameters())
    for name, parameter in policy.parameters.items():
        wanted = named[name].grad
        assert torch.allclose(parameter.grad, wanted, atol=1e-5 * max(1.0, float(wanted.abs().max()))), name
