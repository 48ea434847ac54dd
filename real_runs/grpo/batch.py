"""Prompts and completions as tensors.

A row is prompt then completion, padded on the right only. Padding on the right is never attended to by a token that
matters, so no attention mask and no position ids are needed, whatever the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from real_runs.rollout._base import Sample


@dataclass(frozen=True)
class Batch:
    """Notation: B rows, L longest row, C longest completion, N completion tokens.

    Attributes
    ----------
    ids
        (B, L), padded with 0.
    tokens, mask
        (B, C): completion tokens, and 1.0 where there is one.
    rows, columns
        (N,) each: where in ``ids`` the logits of each completion token come from, row by row.
    """

    ids: Tensor
    tokens: Tensor
    mask: Tensor
    rows: Tensor
    columns: Tensor

    @property
    def width(self) -> int:
        """L."""
        return self.ids.shape[1]

    def pad(self, values: Sequence[np.ndarray]) -> Tensor:
        """Per-token values of each row as a (B, C) tensor, 0 on padding."""
        out = torch.zeros(self.mask.shape)
        for row, value in enumerate(values):
            out[row, : len(value)] = torch.from_numpy(np.asarray(value, dtype=np.float32))
        return out.to(self.mask.device)


def collate(samples: Sequence[Sample], device: torch.device) -> Batch:
    """Stack samples into a `Batch`."""
    prompts = [len(s.prompt_ids) for s in samples]
    completions = [len(s.token_ids) for s in samples]
    width = max(p + c for p, c in zip(prompts, completions, strict=True))
    longest = max(completions)
    ids = np.zeros((len(samples), width), dtype=np.int64)
    tokens = np.zeros((len(samples), longest), dtype=np.int64)
    mask = np.zeros((len(samples), longest), dtype=np.float32)
    for row, sample in enumerate(samples):
        p, c = prompts[row], completions[row]
        ids[row, :p] = sample.prompt_ids
        ids[row, p : p + c] = sample.token_ids
        tokens[row, :c] = sample.token_ids
        mask[row, :c] = 1
    rows = np.repeat(np.arange(len(samples)), completions)
    # The token at position p + j is predicted at position p + j - 1.
    columns = np.concatenate([np.arange(p - 1, p + c - 1) for p, c in zip(prompts, completions, strict=True)])
    return Batch(*(torch.from_numpy(x).to(device) for x in (ids, tokens, mask, rows, columns)))


def micro_batches(samples: Sequence[Sample], indices: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Cut ``indices`` into lists whose padded size stays within ``max_tokens``; similar lengths go together."""
    length = {i: len(samples[i].prompt_ids) + len(samples[i].token_ids) for i in indices}
    chunk: list[int] = []
    widest = 0
    for index in sorted(indices, key=lambda i: (length[i], i)):
        grown = max(widest, length[index])
        if chunk and grown * (len(chunk) + 1) > max_tokens:
            yield chunk
            chunk, grown = [], length[index]
        chunk.append(index)
        widest = grown
    if chunk:
        yield chunk
