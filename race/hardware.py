"""From FLOPs to GPU-hours, dollars and kWh.

    hours[phase] = FLOPs[phase] / (peak * MFU[phase]) / 3600
    dollars      = sum of hours * price
    kWh          = sum of hours[phase] * board watts * draw[phase] * PUE / 1000

FLOPs are exact; everything after them is not. The three phases use a GPU very differently (decoding is bound by
memory bandwidth, updates by arithmetic), so there are three model-FLOPs utilisations (MFU), not one. Each
uncertain quantity is a `Range`, and a result's ``lo`` and ``hi`` combine the favourable and the unfavourable
ends of all of them: bounds under the stated assumptions, not a confidence interval.

Peaks are dense bf16 rates (data sheets often quote twice that, with 2:4 sparsity). Built-in GPUs, prices and
default utilisations are in ``race/data/hardware.json`` with their sources; all of them can be overridden.
What is left out: idle GPUs, loading, weight synchronisation, restarts, network and host power.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from race.allocation import Allocation
from race.checks import check_whole
from race.errors import InvalidInput

PHASES = ("search", "learning", "reward")
DEFAULT_GPU = "H100-SXM"


@dataclass(frozen=True)
class Range:
    """A quantity as a best guess between two bounds, ``lo <= point <= hi``."""

    lo: float
    point: float
    hi: float

    def __post_init__(self) -> None:
        if not self.lo <= self.point <= self.hi:
            raise InvalidInput(
                f"range: found {self.lo}, {self.point}, {self.hi}; allowed is lo <= point <= hi"
            )

    @classmethod
    def exactly(cls, value: float) -> Range:
        """A range of one value."""
        return cls(value, value, value)

    def __add__(self, other: Range) -> Range:
        return Range(self.lo + other.lo, self.point + other.point, self.hi + other.hi)

    def __mul__(self, other: Range | float) -> Range:
        """Product of two independent non-negative ranges, or of a range and a factor >= 0."""
        if not isinstance(other, Range):
            other = Range.exactly(other)
        return Range(self.lo * other.lo, self.point * other.point, self.hi * other.hi)

    def inverse(self) -> Range:
        """``1 / x`` of a positive range."""
        return Range(1 / self.hi, 1 / self.point, 1 / self.lo)

    def to_dict(self) -> dict[str, float]:
        """Plain JSON types."""
        return {"lo": self.lo, "point": self.point, "hi": self.hi}


Quantity = Range | float | tuple[float, float, float]


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes
    ----------
    name, aliases
        As looked up, without regard to case, spaces, dashes or the maker's name.
    peak_flops
        Dense bf16 FLOP/s of one GPU.
    watts
        Board power limit of one GPU.
    memory_gb
        Memory of one GPU.
    price
        US dollars per GPU-hour, or ``None`` where the table has no dated offer.
    sources
        Where peak and price come from, and when.
    """

    name: str
    peak_flops: float
    watts: float
    memory_gb: float
    price: Range | None
    aliases: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Utilisation:
    """Model-FLOPs utilisation of each phase, shares of peak in (0, 1].

    Give numbers, ``(lo, point, hi)`` triples or `Range` objects; a plain number has no range.
    """

    search: Quantity
    learning: Quantity
    reward: Quantity

    def __post_init__(self) -> None:
        for phase in PHASES:
            value = _quantity(
                f"utilisation.{phase}", getattr(self, phase), high=1.0, what="a share in (0, 1]"
            )
            object.__setattr__(self, phase, value)

    def of(self, phase: str) -> Range:
        """The range of one phase."""
        value: Range = getattr(self, phase)
        return value


