"""How the evaluation targets read a policy's state.

    native      the training reward itself, without reward hacking for rules, with it for shaped and learned ones
    pass@1      competence on benchmark problems (easier by a shift); sharpening helps, over-optimisation hurts late
    judge       process quality: competence less the over-optimisation  bias d (w + d / over_scale)

The judge's loss is Gao et al.'s (2022) d (alpha - beta d), the gain in d being carried by theta itself, plus a term in
w, the share of the drift that taught nothing because samples were trained on beyond their worth. The quadratic part is
what long runs die of; the wasted part is what already tells a short run that over-trains from one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from race.rewards import check_target
from race.simulator.difficulty import mean_success, sigmoid
from race.simulator.ensemble import Worlds
from race.simulator.rewards import bias_of
from race.simulator.settings import REWARDS, Settings

FloatArray = npt.NDArray[np.float64]

FORMAT_WEIGHT = 0.2  # of a structured reward; 0.8 for the answer
BENCHMARK_SPREAD = 0.75  # benchmarks are less mixed than training sets
_SHIFTS = {"gsm8k": "gsm8k_shift", "math500": "math500_shift", "math-500": "math500_shift"}


def unknown_benchmark(target: str) -> str | None:
    """The benchmark of ``target`` if the simulator has no number for it and answers as for an unnamed one."""
    benchmark = target.partition(":")[2]
    return benchmark if benchmark and benchmark.lower() not in _SHIFTS else None


@dataclass(frozen=True)
class State:
    """State of W x n runs at one moment, each of shape (W, n).

    ``theta`` competence and ``phi`` format competence in logits, ``drift`` sqrt(KL), ``waste`` the share of drift
    that taught nothing.
    """

    theta: FloatArray
    phi: FloatArray
    drift: FloatArray
    waste: FloatArray


def evaluate(worlds: Worlds, settings: Settings, state: State, target: str) -> FloatArray:
    """Expected value of ``target`` in [0, 1], shape (W, n)."""
    check_target(target)
    c = worlds.column
    late = bias_of(worlds, settings) * state.drift**2 / c("over_scale")
    if target == "native":
        return _native(worlds, settings, state, late)
    if target == "judge":
        loss = late + bias_of(worlds, settings) * state.drift * state.waste
        return mean_success(state.theta + c("task_shift") + c("judge_shift") - loss, c("difficulty_sd"))
    benchmark = target.partition(":")[2].lower()
    shift = c(_SHIFTS.get(benchmark, "pass_shift"))
    theta = state.theta + shift - c("sharpen") * np.expm1(-state.drift) - c("spill") * late
    return sigmoid(state.phi) * mean_success(theta, BENCHMARK_SPREAD * c("difficulty_sd"))


def _native(worlds: Worlds, settings: Settings, state: State, late: FloatArray) -> FloatArray:
    c = worlds.column
    spread = c("difficulty_sd")
    readable = sigmoid(state.phi)
    out = np.empty(np.broadcast_shapes(state.theta.shape, readable.shape))
    for index in np.unique(settings.reward):
        cols = settings.reward == index
        name = REWARDS[index]
        theta, f = state.theta[:, cols] + c("task_shift"), readable[:, cols]
        if name == "sparse":
            value = f * mean_success(theta, spread)
        elif name == "structured":
            value = FORMAT_WEIGHT * f + (1 - FORMAT_WEIGHT) * f * mean_success(theta, spread)
        else:
            # What the reward pays for over-optimisation: nothing for a short run, more and more for a long one.
            gamed = c("hack") * late[:, cols]
            shift = c("dense_shift" if name == "dense" else "process_shift")
            value = mean_success(theta + shift + gamed, spread)
            if name == "dense":
                value = f * value
        out[:, cols] = value
    return out
