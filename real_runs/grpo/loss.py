"""The GRPO loss on padded tensors.

Shapes: B samples, C the longest completion. ``mask`` is 1 on completion tokens (EOS included), 0 on padding.

    ratio   r_t  = exp(logp_t - old_t), or exp(mean_t(logp - old)) for every token at sequence level (GSPO)
    policy  L_t  = -min(r_t A, clip(r_t, 1 - low, 1 + high) A) * w_t
    KL      K_t  = (exp(ref_t - logp_t) - (ref_t - logp_t) - 1) * r_t    (k3, Schulman 2020)
    token loss   = L_t + beta K_t

The factor r_t (``unbiased_kl``; DeepSeek-V3.2, arXiv 2512.02556) is 1 in value on the first pass but not in gradient:
with it the gradient is that of the reverse KL, without it it is not. TRL 1.16 has it on by default.

    dapo      sum of token losses / tokens of the whole pass         (Yu et al. 2025, arXiv 2503.14476)
    grpo      mean over samples of the mean over their tokens        (Shao et al. 2024, arXiv 2402.03300)
    dr-grpo   sum of token losses / (samples x length limit)         (Liu et al. 2025, arXiv 2503.20783)

``w_t`` are truncated importance weights against the rollout engine, 1 when the correction is off. Denominators
belong to the whole pass, so cutting a pass into micro-batches changes nothing but float rounding. The first pass
*is* the old policy: ``old=None`` takes logp itself, detached, and the ratio is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from real_runs.config import Loss, RatioLevel


@dataclass(frozen=True)
class LossSpec:
    """The loss of one pass. ``samples`` and ``tokens`` are those of the whole pass."""

    loss: Loss
    ratio_level: RatioLevel
    clip_low: float
    clip_high: float
    beta: float
    unbiased_kl: bool
    max_completion_tokens: int
    samples: int
    tokens: int


@dataclass(frozen=True)
class LossParts:
    """``total`` is what to differentiate; the rest are detached sums over tokens, for logging."""

    total: Tensor
    clipped: Tensor
    kl: Tensor
    ratio_drift: Tensor


def grpo_loss(
    logp: Tensor,
    mask: Tensor,
    advantages: Tensor,
    spec: LossSpec,
    *,
    old: Tensor | None = None,
    reference: Tensor | None = None,
    weights: Tensor | None = None,
) -> LossParts:
    """Loss of a micro-batch: its share of the loss of the whole pass.

    Parameters
    ----------
    logp, old, reference, weights, mask
        Shape (B, C).
    advantages
        Shape (B,).
    """
    behind = logp.detach() if old is None else old
    log_ratio = logp - behind
    lengths = mask.sum(-1).clamp(min=1)
    if spec.ratio_level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / lengths)[:, None].expand_as(logp)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - spec.clip_low, 1 + spec.clip_high)
    gain = advantages[:, None]
    token_loss = -torch.minimum(ratio * gain, clipped * gain)
    if weights is not None:
        token_loss = token_loss * weights
    kl = torch.zeros_like(logp)
    if reference is not None:
        ahead = reference - logp
        kl = ahead.exp() - ahead - 1
        if spec.unbiased_kl:
            kl = kl * ratio
        token_loss = token_loss + spec.beta * kl
    if spec.loss == "grpo":
        total = ((token_loss * mask).sum(-1) / lengths).sum() / spec.samples
    elif spec.loss == "dapo":
        total = (token_loss * mask).sum() / max(spec.tokens, 1)
    else:
        total = (token_loss * mask).sum() / (spec.samples * spec.max_completion_tokens)
    with torch.no_grad():
        binding = (ratio * gain > clipped * gain) & (mask > 0)
        return LossParts(
            total=total,
            clipped=binding.sum(),
            kl=(kl * mask).sum(),
            ratio_drift=((ratio - 1).abs() * mask).sum(),
        )
