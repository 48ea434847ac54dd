"""What a sampling loop needs of a model: feed tokens, keep keys and values, repeat and drop rows."""

from __future__ import annotations

import inspect
from typing import Protocol

from torch import Tensor
from transformers import DynamicCache, PreTrainedModel


class Cache(Protocol):
    """Keys and values of a batch, with the forward that fills them."""

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Feed tokens (B, n); the hidden state (B, H) of each row's last one.

        ``positions`` (B, n) are position ids; ``mask`` (B, columns so far) is 0 on padding, or ``None``.
        """
        ...

    def repeat(self, times: int) -> None:
        """Repeat every row, copies next to each other."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep only ``rows``, in that order."""
        ...


class TransformersCache:
    """The model's own forward and `DynamicCache`: any architecture that transformers can generate with."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.config)
        self._name = cache_argument(model)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """See `Cache.forward`."""
        output = self._model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{self._name: self._cache}
        )
        last: Tensor = output.last_hidden_state[:, -1]
        return last

    def repeat(self, times: int) -> None:
        """See `Cache.repeat`."""
        self._cache.batch_repeat_interleave(times)

    def select(self, rows: Tensor) -> None:
        """See `Cache.select`."""
        self._cache.batch_select_indices(rows)


def cache_argument(model: PreTrainedModel) -> str:
    """What the model's forward calls its key/value cache: transformers renamed ``past_key_values`` in 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
