"""How far totals move when what was assumed is wrong: one at a time, and all together.

Each unsettled quantity has two ends. Alone, the run is priced at both ends with everything else at its best
estimate. Together, it is priced at every combination of ends (there are at most 2^`MAX_JOINT` of them; beyond that
the quantities that move the total least share one choice: all at their cheap ends, or all at their dear ends). The
range of a total, of a phase and of a share is the span of all of these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from race.allocation import Allocation
from race.cards.assumption import Assumption
from race.hardware import PHASES, Range

MAX_JOINT = 8
Pricer = Callable[[Mapping[str, Any]], Allocation]


@dataclass(frozen=True)
class Move:
    """What one assumption does to the total, alone: FLOPs at its ends, ``lo <= hi``."""

    assumption: Assumption
    lo: float
    hi: float


@dataclass(frozen=True)
class Ranges:
    """Best estimate, and ranges over all assumptions.

    ``total``, ``phases`` in FLOPs; ``shares`` by phase; ``moves`` in falling order of width.
    """

    point: Allocation
    total: Range
    phases: Mapping[str, Range]
    shares: Mapping[str, Range]
    moves: tuple[Move, ...]
    corners: tuple[Allocation, ...]


def ranges_of(assumptions: Sequence[Assumption], price: Pricer) -> Ranges:
    """Price the best estimate and every end."""
    base = {a.name: a.value for a in assumptions}
    point = price(base)
    seen = [point]
    moves: list[Move] = []
    cheap: dict[str, Any] = {}
    dear: dict[str, Any] = {}
    for a in assumptions:
        if a.ends is None:
            continue
        alone = [price({**base, a.name: end}) for end in a.ends]
        seen += alone
        totals = [*(float(x.total) for x in alone), float(point.total)]
        low, high = min(totals), max(totals)
        options = (*a.ends, a.value)
        # Ends that cost the same alone (a switch that another one opens) must still both be tried together.
        cheap[a.name] = options[min(range(3), key=lambda i: (totals[i], i != 0))]
        dear[a.name] = options[max(range(3), key=lambda i: (totals[i], i == 1))]
        moves.append(Move(a, low, high))
    moves.sort(key=lambda m: m.lo - m.hi)
    free = [m.assumption.name for m in moves[:MAX_JOINT]]
    rest = [m.assumption.name for m in moves[MAX_JOINT:]]
    for choice in itertools.product((cheap, dear), repeat=len(free) + bool(rest)):
        values = {**base, **{name: side[name] for name, side in zip(free, choice, strict=False)}}
        if rest:
            values |= {name: choice[-1][name] for name in rest}
        seen.append(price(values))
    return Ranges(
        point=point,
        total=_span([float(a.total) for a in seen], float(point.total)),
        phases={p: _span([float(getattr(a, p)) for a in seen], float(getattr(point, p))) for p in PHASES},
        shares={p: _span([a.shares[p] for a in seen], point.shares[p]) for p in PHASES},
        moves=tuple(moves),
        corners=tuple(seen),
    )


def _span(values: Sequence[float], point: float) -> Range:
    finite = [v for v in values if math.isfinite(v)]
    return Range(min(*finite, point), point, max(*finite, point)) if len(finite) > 1 else Range.exactly(point)
