"""`RacePruner`: `planner.pruning` as an Optuna pruner, for objectives that report while they run.

Report the target after an optimisation step, with the number of steps done: ``trial.report(value, step)``.
"""

from __future__ import annotations

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from planner import trials
from planner.pruning import WORTH, check_running
from planner.sampler import RaceSampler
from race.allocation import step_allocation
from race.errors import InvalidInput
from race.records import Curve, PilotRecord, PilotSpec


class RacePruner(BasePruner):
    """Prunes a trial whose end can no longer change the decision (see `planner.pruning`).

    Parameters
    ----------
    sampler
        The study's sampler: it knows the space and the surrogate.
    worth
        Gain per FLOP of finishing a pilot, relative to the best other one, below which it is not finished.
    """

    def __init__(self, sampler: RaceSampler, *, worth: float = WORTH) -> None:
        self._sampler = sampler
        self._worth = worth

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """True when the rest of ``trial`` is not worth its FLOPs."""
        stored = trial.user_attrs.get(trials.SPEC)
        if stored is None:
            raise InvalidInput(f"trial {trial.number}: it has no spec; start objectives with sampler.suggest(trial)")
        if not trial.intermediate_values:
            return False
        spec = PilotSpec.from_dict(stored)
        progress = self._sampler.progress(study)
        found = check_running(
            self._sampler.proposer, progress, spec, self._so_far(trial, spec), worth=self._worth
        )
        return found is not None

    def _so_far(self, trial: FrozenTrial, spec: PilotSpec) -> PilotRecord:
        space = self._sampler.space
        step = step_allocation(space.ladder[spec.model].architecture, spec.recipe)
        steps = tuple(sorted(trial.intermediate_values))
        values = tuple(float(trial.intermediate_values[s]) for s in steps)
        spent = tuple(min(float(s * step.total), float(spec.budget)) for s in steps)
        return PilotRecord(
            spec=spec,
            flops=step * steps[-1],
            curves={space.target: Curve(steps, spent, values, (trials.ASSUMED_SE,) * len(steps))},
            evidence="real",
            steps=steps[-1],
            provenance={"source": "intermediate values", "se": "assumed"},
            id=f"trial-{trial.number}-at-{steps[-1]}",
        )
