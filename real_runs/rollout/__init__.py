"""Rollout backends: who samples completions from the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from real_runs.rollout._base import RolloutBackend, Rollouts, Sample, Sampling

if TYPE_CHECKING:
    from real_runs.config import RunOptions
    from real_runs.policy import Policy

__all__ = ["RolloutBackend", "Rollouts", "Sample", "Sampling", "build_backend"]


def build_backend(
    policy: Policy, options: RunOptions, *, max_tokens: int, folder: str, banned: tuple[int, ...] = ()
) -> RolloutBackend:
    """The backend that ``options.backend`` names.

    Parameters
    ----------
    max_tokens
        Longest prompt plus completion the run may sample; engines size their cache by it.
    folder
        Where a backend that reads adapters from disk may write them.
    banned
        Tokens the run never samples: an engine is proved with them.
    """
    if options.backend == "vllm":
        from real_runs.rollout.vllm import VLLMRollouts

        return VLLMRollouts(policy, options, max_tokens=max_tokens, folder=folder, banned=banned)
    from real_runs.rollout.hf import HFRollouts

    return HFRollouts(policy, max_sequences=options.rollout_sequences)
