"""The simulator's side of the surrogate: settings to coordinates, and to the ensemble's latent values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from race.simulator import Settings, Worlds, simulate
from surrogate.evidence import Evidence, simulated_target
from surrogate.link import to_latent
from surrogate.points import Data, FloatArray, Points

WORLDS = 192
# A seed's luck is absent at the base model and fully there after a tenth of a run.
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
    names = {simulated_target(targets[i]) for i in index}
    values = simulate(worlds, settings, targets=tuple(sorted(names)))
    x, recipe, reward = coordinates(settings)
    repeat = len(index)
    return Points(
        np.tile(x, (repeat, 1)),
        np.tile(recipe, (repeat, 1)),
        np.tile(reward, repeat),
        np.repeat(np.asarray(index, dtype=np.intp), len(settings)),
        np.concatenate([to_latent(values[simulated_target(targets[i])]) for i in index], axis=1),
    )


def coordinates(settings: Settings) -> tuple[FloatArray, FloatArray, np.ndarray]:
    """``(x, recipe, reward)`` of `Points`."""
    rho = np.clip(settings.rho, 1e-4, 1 - 1e-4)
    x = np.stack([np.log(settings.params), np.log(rho / (1 - rho)), np.log(settings.budget)], axis=1)
    recipe = np.stack([np.log(settings.samples) / np.log(10)], axis=1)
    return x, recipe, np.asarray(settings.reward, dtype=np.intp)


def observe(evidence: Evidence, worlds: Worlds, targets: Sequence[str]) -> Data:
    """All thinned curves as observations, sorted by run."""
    rows, value, se, growth, run, target = [], [], [], [], [], []
    for number, item in enumerate(evidence.runs):
        recipe = item.record.spec.recipe
        for name, curve in item.curves.items():
            first = Settings.build([(item.model, recipe, 1)])
            floor = float(first.step_flops[0])
            share = curve.flops / max(curve.flops[-1], floor)
            rows += [(item.model, recipe, max(float(c), floor)) for c in curve.flops]
            value.append(curve.value)
            se.append(curve.se)
            growth.append(np.sqrt(share / (share + _GROWTH) * (1 + _GROWTH)))
            run.append(np.full(len(curve.flops), number))
            target.append(np.full(len(curve.flops), list(targets).index(name)))
    if not rows:
        return empty(worlds)
    settings = Settings.build(rows)
    x, recipe_x, reward = coordinates(settings)
    where = np.concatenate(target).astype(np.intp)
    names = tuple(sorted({simulated_target(t) for t in targets}))
    simulated = simulate(worlds, settings, targets=names)
    ensemble = np.empty((len(worlds), len(where)))
    for i, name in enumerate(targets):
        mine = where == i
        ensemble[:, mine] = to_latent(simulated[simulated_target(name)][:, mine])
    values = np.concatenate(value)
    return Data(
        x, recipe_x, reward, where, ensemble,
        value=values,
        se=np.concatenate(se),
        latent=to_latent(values),
        growth=np.concatenate(growth),
        run=np.concatenate(run).astype(np.intp),
    )  # fmt: skip


def empty(worlds: Worlds) -> Data:
    """No observations."""
    none, whole = np.empty(0), np.empty(0, dtype=np.intp)
    return Data(
        np.empty((0, 3)), np.empty((0, 1)), whole, whole, np.empty((len(worlds), 0)),
        value=none, se=none, latent=none, growth=none, run=whole,
    )  # fmt: skip
