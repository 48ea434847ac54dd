"""The five reward systems and the evaluation targets, by name.

Only names and costs live here: what a reward system *says* about a completion is in ``real_runs.rewards``
(for real) and in ``race.simulator`` (as noise and bias).

Targets are written ``native``, ``judge``, ``pass@1`` or ``pass@1:<benchmark>`` (``pass@1:gsm8k``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from race.errors import InvalidInput


@dataclass(frozen=True)
class RewardSystem:
    """One way to score completions.

    Attributes
    ----------
    name
        The word used everywhere: command line, records, plots.
    description
        What it rewards, in a few words.
    default_model
        Name of the reward model whose inference is charged to the reward phase; ``None`` for rules, which
        cost no model FLOPs.
    """

    name: str
    description: str
    default_model: str | None = None

    @property
    def learned(self) -> bool:
        """True when scoring a completion runs a model."""
        return self.default_model is not None


REWARD_SYSTEMS: dict[str, RewardSystem] = {
    system.name: system
    for system in (
        RewardSystem("sparse", "final answer right or wrong"),
        RewardSystem("structured", "final answer plus format"),
        RewardSystem("dense", "partial credit by rule"),
        # The paper calls its proxy a light process signal at small cost and does not name a model; a
        # 1.5B scorer of the same family is our assumption, overridable by --reward-model.
        RewardSystem("proxy-prm", "cheap process score", "qwen2.5-prm-1.5b"),
        RewardSystem("prm", "learned process reward model", "Qwen2.5-Math-PRM-7B"),
    )
}

_TARGET = re.compile(r"native|judge|pass@1(:[A-Za-z0-9][\w.\-]*)?", re.ASCII)


def reward_system(name: str) -> RewardSystem:
    """Look a reward system up; an unknown name is `InvalidInput` listing the five."""
    try:
        return REWARD_SYSTEMS[name]
    except (KeyError, TypeError):
        raise InvalidInput(f"reward: found {name!r}; allowed are {', '.join(REWARD_SYSTEMS)}") from None


def check_target(name: str) -> str:
    """Return ``name`` if it is a well-formed target, else raise `InvalidInput`."""
    if not isinstance(name, str) or not _TARGET.fullmatch(name):
        raise InvalidInput(
            f"target: found {name!r}; allowed are native, judge, pass@1, or pass@1:<benchmark> such as pass@1:gsm8k"
        )
    return name
