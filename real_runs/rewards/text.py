"""The five reward systems for text tasks, by name."""

from __future__ import annotations

from collections.abc import Callable

from race.errors import InvalidInput
from real_runs.contracts import Reward
from real_runs.grading import Grader
from real_runs.prm import ProcessRewardModel
from real_runs.rewards.mix import build_reward
from real_runs.rewards.process import PrmReward
from real_runs.rewards.rules import DenseReward, SparseReward, StructuredReward

LoadPrm = Callable[[str], ProcessRewardModel]


def text_reward(
    text: str,
    grader: Grader,
    *,
    reward_model: str | None = None,
    load: LoadPrm | None = None,
    aggregation: str = "min",
) -> Reward:
    """Build a reward system or mix for a text task.

    Parameters
    ----------
    text
        ``sparse``, ``structured``, ``dense``, ``proxy-prm``, ``prm``, or a mix such as ``0.9*prm+0.1*sparse``.
    reward_model
        Folder or hub id of the process reward model; needed by ``prm`` and ``proxy-prm``.
    load
        How a reward model is loaded; default `real_runs.prm.load.load_prm`.
    aggregation
        How step probabilities become one score.

    Raises
    ------
    InvalidInput
        A malformed mix, or a learned reward without its model.
    """

    def learned(name: str) -> Callable[[], Reward]:
        def make() -> Reward:
            if reward_model is None:
                raise InvalidInput(
                    f"reward_model: missing with reward {text!r}; give the folder or hub id of a process reward model, "
                    "for example Qwen/Qwen2.5-Math-PRM-7B"
                )
            return PrmReward((load or _load)(reward_model), grader, name=name, aggregation=aggregation)

        return make

    return build_reward(
        text,
        {
            "sparse": lambda: SparseReward(grader),
            "structured": lambda: StructuredReward(grader),
            "dense": lambda: DenseReward(grader),
            "proxy-prm": learned("proxy-prm"),
            "prm": learned("prm"),
        },
    )


def _load(path: str) -> ProcessRewardModel:
    from real_runs.prm.load import load_prm  # imports torch

    return load_prm(path)
