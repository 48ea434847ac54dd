"""What a trainer has spent, kept in every convention at once, so that each can be reported and none is lost.

Two columns, each in both attention conventions:

needed      every sample at its own length: no padding, one head position per completion token. What the recipe's
            arithmetic (`race.allocation`) charges, whatever the batch looked like.
executed    what the modules really multiplied: batches padded to their longest row, rows that wait for the last one
            to finish decoding, the head where the trainer computes it. With ``full`` attention this is what
            ``torch.utils.flop_counter`` sees under eager attention.

Everything is a Python integer. Evaluation has a pass of its own and is in no total.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from race.allocation import Allocation
from race.checks import check_object, check_whole

Column = Literal["needed", "executed"]
Attention = Literal["causal", "full"]
Pass = Literal["search", "old_logprobs", "reference", "update", "reward", "eval"]
#: FLOPs of one piece of work in both attention conventions.
Price = Mapping[Attention, int]

COLUMNS: tuple[Column, ...] = ("needed", "executed")
ATTENTIONS: tuple[Attention, ...] = ("causal", "full")
PASSES: tuple[Pass, ...] = ("search", "old_logprobs", "reference", "update", "reward", "eval")
LEARNING: tuple[Pass, ...] = ("old_logprobs", "reference", "update")

Key = tuple[Column, Attention, Pass]
KEYS: tuple[Key, ...] = tuple((c, a, p) for c in COLUMNS for a in ATTENTIONS for p in PASSES)


class Tally:
    """FLOPs by column, attention convention and pass."""

    def __init__(self, counts: Mapping[Key, int] | None = None) -> None:
        self._counts: dict[Key, int] = dict.fromkeys(KEYS, 0) | dict(counts or {})

    def book(self, column: Column, what: Pass, price: Price, times: int = 1) -> None:
        """Add ``times`` pieces of work."""
        for attention in ATTENTIONS:
            self._counts[column, attention, what] += times * price[attention]

    def add(self, other: Tally) -> None:
        """Add another tally, another process's for instance."""
        for key in KEYS:
            self._counts[key] += other._counts[key]

    def get(self, column: Column, attention: Attention, what: Pass) -> int:
        """FLOPs of one pass."""
        return self._counts[column, attention, what]

    def allocation(self, column: Column, attention: Attention) -> Allocation:
        """Search, learning and reward; evaluation is left out."""
        learning = sum(self.get(column, attention, what) for what in LEARNING)
        return Allocation(
            self.get(column, attention, "search"), learning, self.get(column, attention, "reward")
        )

    def to_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Plain JSON types: column, attention, pass."""
        return {
            column: {
                attention: {what: self.get(column, attention, what) for what in PASSES}
                for attention in ATTENTIONS
            }
            for column in COLUMNS
        }

    @classmethod
    def from_dict(cls, data: Any, *, where: str) -> Tally:
        """Read back what `to_dict` wrote; anything else is `InvalidInput`."""
        counts: dict[Key, int] = {}
        columns = check_object(where, data, required=COLUMNS)
        for column in COLUMNS:
            by_attention = check_object(f"{where}.{column}", columns[column], required=ATTENTIONS)
            for attention in ATTENTIONS:
                place = f"{where}.{column}.{attention}"
                passes = check_object(place, by_attention[attention], required=PASSES)
                for what in PASSES:
                    flops = check_whole(f"{place}.{what}", passes[what], low=0, high=10**31)
                    counts[column, attention, what] = flops
        return cls(counts)
