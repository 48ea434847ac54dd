"""AdamW on the trained weights, and its moments as plain tensors for checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor

from race.recipe import Recipe
from real_runs.config import RunOptions
from real_runs.policy import Policy

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimizer(policy: Policy, recipe: Recipe, options: RunOptions) -> torch.optim.Optimizer:
    """AdamW at ``options.learning_rate * recipe.learning_rate``."""
    return torch.optim.AdamW(
        list(policy.parameters.values()),
        lr=options.learning_rate * recipe.learning_rate,
        betas=options.betas,
        weight_decay=options.weight_decay,
    )


def moments(optimizer: torch.optim.Optimizer, policy: Policy) -> dict[str, Tensor]:
    """``{name}/{moment}`` tensors on the CPU; empty before the first step."""
    found = {}
    for name, parameter in policy.parameters.items():
        state = optimizer.state.get(parameter, {})
        for moment in _MOMENTS:
            if moment in state:
                found[f"{name}/{moment}"] = state[moment].detach().cpu().contiguous()
    return found


def load_moments(optimizer: torch.optim.Optimizer, policy: Policy, saved: dict[str, Tensor]) -> None:
    """Put moments back where `moments` found them."""
    for name, parameter in policy.parameters.items():
        state = {}
        for moment in _MOMENTS:
            tensor = saved.get(f"{name}/{moment}")
            if tensor is not None:
                # AdamW keeps its step counter on the CPU whatever the parameter's device.
                state[moment] = tensor.clone() if moment == "step" else tensor.to(parameter.device, copy=True)
        if state:
            optimizer.state[parameter] = state
