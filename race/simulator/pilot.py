"""One noisy pilot in a simulated world: spec in, record out.

Noise has three parts: evaluation (binomial; its standard error is stated in the record), seeds (a smooth
random path in logits that grows as the run moves away from its base, shared by all targets) and collapse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from race.allocation import RunPlan, size_run
from race.errors import InvalidInput
from race.flops import Architecture
from race.ladders import LadderModel
from race.records import Curve, Health, PilotRecord, PilotSpec
from race.simulator.dynamics import simulate_curves
from race.simulator.ensemble import Worlds
from race.simulator.settings import Settings

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

EVAL_SAMPLES = 512
MAX_POINTS = 14
_GRADED = 0.5  # a graded score's variance, as a share of the binomial one with the same mean


@dataclass(frozen=True)
class Response:
    """A noiseless run: what `noisy_record` needs to know about a setting.

    ``values`` per target and ``drift`` at the evaluation points; ``collapse`` a probability; ``seed_sd`` the
    seeds' spread in logits at the end of the run.
    """

    values: Mapping[str, FloatArray]
    drift: FloatArray
    collapse: float
    seed_sd: float


def run_world(
    world: Worlds,
    spec: PilotSpec,
    *,
    seed: int = 0,
    architecture: Architecture | None = None,
    name: str = "simulated",
) -> PilotRecord:
    """Run ``spec`` once in one world.

    Parameters
    ----------
    world
        An ensemble of exactly one.
    spec
        The recipe is sized to the budget as a real run would be: whole samples and steps.
    seed
        Together with the spec (its own seed included) fixes all noise.
    architecture
        When ``spec.model`` is not a name the accounting knows.
    name
        Of the world, for the record's provenance.

    Raises
    ------
    InvalidInput
        More than one world, an unknown model, or a budget below one step.
    """
    if len(world) != 1:
        raise InvalidInput(f"world: found an ensemble of {len(world)}; allowed is exactly one world")
    arch = architecture if architecture is not None else Architecture.from_config(spec.model)
    plan = size_run(arch, spec.recipe, spec.budget)
    model = LadderModel(spec.model, arch, spec.params)
    settings = Settings.build([(model, plan.recipe, int(plan.flops.total))])
    share = evaluation_steps(plan) / plan.steps
    curves = simulate_curves(world, settings, points=share, targets=spec.targets)
    response = Response(
        {target: values[0, 0] for target, values in curves.values.items()},
        curves.drift[0, 0],
        float(curves.collapse[0, 0]),
        float(world.column("seed_sd")[0, 0]),
    )
    return noisy_record(spec, plan, response, name=name, seed=seed)


def evaluation_steps(plan: RunPlan) -> IntArray:
    """Steps at which a run is evaluated: 0, the last, and up to twelve between, evenly spaced."""
    return np.unique(np.round(np.linspace(0, plan.steps, MAX_POINTS)).astype(np.int64))


def noisy_record(spec: PilotSpec, plan: RunPlan, response: Response, *, name: str, seed: int) -> PilotRecord:
    """Add seed noise, collapse and evaluation noise to a noiseless run and write it down."""
    digest = _digest(spec, name, seed)
    rng = np.random.default_rng(int(digest[:16], 16))
    steps = evaluation_steps(plan)
    share = steps / plan.steps
    shift = response.seed_sd * _seed_path(rng, share)
    collapsed_at = _collapse_time(rng, response)
    drift = response.drift.copy()
    after = np.zeros(share.size)
    if collapsed_at is not None:
        # After the jump the policy is far away within a few evaluations, and what it writes is worth little.
        after = np.clip((share - collapsed_at) / max(0.15, 1 / share.size), 0, None)
        drift = drift + 3 * after
    curves = {}
    for target in spec.targets:
        value = _squash(_logit(response.values[target]) + shift)
        value = value * np.exp(-2.5 * after)
        curves[target] = _evaluated(rng, target, spec.reward, steps, plan, value)
    health = Health()
    if collapsed_at is not None:
        health = Health(
            "collapsed",
            f"KL jumped and the reward fell after {collapsed_at:.0%} of the budget",
            ("kl-jump", "reward-drop"),
        )
    return PilotRecord(
        spec=spec,
        flops=plan.flops,
        curves=curves,
        evidence="simulated",
        health=health,
        provenance={
            "world": name,
            "seed": seed,
            "kl": [float(d**2) for d in drift],
            "eval_samples": EVAL_SAMPLES,
        },
        steps=plan.steps + (plan.last_step_prompts > 0),
        id=digest[16:48],
    )


def _evaluated(
    rng: np.random.Generator, target: str, reward: str, steps: IntArray, plan: RunPlan, value: FloatArray
) -> Curve:
    n = EVAL_SAMPLES
    if target.startswith("pass@1") or (target == "native" and reward == "sparse"):
        measured = rng.binomial(n, value) / n
        factor = 1.0
    else:
        factor = _GRADED
        sd = np.sqrt(factor * value * (1 - value) / n)
        measured = np.clip(value + sd * rng.standard_normal(value.size), 0, 1)
    # The stated error must not be 0 for a measured 0 or 1: add one success and one failure (Agresti-Coull-like).
    guess = (measured * n + 1) / (n + 2)
    se = np.sqrt(factor * guess * (1 - guess) / n)
    flops = steps * float(plan.step.total)
    flops[-1] = float(plan.flops.total)
    return Curve(
        tuple(int(k) for k in steps),
        tuple(float(f) for f in flops),
        tuple(float(v) for v in measured),
        tuple(float(e) for e in se),
    )


def _seed_path(rng: np.random.Generator, share: FloatArray) -> FloatArray:
    """A smooth path that starts at 0 and has unit variance at the end: half slope, half random walk."""
    increments = rng.standard_normal(share.size) * np.sqrt(np.diff(share, prepend=0.0))
    path: FloatArray = np.sqrt(0.5) * (rng.standard_normal() * share + np.cumsum(increments))
    return path


def _collapse_time(rng: np.random.Generator, response: Response) -> float | None:
    """Share of the budget at which the run collapses, or None; later for the same drift than for more of it."""
    draw, when = rng.random(2)
    return None if draw >= response.collapse else float(0.3 + 0.6 * np.sqrt(when))


def _logit(p: FloatArray) -> FloatArray:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    out: FloatArray = np.log(p / (1 - p))
    return out


def _squash(x: FloatArray) -> FloatArray:
    out: FloatArray = 1 / (1 + np.exp(-x))
    return out


def _digest(spec: PilotSpec, name: str, seed: int) -> str:
    text = json.dumps([spec.to_dict(), name, seed], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
