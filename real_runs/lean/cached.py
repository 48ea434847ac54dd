"""Prefill and one-token steps against a key/value cache, without gradients.

Weights do not change while a batch of completions is sampled, so projections of one input are laid below each other
once per batch: queries, keys, values and the first halves of their adapters are one matmul.

Rows are padded on the left, so that the next token of every row sits in the same column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runs.lean.functions import add_product, inverse_rms, rotated
from real_runs.lean.weights import Decoder, Layer, Projection, rotary_tables


@dataclass(frozen=True)
class _Packed:
    """Projections of one input: ``weight`` holds every W, then every A; ``ups`` every B with its columns."""

    weight: Tensor
    bias: Tensor | None
    widths: tuple[int, ...]
    ups: tuple[tuple[slice, slice, Tensor, float], ...]
    out: int

    @classmethod
    def of(cls, projections: Sequence[Projection]) -> _Packed:
        widths = tuple(p.weight.shape[0] for p in projections)
        out = sum(widths)
        downs, ups, row, column = [], [], out, 0
        for p, width in zip(projections, widths, strict=True):
            if p.a is not None and p.b is not None:
                rank = p.a.shape[0]
                downs.append(p.a)
                ups.append((slice(column, column + width), slice(row, row + rank), p.b.t(), p.scale))
                row += rank
            column += width
        weight = torch.cat([*(p.weight for p in projections), *downs])
        bias = None
        if any(p.bias is not None for p in projections):
            parts = [
                weight.new_zeros(w) if p.bias is None else p.bias
                for p, w in zip(projections, widths, strict=True)
            ]
            bias = torch.cat([*parts, weight.new_zeros(row - out)])
        return cls(weight, bias, widths, tuple(ups), out)

    def apply(self, x: Tensor) -> Tensor:
        """All outputs side by side, shape (M, out)."""
        wide = F.linear(x, self.weight, self.bias)
        for columns, inner, up, scale in self.ups:
            add_product(wide[:, columns], wide[:, inner], up, scale)
        return wide[:, : self.out]


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
        self._packed = [self._pack(layer) for layer in decoder.layers]
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    @staticmethod
    def _pack(layer: Layer) -> tuple[_Packed, _Packed, _Packed, _Packed]:
        return (
            _Packed.of((layer.q, layer.k, layer.v)),
            _Packed.of((layer.o,)),
            _Packed.of((layer.gate, layer.up)),
            _Packed.of((layer.down,)),
        )

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
        cos, sin = rotary_tables(decoder, positions, x)
        cos, sin = cos[:, :, None], sin[:, :, None]
        hidden = self._hidden_mask(mask, batch, new, seen, ids.device)
        if not self._keys:
            shape = (batch, decoder.kv_heads, self._capacity, decoder.head_dim)
            self._keys = [x.new_empty(shape) for _ in decoder.layers]
            self._values = [x.new_empty(shape) for _ in decoder.layers]
        for index, layer in enumerate(decoder.layers):
            x = self._layer(index, layer, x, batch, new, seen, cos, sin, hidden)
        self._used = seen
        last = x.view(batch, new, -1)[:, -1]
        return last * inverse_rms(last, decoder.eps) * decoder.norm

    def _layer(
        self, index: int, layer: Layer, x: Tensor, batch: int, new: int, seen: int, cos: Tensor, sin: Tensor,
        hidden: Tensor | None,
    ) -> Tensor:
        decoder = self._decoder
        qkv, o, gate_up, down = self._packed[index]
        heads, kv_heads, dim = decoder.heads, decoder.kv_heads, decoder.head_dim
        mixed = qkv.apply(x * inverse_rms(x, decoder.eps) * layer.input_norm).view(batch, new, -1, dim)
        q, k, v = mixed[:, :, :heads], mixed[:, :, heads : heads + kv_heads], mixed[:, :, heads + kv_heads :]
        if layer.q_norm is not None and layer.k_norm is not None:
            q = q * inverse_rms(q, decoder.eps) * layer.q_norm
            k = k * inverse_rms(k, decoder.eps) * layer.k_norm
        keys, values = self._keys[index], self._values[index]
        keys[:, :, self._used : seen] = rotated(k, cos, sin).transpose(1, 2)
        values[:, :, self._used : seen] = v.transpose(1, 2)
        context = _attend(rotated(q, cos, sin), keys[:, :, :seen], values[:, :, :seen], hidden)
        x = x + o.apply(context.reshape(batch * new, heads * dim))
        both = gate_up.apply(x * inverse_rms(x, decoder.eps) * layer.post_norm)
        width = gate_up.widths[0]
        return x + down.apply(F.silu(both[:, :width]) * both[:, width:])

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
    """Attention of q (B, n, heads, d) over keys and values (B, kv_heads, seen, d); returns (B, n, heads, d)."""
    batch, new, heads, dim = q.shape
    kv_heads, seen = keys.shape[1], keys.shape[2]
    groups = heads // kv_heads
    # The queries of one key head are stacked, so keys are read once and never repeated in memory.
    q = q.view(batch, new, kv_heads, groups, dim).permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, groups * new, dim)
    scores = (q @ keys.transpose(-1, -2)).mul_(dim**-0.5)
    if hidden is not None:
        scores = scores.view(batch, kv_heads, groups, new, seen).masked_fill_(hidden, float("-inf"))
        scores = scores.view(batch, kv_heads, groups * new, seen)
    context = (scores.softmax(-1) @ values).view(batch, kv_heads, groups, new, dim)
    return context.permute(0, 3, 1, 2, 4).reshape(batch, new, heads, dim)
