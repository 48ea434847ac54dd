"""Solutions to steps, and step scores to one number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from race.errors import InvalidInput

# Qwen2.5-Math-PRM was trained on solutions cut at blank lines.
DELIMITER = "\n\n"
MAX_STEPS = 256

# Sums are left out: rewarding more steps for being more is known to collapse training (PURE, arXiv 2504.15275).
AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": lambda steps: sum(steps) / len(steps),
    "prod": math.prod,
    "last": lambda steps: steps[-1],
}


def split_steps(text: str, *, delimiter: str = DELIMITER) -> list[str]:
    """Steps of a solution, stripped, none of them empty.

    Beyond `MAX_STEPS` the rest is one last step: a policy cannot buy unbounded scoring with blank lines.
    """
    # Any blank line is the default delimiter, white space on it or not.
    pieces = re.split(r"\n[ \t]*\n\s*", text) if delimiter == DELIMITER else text.split(delimiter)
    steps = [piece.strip() for piece in pieces if piece.strip()]
    if len(steps) > MAX_STEPS:
        steps = [*steps[: MAX_STEPS - 1], delimiter.join(steps[MAX_STEPS - 1 :])]
    return steps


def check_aggregation(name: str) -> str:
    """``name`` if it is an aggregation, else `InvalidInput`."""
    if name not in AGGREGATIONS:
        raise InvalidInput(f"aggregation: found {name!r}; allowed are {', '.join(AGGREGATIONS)}")
    return name


def aggregate(probabilities: Sequence[float], how: str) -> float:
    """One score in [0, 1] from one probability per step; 0 without any step."""
    return float(AGGREGATIONS[check_aggregation(how)](probabilities)) if probabilities else 0.0
