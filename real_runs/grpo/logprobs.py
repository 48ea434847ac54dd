"""Log-probabilities of completion tokens, under the policy or its base.

Logits exist only at the positions that predict a completion token: prompts and padding never reach the head.
Temperature and banned tokens are those of the rollouts, so both sides speak of the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from real_runs.grpo.batch import Batch
from real_runs.policy import Policy
from real_runs.rollout._base import Sampling
from real_runs.rollout.sampling import mask_logits

# Numbers in one piece of the entropy's computation: 64 MiB.
ENTROPY_NUMBERS = 2**24


@dataclass(frozen=True)
class TokenLogprobs:
    """``logp`` (B, C), 0 on padding; ``entropy`` the sum over tokens of the entropy, detached, a scalar."""

    logp: Tensor
    entropy: Tensor


def token_logprobs(policy: Policy, batch: Batch, sampling: Sampling) -> TokenLogprobs:
    """One forward over ``batch``; differentiable unless the caller disables gradients.

    The adapter is on or off as `Policy.adapter` has it.
    """
    hidden = policy.hidden(batch.ids)
    logits = policy.head(hidden[batch.rows, batch.columns])
    scaled = mask_logits(logits, sampling.banned, sampling.temperature)
    present = batch.mask > 0
    # Not log_softmax: with a vocabulary of 150,000 its result would be another tensor as large as the logits.
    flat = scaled.gather(-1, batch.tokens[present][:, None])[:, 0] - scaled.logsumexp(-1)
    padded = torch.zeros_like(batch.mask).masked_scatter(present, flat)
    return TokenLogprobs(padded, _entropy(scaled.detach()))


def _entropy(logits: Tensor) -> Tensor:
    """Sum over rows of the entropy of softmax(logits), a few rows at a time."""
    total = torch.zeros((), device=logits.device)
    with torch.no_grad():
        for rows in logits.split(max(1, ENTROPY_NUMBERS // logits.shape[-1])):
            total += torch.special.entr(rows.softmax(-1)).sum()
    return total
