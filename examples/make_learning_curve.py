"""Make ``learning_curve.csv``: three made-up GRPO learning curves, for trying ``race import`` without a run.

Nothing here was measured. Each curve is a logistic rise in log(1 + step) between a start and a ceiling of our
choosing, seen through the noise of scoring 1,319 questions (the size of the GSM8K test set), with two cells
left empty as logs have them. The shape is that of a real export: a step column, one column per model, an
evaluation every four steps.

    python examples/make_learning_curve.py
"""

from __future__ import annotations

import math
import random
from pathlib import Path

QUESTIONS = 1319
STEPS = range(0, 57, 4)
# name: start, ceiling, step at half of the rise, steepness
MODELS = {"small": (0.42, 0.72, 14, 2.2), "medium": (0.58, 0.83, 12, 2.0), "large": (0.74, 0.92, 9, 1.8)}
NOT_EVALUATED = {("large", 20), ("small", 48)}


def accuracy(name: str, step: int) -> float:
    """Expected accuracy of model ``name`` after ``step`` steps."""
    start, ceiling, half, steepness = MODELS[name]
    rise = 0.0 if step == 0 else 1 / (1 + math.exp(-steepness * math.log((1 + step) / (1 + half))))
    return start + (ceiling - start) * rise


def main() -> None:
    rng = random.Random(20260713)
    lines = [",".join(["step", *MODELS])]
    for step in STEPS:
        cells = [str(step)]
        for name in MODELS:
            right = sum(rng.random() < accuracy(name, step) for _ in range(QUESTIONS))
            cells.append("" if (name, step) in NOT_EVALUATED else f"{right / QUESTIONS:.4f}")
        lines.append(",".join(cells))
    Path(__file__).with_name("learning_curve.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
