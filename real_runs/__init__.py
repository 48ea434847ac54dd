"""Real runs: budgeted GRPO on LoRA policies, the thing every forecast is measured against.

Importing this package is cheap; ``real_runs.run`` and what it uses import torch, transformers and peft, which
come with ``pip install 'race-rl[runs]'``.
"""

from __future__ import annotations

from importlib.util import find_spec

from race.errors import CannotDo


def require_runs_extra() -> None:
    """Raise `CannotDo` naming the extra to install when torch, transformers or peft is missing."""
    missing = [name for name in ("torch", "transformers", "peft", "safetensors") if find_spec(name) is None]
    if missing:
        raise CannotDo(
            f"real runs need {', '.join(missing)}, not installed here; install them with: pip install 'race-rl[runs]'"
        )
