"""From logits to tokens and log-probs.

Tokens are drawn by inverting the cumulative distribution at a uniform number that was fixed before the loop began,
one for each (row, position). A row's tokens therefore do not depend on which other rows are still running, so
finished rows can be dropped from the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from real_runs.grpo.seeds import seed_for
from real_runs.rollout._base import Sampling


def mask_logits(logits: Tensor, banned: tuple[int, ...], temperature: float) -> Tensor:
    """Logits in float32 at ``temperature``, shape (..., V), banned tokens at -inf."""
    scaled = logits.float()
    if temperature not in (0.0, 1.0):
        scaled = scaled / temperature
    if banned:
        scaled = scaled.index_fill(-1, torch.tensor(banned, device=logits.device), float("-inf"))
    return scaled


def uniforms(groups: range, group_size: int, columns: int, seed: int) -> Tensor:
    """Numbers in [0, 1) as float64, shape (groups * group_size, columns); drawn on the CPU so that devices agree.

    A group's numbers depend on the seed and the group's number alone.
    """
    parts = []
    for group in groups:
        generator = torch.Generator().manual_seed(seed_for(seed, group, "draws"))
        parts.append(torch.rand(group_size, columns, dtype=torch.float64, generator=generator))
    return torch.cat(parts)


def draw(logits: Tensor, uniform: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Draw one token a row.

    Parameters
    ----------
    logits
        Shape (B, V), as the model gives them.
    uniform
        Shape (B,), float64.

    Returns
    -------
    Tokens (B,) and their log-probs (B,), float32. Log-probs are of the full distribution: truncated samplers are
    refused where ratios are used.
    """
    logprobs = mask_logits(logits, sampling.banned, sampling.temperature).log_softmax(-1)
    if sampling.temperature == 0.0:
        tokens = logprobs.argmax(-1)
    else:
        probabilities = _truncate(logprobs, sampling).double()
        cumulative = probabilities.cumsum(-1)
        target = uniform.to(logits.device) * cumulative[:, -1]
        # right=True: a token of probability 0 spans no interval, so it cannot be drawn.
        tokens = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
        # u * total may round up to total itself; the last token that has mass, where the sum gets there, is then right.
        tokens = torch.minimum(tokens, cumulative.argmax(-1))
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def _truncate(logprobs: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities with the tail cut off as asked; not renormalised."""
    probabilities = logprobs.exp()
    if sampling.top_k and sampling.top_k < probabilities.shape[-1]:
        floor = probabilities.topk(sampling.top_k, dim=-1).values[:, -1:]
        probabilities = probabilities.where(probabilities >= floor, 0.0)
    if sampling.min_p > 0:
        floor = sampling.min_p * probabilities.max(-1, keepdim=True).values
        probabilities = probabilities.where(probabilities >= floor, 0.0)
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.where(before < sampling.top_p * probabilities.sum(-1, keepdim=True), 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, order, ordered)
    return probabilities
