"""All quantities that a run's FLOPs depend on, each settled or assumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from race.cards.assumption import Assumption, Evidence
from race.cards.lengths import settle_lengths, settle_samples
from race.cards.switches import generated_by_transformers, settle_switches


def settle(e: Evidence) -> list[Assumption]:
    """Every quantity of `race.cards.assumption`, in the order in which a card lists them."""
    return [*settle_samples(e), *settle_lengths(e), *settle_switches(e)]


def settle_executed(e: Evidence) -> list[Assumption]:
    """What padded execution depends on besides; empty when batches were not padded, or nothing says how far."""
    if not generated_by_transformers(e) or not e.log.has("completion_max"):
        return []
    return [
        Assumption(
            "padded_prompt", "longest prompt over mean prompt", 1.15,
            "the longest prompt of a batch is in no log", (1.0, 2.0),
        ),
        Assumption(
            "fused_head", "head fused with the loss (scores completion tokens only, multiplies once more)", False,
            "recent TRL releases fuse it; the log does not say", (False, True),
        ),
    ]  # fmt: skip


def values_of(assumptions: Iterable[Assumption]) -> dict[str, Any]:
    """The values that the best estimate uses."""
    return {a.name: a.value for a in assumptions}
