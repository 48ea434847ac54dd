"""`Surrogate`: reward against model size, update fraction, budget and reward system, with honest intervals.

It knows records, settings and the simulator's ensemble; it does not know how a pilot is chosen or run.

Example
-------
>>> from race.ladder import ladder
>>> from race.simulator import Settings
>>> rungs = ladder("qwen2.5")
>>> recipe = rungs.recipe("prm")
>>> prior = Surrogate.fit([], ladder=rungs, recipe=recipe)
>>> prior.evidence
{'real': 0, 'imported': 0, 'simulated': 0}
>>> prediction = prior.predict(Settings.build([(rungs.models[0], recipe, 10**18)]), "native")
>>> bool(0 <= prediction.lo[0] <= prediction.mean[0] <= prediction.hi[0] <= 1)
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from race.errors import InvalidInput
from race.ladder import Ladder
from race.recipe import Recipe
from race.records import PilotRecord
from race.rewards import check_target
from race.simulator import Settings, Worlds
from surrogate.ensemble import WORLDS, Ensemble, locate, observe, prior_ensemble
from surrogate.evidence import gather, resolve_target
from surrogate.fitting import Fit, fit
from surrogate.link import to_value
from surrogate.points import FloatArray, Points
from surrogate.posterior import standard_draws

_CHUNK = 1500  # settings predicted at once: bounds memory, not results

PRIOR_NOTE = "no record entered the fit: every number here is the simulator's prior, nothing is measured"


@dataclass(frozen=True)
class Prediction:
    """Expected value of a run at each setting: what seeds and evaluation noise scatter around.

    All arrays have shape (n,) and lie in [0, 1]; ``lo`` and ``hi`` bound the central interval.
    """

    mean: FloatArray
    lo: FloatArray
    hi: FloatArray
    sd: FloatArray


@dataclass(frozen=True)
class Surrogate:
    """A fitted response surface; made by `fit` or `load`.

    Attributes
    ----------
    ladder, recipe
        What settings are compared on; kept so that a saved surrogate answers what-if questions alone.
    targets
        Targets modelled: those asked for first, then all others with a curve in evidence.
    ensemble
        The simulator worlds that are the prior.
    state
        Data and posterior.
    evidence
        Records the fit rests on: ``real``, ``imported``, ``simulated``.
    unhealthy
        Records left out because the run ``collapsed``, ``diverged`` or ``failed``.
    notes
        Plain words on everything a reader should know: what was left out, what was doubted.
    """

    ladder: Ladder
    recipe: Recipe
    targets: tuple[str, ...]
    ensemble: Ensemble
    state: Fit
    evidence: Mapping[str, int]
    unhealthy: Mapping[str, int]
    notes: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        records: Sequence[PilotRecord],
        *,
        ladder: Ladder,
        recipe: Recipe,
        targets: Sequence[str] = ("native",),
        prior: Worlds | None = None,
        seed: int = 0,
    ) -> Surrogate:
        """Fit to records; with none the answer is the prior, and ``notes`` says so.

        Parameters
        ----------
        targets
            What will be asked. ``pass@1`` stands for the one benchmark in evidence.
        prior
            Worlds to take the prior from; the calibrated ones by default.
        seed
            Of the ensemble and the hyperparameter draws: same records and seed, same surrogate.

        Raises
        ------
        InvalidInput
            A malformed target, or ``pass@1`` when several benchmarks are in evidence.
        """
        wanted = (targets,) if isinstance(targets, str) else tuple(targets)
        if not wanted:
            raise InvalidInput("targets: found none; allowed is at least one of native, judge, pass@1[:<benchmark>]")
        for target in wanted:
            check_target(target)
        evidence = gather(records, ladder)
        asked = tuple(dict.fromkeys(resolve_target(t, evidence.targets) for t in wanted))
        modelled = asked + tuple(t for t in evidence.targets if t not in asked)
        ensemble = prior_ensemble(WORLDS, seed) if prior is None else Ensemble(prior)
        state = fit(observe(evidence, ensemble, modelled), seed=seed)
        notes = list(evidence.notes)
        if not evidence.runs:
            notes.append(PRIOR_NOTE)
        else:
            notes += [
                f"target {t}: no record has it; it is inferred from the simulator and the other targets"
                for t in asked
                if t not in evidence.targets
            ]
            notes += [
                f"record {evidence.runs[i].record.id} fits neither the simulator nor the other runs: its noise is "
                f"taken {factor**0.5:.0f} times as large"
                for i, factor in state.doubted
            ]
        return cls(ladder, recipe, modelled, ensemble, state, evidence.counts, evidence.unhealthy, tuple(notes))

    def predict(self, settings: Settings, target: str, *, level: float = 0.9) -> Prediction:
        """Mean, central ``level`` interval and standard deviation of the expected value.

        Raises
        ------
        InvalidInput
            ``level`` outside (0, 1), or a target that is malformed or ambiguous.
        """
        if not 0 < level < 1:
            raise InvalidInput(f"level: found {level!r}; allowed is a number strictly between 0 and 1")
        levels, order = standard_draws()
        parts = []
        for start in range(0, len(settings), _CHUNK):
            points = self._points(settings[slice(start, start + _CHUNK)], target)
            values = to_value(self.state.posterior.marginal_draws(points, levels, order))
            lo, hi = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
            mean = values.mean(axis=0)
            # A mean outside its own interval happens when nearly all the mass sits at 0 or 1.
            parts.append((mean, np.minimum(lo, mean), np.maximum(hi, mean), values.std(axis=0)))
        if not parts:
            return Prediction(*(np.empty(0) for _ in range(4)))
        return Prediction(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def sample(self, settings: Settings, target: str, *, draws: int, seed: int = 0) -> FloatArray:
        """Joint posterior draws of the expected value, shape (draws, n), each in [0, 1]."""
        if draws < 1:
            raise InvalidInput(f"draws: found {draws!r}; allowed is at least 1")
        rng = np.random.default_rng(seed)
        return to_value(self.state.posterior.draws(self._points(settings, target), draws, rng))

    def _points(self, settings: Settings, target: str) -> Points:
        check_target(target)
        name = resolve_target(target, self.targets)
        # A target that nobody asked for at fit time and no record has still has a prior.
        index = self.targets.index(name) if name in self.targets else len(self.targets)
        return locate(settings, self.ensemble, name, index)

    def save(self, path: str | Path) -> Path:
        """Write a folder with ``surrogate.json`` and ``arrays.npz``; see `surrogate.files`."""
        from surrogate.files import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Surrogate:
        """Read what `save` wrote, checking everything and executing nothing."""
        from surrogate.files import load

        return load(Path(path))
