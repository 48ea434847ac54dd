"""How much there is to multiply: tokens, head positions and query-key pairs of sequences.

FLOPs are rates (``race.flops.matmuls``) times work. Work is a polynomial in the lengths, so the same few
lines serve Python integers (exact), floats (mean lengths) and numpy arrays (broadcast):

    tokens                n
    pairs, full           n^2
    pairs, causal         n (n + 1) / 2, and with a sliding window W: sum over tokens of min(position, W)
    decode of c tokens    the c - 1 forwards that feed tokens p + 1 .. p + c - 1 back, against the cache

The pairs are counted twice (``twice_pairs``) to stay whole numbers; rates are per half pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from race.flops.checks import Attention
from race.flops.matmuls import Pairs, Rates, Unit

UnitRates = tuple[tuple[Unit, int], ...]


def twice_causal_pairs(n: Any, window: int | None) -> Any:
    """2 * sum_{i=1..n} min(i, window): unmasked pairs of a causal sequence, twice."""
    if window is None:
        return n * (n + 1)
    inside = min(n, window) if isinstance(n, (int, float)) else np.minimum(n, window)
    return inside * (inside + 1) + 2 * (n - inside) * window


@dataclass(frozen=True)
class Work:
    """Amounts to multiply by rates. Fields are ints, floats or arrays alike.

    ``twice_pairs`` maps each distinct sliding window of the model to twice the number of pairs.
    """

    tokens: Any
    logits: Any
    twice_pairs: dict[int | None, Any]

    def amount(self, unit: Unit) -> Any:
        """The amount that a rate per ``unit`` is multiplied by."""
        if isinstance(unit, Pairs):
            return self.twice_pairs[unit.window]
        return self.tokens if unit == "token" else self.logits


def sequence(n: Any, logits: Any, attention: Attention, windows: Collection[int | None]) -> Work:
    """Work of one forward over a sequence of ``n`` tokens with the head at ``logits`` positions."""
    if attention == "full":
        return Work(n, logits, dict.fromkeys(windows, 2 * n * n))
    return Work(n, logits, {window: twice_causal_pairs(n, window) for window in windows})


def decode(prompt: Any, completion: Any, windows: Collection[int | None]) -> Work:
    """Work of cached decoding after the prefill: ``completion - 1`` forwards of one token each.

    The cache of a sliding-window layer holds the window only, so both attention conventions agree here.
    """
    fed = completion - 1
    pairs = {w: twice_causal_pairs(prompt + fed, w) - twice_causal_pairs(prompt, w) for w in windows}
    return Work(fed, fed, pairs)


def add(works: Iterable[Work], windows: Collection[int | None]) -> Work:
    """Sum of several pieces of work: ragged batches are summed exactly, sequence by sequence."""
    tokens, logits, pairs = 0, 0, dict.fromkeys(windows, 0)
    for work in works:
        tokens += work.tokens
        logits += work.logits
        for window, amount in work.twice_pairs.items():
            pairs[window] += amount
    return Work(tokens, logits, pairs)


def by_unit(rates: Rates) -> UnitRates:
    """Rates summed over phases and kinds, so that a total needs one product per unit."""
    summed: dict[Unit, int] = {}
    for term, rate in rates.items():
        summed[term.unit] = summed.get(term.unit, 0) + rate
    return tuple(summed.items())


def total(rates: UnitRates, work: Work) -> Any:
    """FLOPs: the sum of rate times amount."""
    return sum(rate * work.amount(unit) for unit, rate in rates)
