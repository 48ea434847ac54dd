"""What a run on the nano ladder uses unless told otherwise; `docs/nano-ladder.md` has the measurements behind it.

The recipe's defaults (P = 8 prompts of 15 tokens, G = 8 completions of 27, LoRA rank 8) are the ladder's, so that
plans and runs agree: `race.ladders`. Here is what depends on the size of the model, or costs no FLOPs.
"""

from __future__ import annotations

from typing import Any

# FLOPs of a whole pilot: sparse gains half or more of what there is to gain, and stays below 0.9.
BUDGETS = {"nano-s": "2e11", "nano-m": "6e11", "nano-l": "1.5e12"}
LEARNING_RATES = {"nano-s": 1e-3, "nano-m": 1e-3, "nano-l": 1.5e-3}
LORA_ALPHA = 32.0
# One thread: on matrices this small a second one gains little, and wastes most of its time on a machine that is busy.
THREADS = 1


def default_budget(model: str) -> str | None:
    """The largest budget of a pilot on ``model``; ``None`` for a model that is not of this ladder."""
    return BUDGETS.get(model.lower())


def default_options(model: str) -> dict[str, Any]:
    """Fields of `real_runs.config.RunOptions` that fit ``model``; none for a model that is not of this ladder."""
    rate = LEARNING_RATES.get(model.lower())
    return {} if rate is None else {"learning_rate": rate, "lora_alpha": LORA_ALPHA, "threads": THREADS}
