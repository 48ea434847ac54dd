"""The nano ladder: three tiny Qwen2-architecture policies, a checkable task and learned rewards for it.

``nano-s`` (0.1M parameters), ``nano-m`` (0.4M) and ``nano-l`` (1.4M) solve chain arithmetic (`arithmetic`) step by
step, badly until GRPO brings out what they know. Everything a run needs is here and runs on a laptop CPU in
minutes: the task, five reward systems, a ground-truth judge, and base weights with the command that makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from race.errors import InvalidInput
from race.rewards import REWARD_SYSTEMS
from real_runs.nano.models import POLICIES, REWARD_MODELS, load_policy, load_prm, load_tokenizer, model_folder
from real_runs.nano.rules import DenseReward, SparseReward, StepJudge, StructuredReward
from real_runs.nano.task import NanoTask, nano_benchmarks

if TYPE_CHECKING:
    from real_runs.contracts import Reward

__all__ = [
    "POLICIES",
    "REWARD_MODELS",
    "NanoTask",
    "StepJudge",
    "load_policy",
    "load_prm",
    "load_tokenizer",
    "model_folder",
    "nano_benchmarks",
    "nano_reward",
]

_RULES: dict[str, type[SparseReward] | type[StructuredReward] | type[DenseReward]] = {
    rule.name: rule for rule in (SparseReward, StructuredReward, DenseReward)
}


def nano_reward(name: str) -> Reward:
    """The reward system ``name`` on the nano task; an unknown name is `InvalidInput`."""
    if name in _RULES:
        return _RULES[name]()
    if name in REWARD_MODELS:
        # Only learned rewards need torch.
        from real_runs.nano.prm import NanoPrmReward

        return NanoPrmReward(name)
    raise InvalidInput(f"reward: found {name!r}; allowed are {', '.join(REWARD_SYSTEMS)}")
