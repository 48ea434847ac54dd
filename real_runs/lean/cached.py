"""Prefill and one-token steps against a key/value cache, without gradients.

Weights do not change while a batch of completions is sampled, so projections of one input are laid below each other
once per batch: queries, keys, values and the first halves of their adapters are one matmul.

Rows are padded on the left, so that the next token of every row sits in the same column.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runs.lean.functions import rotated
from real_runs.lean.weights import Decoder, Layer, Packed, Projection, add_product, rotary_tables


class LeanCache:
    """Keys and values of a batch of rows, and the forwards that fill it.

    Parameters
    ----------
    capacity
        Columns: prompt and completion tokens together.
    """

    def __init__(self, decoder: Decoder, capacity: int) -> None:
        self._decoder = decoder
        self._capacity = capacity
        self._used = 0
        self._cos, self._sin = rotary_tables(decoder, capacity)
        self._packed = [
            (Packed.of((layer.q, layer.k, layer.v)), Packed.of((layer.gate, layer.up))) for layer in decoder.layers
        ]
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def repeat(self, times: int) -> None:
        """Repeat every row ``times`` times, copies next to each other."""
        self._keys = [k.repeat_interleave(times, 0) for k in self._keys]
        self._values = [v.repeat_interleave(times, 0) for v in self._values]

    def select(self, rows: Tensor) -> None:
        """Keep only ``rows``, in that order."""
        self._keys = [k.index_select(0, rows) for k in self._keys]
        self._values = [v.index_select(0, rows) for v in self._values]

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Feed tokens (B, n); returns the hidden state (B, H) of each row's last token.

        Parameters
        ----------
        positions
            (B, n) position ids.
        mask
            (B, columns so far, n included), 0 on padding; ``None`` when nothing is padded.
        """
        decoder = self._decoder
        batch, new = ids.shape
        seen = self._used + new
        x = F.embedding(ids.reshape(-1), decoder.embedding)
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        hidden = self._hidden_mask(mask, batch, new, seen, ids.device)
        if not self._keys:
            shape = (batch, decoder.kv_heads, self._capacity, decoder.head_dim)
            self._keys = [x.new_empty(shape) for _ in decoder.layers]
            self._values = [x.new_empty(shape) for _ in decoder.layers]
        for index, layer in enumerate(decoder.layers):
            x = self._layer(index, layer, x, batch, new, seen, cos, sin, hidden)
        self._used = seen
        last = x.view(batch, new, -1)[:, -1]
        return F.rms_norm(last, last.shape[-1:], decoder.norm, decoder.eps)

    def _layer(
        self, index: int, layer: Layer, x: Tensor, batch: int, new: int, seen: int, cos: Tensor, sin: Tensor,
        hidden: Tensor | None,
    ) -> Tensor:
        decoder = self._decoder
        qkv, gate_up = self._packed[index]
        heads, kv_heads, dim = decoder.heads, decoder.kv_heads, decoder.head_dim
        width = x.shape[-1:]
        mixed = qkv.apply(F.rms_norm(x, width, layer.input_norm, decoder.eps))[:, : qkv.out].view(batch, new, -1, dim)
        qk, v = mixed.split((heads + kv_heads, kv_heads), 2)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = qk.split((heads, kv_heads), 2)
            q = F.rms_norm(q, (dim,), layer.q_norm, decoder.eps)
            k = F.rms_norm(k, (dim,), layer.k_norm, decoder.eps)
            qk = torch.cat((q, k), 2)
        # Queries and keys turn by the same angles: once for both.
        q, k = rotated(qk, cos, sin).split((heads, kv_heads), 2)
        keys, values = self._keys[index], self._values[index]
        keys[:, :, self._used : seen] = k.transpose(1, 2)
        values[:, :, self._used : seen] = v.transpose(1, 2)
        context = _attend(q, keys[:, :, :seen], values[:, :, :seen], hidden)
        x = _add_projected(x, context, layer.o)
        both = gate_up.apply(F.rms_norm(x, width, layer.post_norm, decoder.eps))
        half = gate_up.widths[0]
        gate, up = both[:, :half], both[:, half : 2 * half]
        return _add_projected(x, F.silu(gate).mul_(up), layer.down)

    @staticmethod
    def _hidden_mask(
        mask: Tensor | None, batch: int, new: int, seen: int, device: torch.device
    ) -> Tensor | None:
        """True where a query may not look, shape (B or 1, 1, 1, n, seen); None when it may look everywhere."""
        hidden = None
        if new > 1:
            hidden = torch.ones(new, seen, dtype=torch.bool, device=device).triu(seen - new + 1)[None, None, None]
        if mask is not None:
            padding = (mask == 0)[:, None, None, None, :]
            hidden = padding if hidden is None else hidden | padding
            # Padding may look at itself: a query that sees nothing would be NaN.
            own = torch.ones(new, seen, dtype=torch.bool, device=device).triu(seen - new).tril(seen - new)
            hidden = hidden & ~own
        return hidden


def _attend(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
    """Attention of q (B, n, heads, d) over keys and values (B, kv_heads, seen, d); returns (B * n, heads * d)."""
    batch, new, heads, dim = q.shape
    kv_heads, seen = keys.shape[1], keys.shape[2]
    groups = heads // kv_heads
    # The queries of one key head are stacked, so keys are read once and never repeated in memory.
    if new == 1:
        stacked = q.reshape(batch * kv_heads, groups, dim)
    else:
        stacked = q.reshape(batch, new, kv_heads, groups, dim).permute(0, 2, 3, 1, 4).reshape(-1, groups * new, dim)
    scale = torch.empty((), dtype=q.dtype, device=q.device)  # beta = 0: never read
    keys, values = keys.flatten(0, 1), values.flatten(0, 1)
    scores = torch.baddbmm(scale, stacked, keys.transpose(1, 2), beta=0, alpha=dim**-0.5)
    if hidden is not None:
        scores.view(batch, kv_heads, groups, new, seen).masked_fill_(hidden, float("-inf"))
    context = torch.bmm(scores.softmax(-1), values)
    if new == 1:
        return context.view(batch, heads * dim)
    return context.view(batch, kv_heads, groups, new, dim).permute(0, 3, 1, 2, 4).reshape(batch * new, heads * dim)


def _add_projected(residual: Tensor, x: Tensor, projection: Projection) -> Tensor:
    """``residual + projection(x)``, both (M, .)."""
    y = torch.addmm(residual, x, projection.weight.t())
    if projection.bias is not None:
        y += projection.bias
    if projection.a is not None and projection.b is not None:
        add_product(y, F.linear(x, projection.a), projection.b.t(), projection.scale)
    return y
