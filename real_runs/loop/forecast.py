"""What a loop is going to spend, before it spends it: FLOPs, hours and dollars, as ranges.

FLOPs are bounded by the pilot budget. Hours come from pilots of this loop that have run already (seconds per FLOP of
each, least to most), else from a GPU's peak and the utilisation ranges of `race.hardware`. A ladder that runs on CPUs
has no such table: then there is nothing to say before the first pilot, and nothing is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from race.allocation import Allocation
from race.hardware import HardwareCost, Range
from race.records import PilotRecord
from race.units import format_flops

# From here on a loop asks before it starts: about an hour of one H100 at the usual utilisation.
LARGE = 1e17


@dataclass(frozen=True)
class Forecast:
    """What is still to be spent.

    Attributes
    ----------
    flops
        From nothing (the regime may be certain after the next pilot) to all that is left.
    wall_hours, dollars
        ``None`` where nothing is known to compute them from.
    basis
        Where the hours come from, in words.
    """

    flops: Range
    wall_hours: Range | None
    dollars: Range | None
    basis: str

    @property
    def large(self) -> bool:
        """True when somebody should be asked first."""
        return self.flops.hi >= LARGE

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "flops": self.flops.to_dict(),
            "wall_hours": None if self.wall_hours is None else self.wall_hours.to_dict(),
            "dollars": None if self.dollars is None else self.dollars.to_dict(),
            "basis": self.basis,
        }

    def sentence(self) -> str:
        """For people."""
        parts = [f"up to {format_flops(self.flops.hi)} FLOPs"]
        if self.wall_hours is not None:
            parts.append(f"{_span(self.wall_hours)} hours")
        if self.dollars is not None:
            parts.append(f"{_span(self.dollars)} dollars")
        return f"{', '.join(parts)} ({self.basis})"


def forecast(
    remaining: float,
    smallest: float,
    *,
    shares: Allocation,
    workers: int,
    records: Sequence[PilotRecord] = (),
    hardware: HardwareCost | None = None,
    guess: HardwareCost | None = None,
) -> Forecast:
    """Forecast the spending of ``remaining`` pilot FLOPs.

    Parameters
    ----------
    smallest
        FLOPs of the smallest pilot: less than one is not spent.
    shares
        How the next pilots split ``remaining`` FLOPs by phase; what ``hardware`` and ``guess`` were computed for.
    workers
        Pilots that run side by side.
    records
        Real pilots of this loop that have run.
    hardware
        Cost of ``shares`` on the GPU that the user named.
    guess
        The same on a usual GPU, used for hours where nothing better is known; ``None`` for ladders of CPUs.
    """
    flops = Range(min(smallest, remaining), remaining, remaining)
    paces = [
        sum(r.seconds.values()) / r.flops.total
        for r in records
        if r.evidence == "real" and r.health.status == "ok" and r.flops.total > 0 and sum(r.seconds.values()) > 0
    ]
    cost = hardware or guess
    least = flops.lo / remaining if remaining > 0 else 0.0
    if paces:
        middle = sorted(paces)[len(paces) // 2]
        hours = Range(
            min(paces) * flops.lo / workers / 3600,
            middle * remaining / workers / 3600,
            max(paces) * remaining / workers / 3600,
        )
        price = hardware.gpu.price if hardware is not None else None
        dollars = None if price is None else hours * price * float(workers)
        pilots = f"{len(paces)} pilot{'s' if len(paces) > 1 else ''}"
        return Forecast(flops, hours, dollars, f"measured on {pilots} of this loop, {workers} at a time")
    if cost is None:
        return Forecast(flops, None, None, "hours are known after the first pilot")
    total = cost.wall_hours
    hours = Range(total.lo * least, total.point, total.hi)
    money = cost.dollars
    dollars = None if money is None else Range(money.lo * least, money.point, money.hi)
    assumed = "" if hardware is not None else ", assumed; name yours with --gpu"
    return Forecast(flops, hours, dollars, f"{cost.count} x {cost.gpu.name}{assumed}")


def _span(value: Range) -> str:
    return f"{value.lo:,.2g} to {value.hi:,.2g}"
