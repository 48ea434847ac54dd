"""Planning pilots and deciding where a budget should go.

`Planner` is the loop's brain (ask, tell, decide); `RaceSampler` and `RacePruner` are the same for somebody's own
``study.optimize``. Optuna is imported only by those two and by a planner that keeps a study.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.decision import Decision
from planner.planner import Planner
from planner.proposer import NoProposal
from planner.pruning import Prune
from planner.space import PilotSpace
from planner.stopping import Stop, StoppingRule

if TYPE_CHECKING:
    from planner.pruner import RacePruner
    from planner.sampler import RaceSampler

__all__ = [
    "Decision",
    "NoProposal",
    "PilotSpace",
    "Planner",
    "Prune",
    "RacePruner",
    "RaceSampler",
    "Stop",
    "StoppingRule",
]


def __getattr__(name: str) -> Any:
    if name == "RaceSampler":
        from planner.sampler import RaceSampler

        return RaceSampler
    if name == "RacePruner":
        from planner.pruner import RacePruner

        return RacePruner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
