"""RACE: Reward-Aware Compute Allocation for GRPO post-training.

The domain: exact FLOP accounting (`race.flops`), recipes and allocations, records and their store, the
simulator, importers and the command line. Names below load on first use, so that ``import race`` is free.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "Architecture": "race.flops",
    "LoraSpec": "race.flops",
    "Recipe": "race.recipe",
    "Allocation": "race.allocation",
    "RunPlan": "race.allocation",
    "size_run": "race.allocation",
    "Ladder": "race.ladders",
    "ladder": "race.ladders",
    "PilotSpec": "race.records",
    "PilotRecord": "race.records",
    "Curve": "race.records",
    "Health": "race.records",
    "Store": "race.store",
    "InvalidInput": "race.errors",
    "CannotDo": "race.errors",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'race' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
