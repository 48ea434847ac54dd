"""Hidden states of whole sequences, differentiable in the adapters.

Rows are padded on the right, so attention is plainly causal and positions count from 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runs.lean.functions import gated, norm, project, rotate
from real_runs.lean.weights import Decoder, Layer, rotary_tables


def hidden_states(decoder: Decoder, ids: Tensor) -> Tensor:
    """Final hidden states (B, L, H) of token ids (B, L) padded on the right."""
    batch, length = ids.shape
    x = F.embedding(ids.reshape(-1), decoder.embedding)
    cos, sin = (table[:, None] for table in rotary_tables(decoder, length))
    for layer in decoder.layers:
        x = _layer(decoder, layer, x, batch, length, cos, sin)
    return norm(x, decoder.norm, decoder.eps).view(batch, length, -1)


def _layer(
    decoder: Decoder, layer: Layer, x: Tensor, batch: int, length: int, cos: Tensor, sin: Tensor
) -> Tensor:
    """One decoder layer on x (B * L, H)."""
    q, k, v = (
        y.view(batch, length, -1, decoder.head_dim)
        for y in project(norm(x, layer.input_norm, decoder.eps), (layer.q, layer.k, layer.v))
    )
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = norm(q, layer.q_norm, decoder.eps), norm(k, layer.k_norm, decoder.eps)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    context = causal_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), eager=decoder.eager)
    (x,) = project(context.transpose(1, 2).reshape(batch * length, -1), (layer.o,), x)
    gate, up = project(norm(x, layer.post_norm, decoder.eps), (layer.gate, layer.up))
    (x,) = project(gated(gate, up), (layer.down,), x)
    return x


def causal_attention(q: Tensor, k: Tensor, v: Tensor, *, eager: bool) -> Tensor:
    """Causal attention with grouped keys: q (B, heads, L, d), k and v (B, kv_heads, L, d)."""
    if not eager:
        grouped = q.shape[1] != k.shape[1]
        context: Tensor = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return context
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    length = q.shape[2]
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    weights: Tensor = scores.masked_fill(future, float("-inf")).softmax(-1)
    return weights @ v
