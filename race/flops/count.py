"""A number of FLOPs that says what it consists of and by which convention it was counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from race.errors import InvalidInput


@dataclass(frozen=True)
class Convention:
    """What a count includes. Numbers of different conventions must not be added or compared.

    Attributes
    ----------
    name
        Who counts this way.
    attention
        ``causal``: the unmasked query-key pairs only; ``full``: all S x S scores; or another tool's habit.
    embeddings, head, recompute, rotary
        How the embedding look-up, the output head, gradient checkpointing's second forward and the
        cos/sin tables are counted.
    """

    name: str
    attention: str
    embeddings: str = "look-up, 0"
    head: str = "positions asked for"
    recompute: str = "as executed"
    rotary: str = "elementwise, 0"

    def __str__(self) -> str:
        return (
            f"{self.name}: attention {self.attention}; embeddings {self.embeddings}; head {self.head}; "
            f"recompute {self.recompute}; rotary {self.rotary}"
        )


@dataclass(frozen=True)
class FlopCount:
    """FLOPs with their breakdown and convention.

    Attributes
    ----------
    parts
        ``"phase.kind"`` -> FLOPs, exact integers. Phases: ``forward``, ``backward``, ``recompute``, or
        ``prefill`` and ``decode``. Kinds: ``linear``, ``attention``, ``experts``, ``router``, ``lora``,
        ``head``, ``rotary``.
    convention
        What was counted and how.

    Examples
    --------
    >>> one = FlopCount({"forward.linear": 6, "forward.head": 4}, Convention("race", "causal"))
    >>> (one + one).total
    20
    """

    parts: Mapping[str, int]
    convention: Convention
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(self.parts.values()))

    def __int__(self) -> int:
        return self.total

    def __float__(self) -> float:
        return float(self.total)

    def __add__(self, other: FlopCount) -> FlopCount:
        if not isinstance(other, FlopCount):
            return NotImplemented
        if other.convention != self.convention:
            raise InvalidInput(
                f"convention: cannot add FLOPs counted as [{self.convention}] and as [{other.convention}]; "
                "count both the same way"
            )
        parts = dict(self.parts)
        for part, flops in other.parts.items():
            parts[part] = parts.get(part, 0) + flops
        return FlopCount(parts, self.convention)

    def __radd__(self, other: object) -> FlopCount:
        return self if other == 0 else NotImplemented  # so that sum() works

    def __mul__(self, times: int) -> FlopCount:
        if isinstance(times, bool) or not isinstance(times, int) or times < 0:
            raise InvalidInput(f"times: {times!r} is not a whole number >= 0")
        return FlopCount({part: flops * times for part, flops in self.parts.items()}, self.convention)

    __rmul__ = __mul__

    def by_phase(self) -> dict[str, int]:
        """FLOPs per phase."""
        return self._grouped(0)

    def by_kind(self) -> dict[str, int]:
        """FLOPs per kind of matmul."""
        return self._grouped(1)

    def _grouped(self, side: int) -> dict[str, int]:
        grouped: dict[str, int] = {}
        for part, flops in self.parts.items():
            key = part.partition(".")[2 * side]
            grouped[key] = grouped.get(key, 0) + flops
        return grouped
