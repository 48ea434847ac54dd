"""The simulator's side of the surrogate: settings to coordinates, and to the ensemble's latent values.

A simulated run costs some 25 microseconds per world, which is most of what a fit costs. So curves are simulated
once per run at `SHARES` of its budget and interpolated, and everything simulated is remembered: a planner that
refits after every pilot simulates only the new one, and its decision grid once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache

import numpy as np

from race.simulator import Settings, Worlds, simulate, simulate_curves
from race.simulator.dynamics import simulate_with_collapse
from surrogate.evidence import Evidence
from surrogate.link import to_latent
from surrogate.local import LocalResponses
from surrogate.points import Data, FloatArray, IntArray, Points

WORLDS = 128
# Shares of a run's budget at which the ensemble is simulated; latents are linear in ln(share) in between, which
# is off by at most about 0.01 for curves that rise one logit per e-fold.
SHARES = np.concatenate([[0.0], np.geomspace(1 / 128, 1, 16)])
# Latent units: where the simulator expects next to no learning it may still be wrong about that.
LEAST_GAIN = 0.5


# One world in LOCAL_EVERY has no dynamics at all; see `surrogate.local` and `Ensemble`.
LOCAL_EVERY = 8


class Ensemble:
    """Latent values in every world, remembered by setting.

    The simulator's worlds agree more about where the optimum lies than they have a right to: their dynamics differ in
    numbers, not in form. So one world in eight has the paper's local response in place of them (`surrogate.local`):
    its base models and its risk of collapse are the simulator's, what training gains is not. More of these serve worlds
    foreign to the simulator better and its own worse (benchmarks/surrogate_calibration.py measures both); one in eight
    keeps the regime probabilities of its own true.
    """

    def __init__(self, worlds: Worlds, *, keep: int = 4_000_000) -> None:
        self.worlds = worlds
        is_local = np.arange(len(worlds)) % LOCAL_EVERY == LOCAL_EVERY - 1
        self._local, self._dynamic = np.flatnonzero(is_local), np.flatnonzero(~is_local)
        self._responses = LocalResponses(self._local)
        self.targets: tuple[str, ...] = ()
        self._keep = keep
        self._tables: OrderedDict[tuple[bytes, str], FloatArray] = OrderedDict()
        self._bases: dict[tuple[bytes, str], FloatArray] = {}
        self._curves: OrderedDict[tuple[bytes, str], FloatArray] = OrderedDict()
        self._collapses: OrderedDict[tuple[bytes, str], FloatArray] = OrderedDict()

    def at(self, settings: Settings, target: str) -> FloatArray:
        """Latents at each setting's budget, shape (W, n)."""
        table = b"".join(_rows(settings))
        key = (table, target)
        if key not in self._tables:
            # Reading a target off a simulated run is cheap next to simulating it: read all that may be asked for.
            self.targets = tuple(dict.fromkeys((*self.targets, target)))
            for name, values in self._simulate(settings, None).items():
                self._tables[table, name] = to_latent(values)
        self._tables.move_to_end(key)
        self._forget(self._tables)
        return self._tables[key]

    def base(self, settings: Settings, target: str) -> FloatArray:
        """Latents of the base models, shape (W, n): one simulation per model and reward system."""
        kinds, first, back = _kinds(settings)
        keys = [(kinds[i].tobytes(), target) for i in first]
        missing = [n for n, key in enumerate(keys) if key not in self._bases]
        if missing:
            self.targets = tuple(dict.fromkeys((*self.targets, target)))
            found = self._simulate(settings[first[missing]].with_budget(1.0), None)
            for name, values in found.items():
                for column, n in enumerate(missing):
                    self._bases[keys[n][0], name] = to_latent(values[:, column])
        return np.stack([self._bases[key] for key in keys], axis=1)[:, back]

    def along(self, settings: Settings, targets: Sequence[str]) -> Mapping[str, FloatArray]:
        """Latents at `SHARES` of each setting's budget, shape (W, n, len(SHARES)) per target."""
        rows = _rows(settings)
        # Seeds of one setting share a curve: each row is simulated once.
        first = {row: i for i, row in reversed(list(enumerate(rows)))}
        missing = [i for row, i in first.items() if any((row, t) not in self._curves for t in targets)]
        if missing:
            self.targets = tuple(dict.fromkeys((*self.targets, *targets)))
            values = self._simulate(settings[missing], SHARES)
            for target in targets:
                latent = to_latent(values[target])
                for column, i in enumerate(missing):
                    self._curves[rows[i], target] = latent[:, column]
        out = {t: np.stack([self._curves[row, t] for row in rows], axis=1) for t in targets}
        self._forget(self._curves)
        return out

    def collapse(self, settings: Settings) -> FloatArray:
        """Probability in every world that a run collapses before its budget is spent, shape (W, n)."""
        key = (b"".join(_rows(settings)), "collapse")
        found = self._collapses.get(key)
        if found is None or np.isnan(found[self._local]).any():
            # Settings whose values were asked for have been simulated in all worlds that have dynamics.
            rest = np.arange(len(self.worlds)) if found is None else self._local
            whole = np.empty((len(self.worlds), len(settings))) if found is None else found
            whole[rest] = simulate_with_collapse(self.worlds[rest], settings, targets=())[1]
            self._collapses[key] = whole
        self._collapses.move_to_end(key)
        self._forget(self._collapses)
        return self._collapses[key]

    def _simulate(self, settings: Settings, shares: FloatArray | None) -> dict[str, FloatArray]:
        """Values by target in every world, (W, n), or (W, n, len(shares)) along the run."""
        worlds = self.worlds[self._dynamic]
        if shares is None:
            found, risk = simulate_with_collapse(worlds, settings, targets=self.targets)
            collapse = np.full((len(self.worlds), len(settings)), np.nan)
            collapse[self._dynamic] = risk
            self._collapses.setdefault((b"".join(_rows(settings)), "collapse"), collapse)
            self._forget(self._collapses)
        else:
            found = simulate_curves(worlds, settings, points=shares, targets=self.targets).values
        out = {}
        for name, values in found.items():
            out[name] = np.empty((len(self.worlds), *values.shape[1:]))
            out[name][self._dynamic] = values
        for name, values in self._respond(settings, shares).items():
            out[name][self._local] = values
        return out

    def _respond(self, settings: Settings, shares: FloatArray | None) -> dict[str, FloatArray]:
        """What `_simulate` gives, in the worlds without dynamics: (L, n), or (L, n, len(shares))."""
        _, first, back = _kinds(settings)
        base = simulate(self.worlds[self._local], settings[first].with_budget(1.0), targets=self.targets)
        done = (settings.steps * settings.samples)[:, None] * (np.ones(1) if shares is None else shares)
        along = np.repeat(np.arange(len(settings)), done.shape[1])
        out = {}
        for name in self.targets:
            start = base[name][:, back, None]
            gained = self._responses.gain(settings[along], name, done.ravel()).reshape(len(self._local), *done.shape)
            values = start + (1 - start) * gained
            out[name] = values[:, :, 0] if shares is None else values
        return out

    def _forget(self, cache: OrderedDict[tuple[bytes, str], FloatArray]) -> None:
        size = sum(entry.size for entry in cache.values())
        while size > self._keep and len(cache) > 1:
            size -= cache.popitem(last=False)[1].size


