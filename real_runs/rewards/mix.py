"""Weighted mixes of reward systems, written ``0.9*prm+0.1*sparse``.

A tenth of verifiable reward keeps a PRM from being gamed (PURE, arXiv 2504.15275).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from race.errors import CannotDo, InvalidInput
from race.rewards import reward_system
from real_runs.contracts import Completion, Reward, Scores

_TERM = re.compile(r"^\s*(?:([0-9.eE+-]+)\s*\*\s*)?([A-Za-z][A-Za-z-]*)\s*$")


def parse_mix(text: str) -> dict[str, float]:
    """``0.9*prm+0.1*sparse`` to weights by reward system; a single name has weight 1.

    Raises
    ------
    InvalidInput
        A malformed term, an unknown or repeated reward system, or weights that do not add up to 1.
    """
    weights: dict[str, float] = {}
    terms = text.split("+") if isinstance(text, str) else []
    for term in terms:
        match = _TERM.match(term)
        if match is None or (match.group(1) is None and len(terms) > 1):
            raise InvalidInput(
                f"reward: found {text!r}; allowed is a reward system, or a mix such as 0.9*prm+0.1*sparse"
            )
        name = reward_system(match.group(2)).name
        if name in weights:
            raise InvalidInput(f"reward: found {name!r} twice in {text!r}; allowed is each reward system once")
        weights[name] = _weight(match.group(1) or "1", text)
    if not weights:
        raise InvalidInput(f"reward: found {text!r}; allowed is a reward system, or a mix such as 0.9*prm+0.1*sparse")
    total = sum(weights.values())
    if abs(total - 1) > 1e-6:
        raise InvalidInput(f"reward: the weights of {text!r} add up to {total:g}; allowed is a sum of 1")
    return weights


def _weight(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise InvalidInput(f"reward: found weight {text!r} in {whole!r}; allowed is a number above 0, up to 1")
    return value


def mix_name(weights: Mapping[str, float]) -> str:
    """The canonical spelling of a mix."""
    if len(weights) == 1:
        return next(iter(weights))
    return "+".join(f"{weight:g}*{name}" for name, weight in weights.items())


class MixedReward:
    """A weighted sum of rewards; implements `real_runs.contracts.Reward`.

    Parameters
    ----------
    parts
        ``(weight, reward)``; weights add up to 1, so the mix stays in [0, 1].
    """

    def __init__(self, parts: Sequence[tuple[float, Reward]]) -> None:
        weights = {reward.name: weight for weight, reward in parts}
        if len(weights) != len(parts) or not parts or abs(sum(weights.values()) - 1) > 1e-6:
            raise InvalidInput(
                f"reward: found parts {[(w, r.name) for w, r in parts]}; allowed are different rewards with weights "
                "that add up to 1"
            )
        self.name = mix_name(weights)
        self.parts = tuple(parts)

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """The sum over the parts: each of them scores."""
        return sum(reward.flops_bound(prompt_tokens, completion_tokens) for _, reward in self.parts)

    def score(self, completions: Sequence[Completion]) -> Scores:
        """Shape (n,): the weighted sum; components are logged under their reward's name."""
        values = np.zeros(len(completions))
        flops = 0
        parts: dict[str, npt.NDArray[np.float64]] = {}
        health: dict[str, float] = {}
        for weight, reward in self.parts:
            scores = reward.score(completions)
            values += weight * scores.values
            flops += scores.flops
            parts[reward.name] = scores.values
            parts |= {name: part for name, part in scores.parts.items() if name not in parts}
            health |= {name: value for name, value in scores.health.items() if name not in health}
        return Scores(np.clip(values, 0.0, 1.0), flops, parts, health)


def build_reward(text: str, factories: Mapping[str, Callable[[], Reward]]) -> Reward:
    """The reward that ``text`` names, from one factory per reward system.

    Raises
    ------
    InvalidInput
        As `parse_mix`.
    CannotDo
        A reward system of the mix that this task does not offer.
    """
    weights = parse_mix(text)
    for name in weights:
        if name not in factories:
            raise CannotDo(f"reward: {name!r} is not available here; available are {', '.join(factories)}")
    if len(weights) == 1:
        return factories[next(iter(weights))]()
    return MixedReward([(weight, factories[name]()) for name, weight in weights.items()])
