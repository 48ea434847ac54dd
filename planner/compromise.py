"""Several targets at once: what each wants, what that costs the others, and the setting that hurts none of them much.

Values of different targets have no common unit, so a loss is stated in the target's own unit, and as a share of what
the target can gain at all on the slice (the mean's range over the settings). The compromise minimises the greatest of
these shares: minimax expected regret. Nothing here changes the decision, which is about the first target; it says
what that costs.

Notation
    V_t    joint posterior draws of target t on the slice, (S, n)       m_t    its mean over draws, (n,)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.decision import DRAWS, LEVEL
from planner.slices import BudgetSlice
from surrogate import Surrogate
from surrogate.optimum import Interval


@dataclass(frozen=True)
class Loss:
    """What a setting loses on one target against that target's own best setting.

    Attributes
    ----------
    value
        In units of the target, with its 90 % interval over the draws.
    share
        Of the range that the target's mean has over the slice.
    """

    value: Interval
    share: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**self.value.to_dict(), "share": self.share}


@dataclass(frozen=True)
class Choice:
    """A setting on the slice and what it costs every target."""

    model: str
    reward: str
    rho: float
    losses: Mapping[str, Loss]

    @property
    def worst(self) -> float:
        """The greatest share lost on any target."""
        return max(loss.share for loss in self.losses.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "model": self.model,
            "reward": self.reward,
            "rho": self.rho,
            "losses": {target: loss.to_dict() for target, loss in self.losses.items()},
        }


@dataclass(frozen=True)
class Compromise:
    """Answer of `weigh_targets`.

    Attributes
    ----------
    own
        Each target's best setting and what it costs the others.
    between
        The setting with the smallest greatest loss.
    """

    own: Mapping[str, Choice]
    between: Choice

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**self.between.to_dict(), "own": {target: choice.to_dict() for target, choice in self.own.items()}}

    def sentences(self) -> list[str]:
        """For people, one line each."""
        lines = []
        for target, choice in self.own.items():
            lost = [f"{loss.value.mean:.3f} of {t}" for t, loss in choice.losses.items() if t != target]
            lines.append(
                f"best for {target}: {choice.model} at rho {choice.rho:.2f}, at a cost of {' and '.join(lost)}"
            )
        lost = [f"{loss.value.mean:.3f} of {t}" for t, loss in self.between.losses.items()]
        lines.append(
            f"compromise: {self.between.model} at rho {self.between.rho:.2f} costs {' and '.join(lost)}"
        )
        return lines


def weigh_targets(
    surrogate: Surrogate, on: BudgetSlice, *, seed: int = 0, draws: int = DRAWS
) -> Compromise | None:
    """Weigh the targets of the slice against each other; ``None`` for a single one."""
    targets = on.space.targets
    if len(targets) < 2:
        return None
    able = on.affordable.ravel()
    values = {t: surrogate.sample(on.settings, t, draws=draws, seed=seed) for t in targets}
    means = {t: np.where(able, v.mean(axis=0), -np.inf) for t, v in values.items()}
    best = {t: int(mean.argmax()) for t, mean in means.items()}
    # A target whose mean is flat over the slice loses nothing anywhere.
    ranges = {t: max(float(np.ptp(mean[able])), 1e-9) for t, mean in means.items()}

    def choice(at: int) -> Choice:
        reward, model = on.lines[at // on.rhos.shape[1]]
        losses = {}
        for t in targets:
            lost = Interval.of(values[t][:, best[t]] - values[t][:, at], LEVEL)
            losses[t] = Loss(lost, max(0.0, lost.mean) / ranges[t])
        return Choice(on.space.models[model].name, on.space.rewards[reward], float(on.rhos.ravel()[at]), losses)

    shares = np.max([(means[t][best[t]] - means[t]) / ranges[t] for t in targets], axis=0)
    return Compromise({t: choice(best[t]) for t in targets}, choice(int(shares.argmin())))