@lru_cache(maxsize=4)
def prior_ensemble(count: int, seed: int) -> Ensemble:
    """The calibrated ensemble; shared by all surrogates of a process so that its memory serves them all."""
    return Ensemble(Worlds.prior(count, seed=seed))


def _kinds(settings: Settings) -> tuple[FloatArray, IntArray, IntArray]:
    """What makes the base model's value, (n, 3); the first setting of each kind, and the kind of each setting."""
    table = np.stack([settings.params, settings.reward.astype(np.float64), settings.reward_params], axis=1)
    _, first, back = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return table, np.asarray(first, dtype=np.intp), np.asarray(back, dtype=np.intp).ravel()


def _rows(settings: Settings) -> list[bytes]:
    table = np.stack([np.asarray(getattr(settings, f.name), dtype=np.float64) for f in fields(Settings)], axis=1)
    return [row.tobytes() for row in table]


def locate(settings: Settings, ensemble: Ensemble, target: str, index: int) -> Points:
    """Points of the response surface: every setting, for the target that the surrogate numbers ``index``."""
    x, recipe, reward = coordinates(settings)
    latent = ensemble.at(settings, target)
    gain = _gain(latent - ensemble.base(settings, target))
    return Points(x, recipe, reward, np.full(len(settings), index), latent, gain)


def _gain(gained: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.mean(gained**2, axis=0) + LEAST_GAIN**2))


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


def observe(evidence: Evidence, ensemble: Ensemble, targets: Sequence[str]) -> Data:
    """All thinned curves as observations, sorted by run.

    A point at C_t FLOPs of a run observes what a budget of C_t buys under the same recipe, priced as the recipe
    says, for data and questions alike: a run whose completions were longer than planned then looks slow by the
    same factor that the next run of this recipe will be slow by.
    """
    runs = Settings.build([(run.model, run.record.spec.recipe, run.record.spec.budget) for run in evidence.runs])
    present = [t for t in targets if t in evidence.targets]
    curves = ensemble.along(runs.with_budget([run.end for run in evidence.runs]), present) if present else {}
    owner, target, flops, value, se, growth, latent, gain = ([] for _ in range(8))
    for number, run in enumerate(evidence.runs):
        for name, curve in run.curves.items():
            count = len(curve.flops)
            share = curve.flops / run.end
            owner.append(np.full(count, number))
            target.append(np.full(count, targets.index(name)))
            # The base model is what a budget of half a step buys: half a step changes nothing yet.
            flops.append(np.maximum(curve.flops, 0.5 * runs.step_flops[number]))
            value.append(curve.value)
            se.append(curve.se)
            growth.append(np.sqrt(share))
            simulated = curves[name][:, number]
            latent.append(_interpolate(simulated, share))
            gain.append(_gain(latent[-1] - simulated[:, :1]))
    if not owner:
        return _nothing(len(ensemble.worlds))
    which, where = np.concatenate(owner), np.concatenate(target)
    x, recipe, reward = coordinates(runs[which].with_budget(np.concatenate(flops)))
    values = np.concatenate(value)
    return Data(
        x, recipe, reward, where, np.concatenate(latent, axis=1), np.concatenate(gain),
        value=values,
        se=np.concatenate(se),
        latent=to_latent(values),
        growth=np.concatenate(growth),
        run=which,
    )  # fmt: skip


def _interpolate(curve: FloatArray, share: FloatArray) -> FloatArray:
    """Ensemble curve (W, len(SHARES)) at ``share`` (n,): linear in ln(share + 1/256)."""
    offset = SHARES[1] / 2
    grid, at = np.log(SHARES + offset), np.log(share + offset)
    low = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 2)
    mix = (at - grid[low]) / (grid[low + 1] - grid[low])
    return np.asarray(curve[:, low] * (1 - mix) + curve[:, low + 1] * mix)


def _nothing(worlds: int) -> Data:
    none, whole = np.empty(0), np.empty(0, dtype=np.intp)
    return Data(
        np.empty((0, 3)), np.empty((0, 6)), whole, whole, np.empty((worlds, 0)), none,
        value=none, se=none, latent=none, growth=none, run=whole,
    )  # fmt: skip
