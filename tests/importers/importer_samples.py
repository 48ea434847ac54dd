"""One good log per format, for the contract tests: add one here with every new importer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from race.importers import ModelRef, RunFacts

RECIPE = {
    "reward": "sparse",
    "prompts_per_step": 8,
    "group_size": 4,
    "prompt_tokens": 105,
    "completion_tokens": 250,
    "lora_rank": 16,
}


@dataclass(frozen=True)
class Sample:
    """A log that ``write`` puts into a folder, what is known about it, and how many runs it holds."""

    write: Callable[[Path], Path]
    facts: RunFacts
    runs: int


def _csv(folder: Path) -> Path:
    path = folder / "curves.csv"
    path.write_text("step,a,b\n0,0.1,0.3\n10,,0.4\n20,0.3,0.5\n")
    return path


SAMPLES: dict[str, Sample] = {
    "csv": Sample(
        _csv,
        RunFacts(
            recipe=RECIPE,
            allow_gaps=True,
            target="pass@1:gsm8k",
            models={"a": ModelRef("qwen2.5-1.5b"), "b": ModelRef("qwen2.5-3b")},
        ),
        runs=2,
    ),
}
