"""Reward systems for text tasks: rules, process reward models, and weighted mixes of them."""

from real_runs.rewards.mix import MixedReward, build_reward, mix_name, parse_mix
from real_runs.rewards.process import PrmJudge, PrmReward
from real_runs.rewards.rules import DenseReward, SparseReward, StructuredReward
from real_runs.rewards.text import text_reward

__all__ = [
    "DenseReward",
    "MixedReward",
    "PrmJudge",
    "PrmReward",
    "SparseReward",
    "StructuredReward",
    "build_reward",
    "mix_name",
    "parse_mix",
    "text_reward",
]