@dataclass(frozen=True)
class HardwareCost:
    """What an allocation takes on given hardware.

    Attributes
    ----------
    gpu, count
        The hardware.
    gpu_hours
        By phase.
    dollars
        ``None`` when neither the table nor the user has a price.
    kwh
        Boards and facility overhead; hosts are not counted.
    utilisation, draw, pue
        What was assumed, besides ``gpu``.
    """

    gpu: Gpu
    count: int
    gpu_hours: Mapping[str, Range]
    dollars: Range | None
    kwh: Range
    utilisation: Utilisation
    draw: Mapping[str, Range]
    pue: Range

    @property
    def total_gpu_hours(self) -> Range:
        """Sum over phases."""
        return self.gpu_hours["search"] + self.gpu_hours["learning"] + self.gpu_hours["reward"]

    @property
    def wall_hours(self) -> Range:
        """GPU-hours over GPUs: losses of scaling out belong into the utilisations."""
        return self.total_gpu_hours * (1 / self.count)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, with every assumption beside the results."""
        return {
            "gpu": self.gpu.name,
            "count": self.count,
            "gpu_hours": self.total_gpu_hours.to_dict(),
            "gpu_hours_by_phase": {phase: hours.to_dict() for phase, hours in self.gpu_hours.items()},
            "wall_hours": self.wall_hours.to_dict(),
            "dollars": self.dollars.to_dict() if self.dollars else None,
            "kwh": self.kwh.to_dict(),
            "assumptions": {
                "peak_flops": self.gpu.peak_flops,
                "utilisation": {phase: self.utilisation.of(phase).to_dict() for phase in PHASES},
                "price": self.gpu.price.to_dict() if self.gpu.price else None,
                "watts": self.gpu.watts,
                "draw": {phase: draw.to_dict() for phase, draw in self.draw.items()},
                "pue": self.pue.to_dict(),
                "sources": list(self.gpu.sources),
            },
        }


def hardware_cost(
    allocation: Allocation,
    gpu: str | Gpu = DEFAULT_GPU,
    *,
    count: int = 1,
    utilisation: Utilisation | Mapping[str, Quantity] | None = None,
    price: Quantity | None = None,
    watts: float | None = None,
    peak_flops: float | None = None,
    draw: Quantity | None = None,
    pue: Quantity | None = None,
) -> HardwareCost:
    """Translate FLOPs by phase into GPU-hours, dollars and kWh.

    Parameters
    ----------
    allocation
        FLOPs by phase.
    gpu
        A built-in name (`gpu_names`) or a `Gpu`.
    count
        GPUs working at once; changes wall-clock hours only.
    utilisation
        MFU per phase; phases left out of a mapping keep their default range.
    price, watts, peak_flops
        Override the table: dollars per GPU-hour, board watts, dense bf16 FLOP/s.
    draw
        Share of board power drawn, the same for all phases; by default each phase has its own.
    pue
        Facility power over IT power, at least 1.

    Raises
    ------
    InvalidInput
        Unknown GPU (with the nearest names), or a value out of range (with the field's name).

    Examples
    --------
    >>> cost = hardware_cost(Allocation(36e17, 0, 0), "H100-SXM", utilisation={"search": 1.0})
    >>> round(cost.total_gpu_hours.point, 3)
    1.011
    """
    device = _override(gpu if isinstance(gpu, Gpu) else find_gpu(gpu), price, watts, peak_flops)
    check_whole("count", count, low=1, high=10**6)
    mfu = _utilisation(utilisation)
    draws = _default_draw() if draw is None else dict.fromkeys(PHASES, _draw(draw))
    overhead = (
        _quantity("pue", pue, low=1.0, high=10.0, what="a number from 1 to 10") if pue is not None else _pue()
    )
    hours: dict[str, Range] = {}
    kwh = Range.exactly(0.0)
    for phase in PHASES:
        flops = getattr(allocation, phase)
        if not 0 <= flops < math.inf:
            raise InvalidInput(f"flops.{phase}: found {flops!r}; allowed is a finite number of FLOPs >= 0")
        hours[phase] = mfu.of(phase).inverse() * (float(flops) / device.peak_flops / 3600)
        kwh = kwh + hours[phase] * draws[phase] * overhead * (device.watts / 1000)
    total = hours["search"] + hours["learning"] + hours["reward"]
    dollars = total * device.price if device.price is not None else None
    return HardwareCost(device, count, hours, dollars, kwh, mfu, draws, overhead)


def find_gpu(name: str) -> Gpu:
    """Look a GPU up in the built-in table; `InvalidInput` with the nearest names when it is not there.

    Names as `torch.cuda.get_device_name` prints them ("NVIDIA H100 80GB HBM3") are found too.
    """
    table = _by_key()
    key = _key(name) if isinstance(name, str) else ""
    if key in table:
        return table[key]
    near = difflib.get_close_matches(key, table, n=4, cutoff=0.4)
    nearest = list(dict.fromkeys(table[k].name for k in near)) or list(gpu_names())
    raise InvalidInput(
        f"gpu: found {name!r}; nearest are {', '.join(nearest)}; allowed are {', '.join(gpu_names())}, or any GPU "
        "with its peak FLOP/s, watts and price given"
    )


def gpu_names() -> tuple[str, ...]:
    """Names of the built-in GPUs."""
    return tuple(_gpu(entry).name for entry in _data()["gpus"])


def default_utilisation() -> Utilisation:
    """The documented defaults: sources and reasons are in ``race/data/hardware.json``."""
    return Utilisation(**{phase: _range(_data()["utilisation"][phase]) for phase in PHASES})


def _override(gpu: Gpu, price: Quantity | None, watts: float | None, peak_flops: float | None) -> Gpu:
    given = []
    if price is not None:
        gpu = replace(
            gpu, price=_quantity("price", price, low=0.0, high=1e6, what="dollars per GPU-hour, at most 1e6")
        )
        given.append("price")
    if watts is not None:
        gpu = replace(gpu, watts=_quantity("watts", watts, high=1e6, what="watts per GPU, at most 1e6").point)
        given.append("watts")
    if peak_flops is not None:
        peak = _quantity("peak_flops", peak_flops, high=1e20, what="FLOP/s of one GPU, such as 989e12").point
        gpu = replace(gpu, peak_flops=peak)
        given.append("peak_flops")
    return replace(gpu, sources=(*gpu.sources, f"given by the user: {', '.join(given)}")) if given else gpu


def _utilisation(given: Utilisation | Mapping[str, Quantity] | None) -> Utilisation:
    if isinstance(given, Utilisation):
        return given
    values: dict[str, Quantity] = {phase: default_utilisation().of(phase) for phase in PHASES}
    for phase, value in (given or {}).items():
        if phase not in values:
            raise InvalidInput(f"utilisation: unknown phase {phase!r}; allowed are {', '.join(PHASES)}")
        values[phase] = value
    return Utilisation(**values)


def _draw(value: Quantity) -> Range:
    return _quantity("draw", value, high=1.0, what="a share of board power in (0, 1]")


def _quantity(field: str, value: Any, *, high: float, what: str, low: float | None = None) -> Range:
    """Check a number or a triple; open at zero when ``low`` is None."""
    parts = (value.lo, value.point, value.hi) if isinstance(value, Range) else value
    if not isinstance(parts, tuple):
        parts = (parts, parts, parts)
    for part in parts:
        number = isinstance(part, (int, float)) and not isinstance(part, bool)
        if not number or not part <= high or not (part > 0 if low is None else part >= low):
            raise InvalidInput(f"{field}: found {part!r}; allowed is {what}")
    if len(parts) != 3 or not parts[0] <= parts[1] <= parts[2]:
        raise InvalidInput(f"{field}: found {parts!r}; allowed is one number, or lo <= point <= hi")
    return Range(*(float(part) for part in parts))


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(
        files("race.data").joinpath("hardware.json").read_text(encoding="utf-8")
    )
    return data


def _range(entry: Mapping[str, Any]) -> Range:
    return Range(entry["lo"], entry["point"], entry["hi"])


def _pue() -> Range:
    return _range(_data()["pue"])


def _default_draw() -> dict[str, Range]:
    return {phase: _range(_data()["power_draw"][phase]) for phase in PHASES}


def _gpu(entry: Mapping[str, Any]) -> Gpu:
    price = entry["price"]
    sources = [f"peak: {entry['peak_source']}"]
    if "note" in entry:
        sources.append(f"note: {entry['note']}")
    if price is not None:
        sources.append(f"price, {price['date']}: {'; '.join(price['sources'])}")
    return Gpu(
        name=entry["name"],
        peak_flops=entry["peak_flops"],
        watts=entry["watts"],
        memory_gb=entry["memory_gb"],
        price=_range(price) if price is not None else None,
        aliases=tuple(entry["aliases"]),
        sources=tuple(sources),
    )


@lru_cache(maxsize=1)
def _by_key() -> dict[str, Gpu]:
    gpus = [_gpu(entry) for entry in _data()["gpus"]]
    return {_key(name): gpu for gpu in gpus for name in (gpu.name, *gpu.aliases)}


def _key(name: str) -> str:
    words = re.split(r"[\s_\-]+", name.strip().lower())
    return "".join(word for word in words if word not in ("nvidia", "amd", "geforce", "tesla", "instinct"))
