"""`Surrogate`: reward against model size, update fraction, budget and reward system, with honest intervals.

It knows records, settings and the simulator's ensemble; it does not know how a pilot is chosen or run.

Example
-------
>>> from race.ladders import ladder
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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from race.errors import InvalidInput
from race.ladders import Ladder
from race.recipe import Recipe
from race.records import PilotRecord
from race.rewards import check_target
from race.simulator import Settings, Worlds
from race.simulator.targets import unknown_benchmark
from surrogate.calibration import spread_note
from surrogate.diagnostics import Diagnostics, leave_one_model_out, leave_one_run_out
from surrogate.ensemble import WORLDS, Ensemble, locate, observe, prior_ensemble
from surrogate.evidence import gather, resolve_target
from surrogate.fitting import Fit, fit
from surrogate.link import latent_sd, to_value
from surrogate.pending import Pending, block_diagonal, join
from surrogate.points import FloatArray, Points
from surrogate.posterior import standard_draws
from surrogate.risk import mean_risk, offset_weights

# Standard error of an evaluation that is still to come: about 500 graded problems.
EVALUATION_SE = 0.02
_CHUNK = 1500  # settings predicted at once: bounds memory, not results

STRAIN_NOTE = (
    "the records contradict each other or the simulator far more than seeds do: check that they share one scale, one "
    "benchmark and the recipes they state; the intervals here may be too narrow"
)
PRIOR_NOTE = "no record entered the fit: every number here is the simulator's prior, nothing is measured"


_NAMED = 3  # doubted runs that get a line of their own; more of them share one


def _doubts(doubted: Sequence[tuple[str, float]]) -> list[str]:
    """What is said of runs whose noise was raised: (record id, factor)."""
    if len(doubted) > _NAMED:
        worst = sorted(doubted, key=lambda one: (-one[1], one[0]))[:_NAMED]
        return [
            f"{len(doubted)} records fit neither the simulator nor the other runs: their noise is taken up to "
            f"{worst[0][1]:.0f} times as large; most of all {', '.join(name for name, _ in worst)}"
        ]
    return [
        f"record {name} fits neither the simulator nor the other runs: its noise is taken {factor:.0f} times as large"
        for name, factor in doubted
    ]


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
class RunLabel:
    """Which record a run of the data came from."""

    record: str
    model: str


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
    runs
        Record id and model of each run in ``state.data``, in order.
    trials, collapsed
        Every run that ended well or collapsed, as settings, and 1 where it collapsed.
    seed
        What the ensemble and the hyperparameter draws were made with.
    """

    ladder: Ladder
    recipe: Recipe
    targets: tuple[str, ...]
    ensemble: Ensemble
    state: Fit
    evidence: Mapping[str, int]
    unhealthy: Mapping[str, int]
    notes: tuple[str, ...]
    runs: tuple[RunLabel, ...]
    trials: Settings
    collapsed: FloatArray
    seed: int

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
        points: int | None = None,
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
        points
            Curve points in all above which curves are thinned further (see `surrogate.evidence`): whoever fits after
            every pilot trades detail for time.

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
        evidence = gather(records, ladder, points=points)
        asked = tuple(dict.fromkeys(resolve_target(t, evidence.targets) for t in wanted))
        modelled = asked + tuple(t for t in evidence.targets if t not in asked)
        ensemble = prior_ensemble(WORLDS, seed) if prior is None else Ensemble(prior)
        ensemble.targets = tuple(dict.fromkeys((*ensemble.targets, *modelled)))
        state = fit(observe(evidence, ensemble, modelled), seed=seed)
        notes = list(evidence.notes)
        notes += [
            f"target {t}: the simulator knows no benchmark {unknown!r} and no record has it, so it is answered as a "
            "benchmark of unknown difficulty"
            for t in asked
            if t not in evidence.targets and (unknown := unknown_benchmark(t)) is not None
        ]
        if not evidence.runs:
            notes.append(PRIOR_NOTE)
        else:
            notes += [
                f"target {t}: no record has it; it is inferred from the simulator and the other targets"
                for t in asked
                if t not in evidence.targets
            ]
            rewards = sorted({run.record.spec.reward for run in evidence.runs})
            if recipe.reward not in rewards:
                notes.append(
                    f"reward {recipe.reward}: no record has it; it is inferred from the simulator and from records of "
                    + ", ".join(rewards)
                )
            notes += _doubts([(evidence.runs[i].record.id, factor**0.5) for i, factor in state.doubted])
            widened = spread_note(state.posterior.spread)
            if widened is not None:
                notes.append(widened)
            if state.strained:
                notes.append(STRAIN_NOTE)
        return cls(
            ladder, recipe, modelled, ensemble, state, evidence.counts, evidence.unhealthy, tuple(notes),
            tuple(RunLabel(run.record.id, run.model.name) for run in evidence.runs),
            Settings.build([(o.model, o.record.spec.recipe, o.record.spec.budget) for o in evidence.outcomes]),
            np.array([float(o.collapsed) for o in evidence.outcomes]),
            seed,
        )  # fmt: skip

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
            points = self.points(settings[slice(start, start + _CHUNK)], target)
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
        return to_value(self.state.posterior.draws(self.points(settings, target), draws, rng))

    def condition(self, pending: Settings, target: str | None = None) -> Surrogate:
        """The same surrogate once the runs in ``pending`` will have reported, whatever they report.

        Means stay, uncertainty shrinks by what those runs can tell; see `surrogate.pending`.

        Parameters
        ----------
        pending
            One row per running pilot, at its own budget.
        target
            What the pilots measure; the first modelled target by default.
        """
        if not len(pending):
            return self
        name = self.targets[0] if target is None else target
        points = self.points(pending, name)
        value = to_value(self.state.posterior.mean(points))
        noise = self.run_variance + latent_sd(value, np.full(len(value), EVALUATION_SE)) ** 2
        base, together = self.state.posterior, np.diag(noise)
        if isinstance(base, Pending):
            together = block_diagonal(base.noise, together)
            points, base = join(base.points, points), base.base
        return replace(self, state=replace(self.state, posterior=Pending(base, points, together)))

    @property
    def run_variance(self) -> float:
        """Latent variance between two whole runs of one setting: seeds and wander, without evaluation noise."""
        posterior = self.state.posterior
        each = [c.hyper.run**2 + c.hyper.curve**2 for c in posterior.components]
        return float(posterior.spread**2 * self.state.oddness * np.dot(posterior.weights, each))

    @property
    def spread(self) -> float:
        """Factor by which all intervals are wider than the fit alone states; see `surrogate.calibration`."""
        return self.state.posterior.spread

    def largest_run(self, model: str) -> float:
        """FLOPs that the largest run of ``model`` in the fit has spent; 0 where there is none."""
        data, name = self.state.data, model.lower()
        ends = (float(np.exp(data.x[block, 2].max())) for block in data.blocks)
        return max((end for run, end in zip(self.runs, ends, strict=True) if run.model.lower() == name), default=0.0)

    def diagnostics(self, *, leave_out: str = "run", level: float = 0.9) -> Diagnostics:
        """Coverage and error when predicting each run (closed form) or each model (refitted) from the others.

        Raises
        ------
        InvalidInput
            ``leave_out`` is neither ``run`` nor ``model``, or ``level`` outside (0, 1).
        """
        if leave_out not in ("run", "model"):
            raise InvalidInput(f"leave_out: found {leave_out!r}; allowed are run and model")
        records, models = [r.record for r in self.runs], [r.model for r in self.runs]
        if leave_out == "run":
            return leave_one_run_out(self.state, records, models, self.targets, level=level)
        return leave_one_model_out(self.state, records, models, self.targets, level=level, seed=self.seed)

    def collapse_risk(self, settings: Settings) -> FloatArray:
        """Probability that a run collapses before its budget is spent, shape (n,); see `surrogate.risk`.

        Predictions are about runs that stay healthy; this is the chance that one does not.
        """
        # In the pieces that `predict` simulates, so that whoever asks for both simulates once.
        pieces = [settings[slice(i, i + _CHUNK)] for i in range(0, len(settings), _CHUNK)] or [settings]
        asked = np.concatenate([self.ensemble.collapse(piece) for piece in pieces], axis=1)
        return mean_risk(self._offset_weights, asked)

    @cached_property
    def _offset_weights(self) -> FloatArray:
        return offset_weights(self.ensemble.collapse(self.trials), self.collapsed)

    def points(self, settings: Settings, target: str) -> Points:
        """Settings as the posterior sees them: for callers that need latent moments (`Posterior.moments`).

        Raises
        ------
        InvalidInput
            A target that is malformed or ambiguous.
        """
        check_target(target)
        name = resolve_target(target, self.targets)
        # A target that nobody asked for at fit time and no record has still has a prior.
        index = self.targets.index(name) if name in self.targets else len(self.targets)
        return locate(settings, self.ensemble, name, index)

    _points = points

    def save(self, path: str | Path) -> Path:
        """Write a folder with ``surrogate.json`` and ``arrays.npz``; see `surrogate.files`."""
        from surrogate.files import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Surrogate:
        """Read what `save` wrote, checking everything and executing nothing."""
        from surrogate.files import load

        return load(Path(path))
