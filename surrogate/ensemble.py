"""The simulator's side of the surrogate: settings to coordinates, and to the ensemble's latent values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from race.simulator import Settings, Worlds, simulate
from surrogate.evidence import Evidence, Run, simulated_target
from surrogate.link import to_latent
from surrogate.points import Data, FloatArray, IntArray, Points

WORLDS = 192
# A seed's luck is absent at the base model and mostly there after a tenth of a run.
_GROWTH = 0.1


def locate(settings: Settings, worlds: Worlds, targets: Sequence[str], index: Sequence[int]) -> Points:
    """Points of the response surface: every setting on every target of ``index``, target-major.

    Parameters
    ----------
    targets
        The surrogate's targets.
    index
        Which of them.
    """
    values = latents(settings, worlds, [targets[i] for i in index])
    x, recipe, reward = coordinates(settings)
    repeat = len(index)
    return Points(
        np.tile(x, (repeat, 1)),
        np.tile(recipe, (repeat, 1)),
        np.tile(reward, repeat),
        np.repeat(np.asarray(index, dtype=np.intp), len(settings)),
        np.concatenate([values[targets[i]] for i in index], axis=1),
    )


def latents(settings: Settings, worlds: Worlds, targets: Sequence[str]) -> Mapping[str, FloatArray]:
    """Latent ensemble values by target, each of shape (W, n); benchmarks share the simulator's pass@1."""
    names = {target: simulated_target(target) for target in targets}
    values = simulate(worlds, settings, targets=tuple(sorted(set(names.values()))))
    latent = {name: to_latent(value) for name, value in values.items()}
    return {target: latent[name] for target, name in names.items()}


def coordinates(settings: Settings) -> tuple[FloatArray, FloatArray, IntArray]:
    """``(x, recipe, reward)`` of `Points`.

    Recipe coordinates are scaled so that a distance of 1 is a different recipe: ten times the samples per step,
    the learning rate or the size of the reward model, a group or a LoRA rank eight times as large, KL on or off.
    """
    rho = np.clip(settings.rho, 1e-6, 1 - 1e-6)
    x = np.stack(
        [np.log(settings.params), np.log(rho / (1 - rho)), np.log(np.maximum(settings.budget, 1e-3))], axis=1
    )
    recipe = np.stack(
        [
            np.log10(settings.samples),
            np.log2(settings.group) / 3,
            np.log10(settings.lr),
            settings.kl,
            # Full fine-tuning, an infinite rank, counts as one of 4096.
            np.log2(np.minimum(settings.rank, 4096)) / 3,
            np.log10(settings.reward_params + 1e6),
        ],
        axis=1,
    )
    return x, recipe, np.asarray(settings.reward, dtype=np.intp)


def observe(evidence: Evidence, worlds: Worlds, targets: Sequence[str]) -> Data:
    """All thinned curves as observations, sorted by run."""
    runs = _measured(evidence.runs)
    owner, target, flops, value, se, growth = [], [], [], [], [], []
    for number, run in enumerate(evidence.runs):
        for name, curve in run.curves.items():
            count = len(curve.flops)
            # The base model is what a budget of half a step buys: half a step changes nothing yet.
            paid = np.maximum(curve.flops, 0.5 * runs.step_flops[number])
            share = curve.flops / paid[-1]
            owner.append(np.full(count, number))
            target.append(np.full(count, targets.index(name)))
            flops.append(paid)
            value.append(curve.value)
            se.append(curve.se)
            growth.append(np.sqrt(share / (share + _GROWTH) * (1 + _GROWTH)))
    if not owner:
        return _nothing(worlds)
    which, where = np.concatenate(owner), np.concatenate(target)
    settings = runs[which].with_budget(np.concatenate(flops))
    ensemble = np.empty((len(worlds), len(which)))
    for index, name in enumerate(targets):
        mine = where == index
        if mine.any():
            ensemble[:, mine] = latents(settings[mine], worlds, [name])[name]
    x, recipe, reward = coordinates(settings)
    values = np.concatenate(value)
    return Data(
        x, recipe, reward, where, ensemble,
        value=values,
        se=np.concatenate(se),
        latent=to_latent(values),
        growth=np.concatenate(growth),
        run=which,
    )  # fmt: skip


def _measured(runs: Sequence[Run]) -> Settings:
    """One setting per run, its step priced as the run measured it.

    Real completions are longer or shorter than the recipe's mean, so a run makes more or fewer steps out of the
    same FLOPs than the plan says. The steps made are what the dynamics see.
    """
    settings = Settings.build([(run.model, run.record.spec.recipe, run.record.spec.budget) for run in runs])
    search, learning, reward = (a.copy() for a in (settings.search, settings.learning, settings.reward_cost))
    for i, run in enumerate(runs):
        step = _step_flops(run)
        spent = run.record.flops
        if step is None or spent.total <= 0 or not 0 < spent.rho < 1:
            continue
        search[i], learning[i], reward[i] = step * spent.sigma, step * spent.rho, step * spent.phi
    return replace(settings, search=search, learning=learning, reward_cost=reward)


def _step_flops(run: Run) -> float | None:
    """Measured FLOPs of a typical step: the median slope of FLOPs against steps along the longest curve."""
    curve = max(run.record.curves.values(), key=len)
    step, flops = np.asarray(curve.step, dtype=np.float64), np.asarray(curve.flops, dtype=np.float64)
    if step[0] > 0:
        step, flops = np.append(0.0, step), np.append(0.0, flops)
    slopes = np.diff(flops) / np.diff(step)
    slopes = slopes[slopes > 0]
    return float(np.median(slopes)) if len(slopes) else None


def _nothing(worlds: Worlds) -> Data:
    none, whole = np.empty(0), np.empty(0, dtype=np.intp)
    return Data(
        np.empty((0, 3)), np.empty((0, 6)), whole, whole, np.empty((len(worlds), 0)),
        value=none, se=none, latent=none, growth=none, run=whole,
    )  # fmt: skip
