"""`RaceSampler`: the proposer as an Optuna sampler, for the planner and for anybody's own ``study.optimize``.

    sampler = RaceSampler(ladder(), budget="1e18", reward="prm")
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial):
        spec = sampler.suggest(trial)           # a PilotSpec: model, recipe, budget, seed
        return sampler.report(trial, run(spec))  # or return a bare value in [0, 1]

    study.optimize(objective, n_trials=100)      # ends by itself when the pilot budget is spent

The sampler keeps no state of its own: everything is read from the study each time, so a study can be resumed
by another process, and running trials (of any process) are conditioned on. Seeds come from the trial number.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from planner import trials
from planner.progress import Progress, evidence_of
from planner.proposer import NoProposal, Proposal, Proposer
from planner.seeds import trial_seed
from planner.space import PilotSpace
from planner.stopping import StoppingRule
from race.errors import InvalidInput
from race.ladders import Ladder
from race.recipe import Recipe
from race.records import PilotRecord, PilotSpec
from race.simulator import Worlds

WHY = "race:why"


class RaceSampler(BaseSampler):
    """Proposes pilots by expected reduction of decision regret per FLOP.

    Parameters
    ----------
    ladder, budget, reward, target, recipe, pilot_budget, sizes
        The space, as in `PilotSpace.build`.
    records
        Evidence from before the study.
    seed
        Seeds the surrogate and, with the trial number, the pilots.
    start, prior
        See `Proposer`.
    rule
        When given, ``study.optimize`` also ends once the regime is certain enough, not only when the pilot
        budget is spent.
    """

    def __init__(
        self,
        ladder: Ladder | str | Sequence[str],
        *,
        budget: int | float | str,
        reward: str | Sequence[str],
        target: str | Sequence[str] = "native",
        recipe: Recipe | None = None,
        pilot_budget: int | float | str | None = None,
        sizes: Sequence[int] | None = None,
        records: Sequence[PilotRecord] = (),
        seed: int = 0,
        start: int | None = None,
        prior: Worlds | None = None,
        rule: StoppingRule | None = None,
    ) -> None:
        space = PilotSpace.build(
            ladder, budget=budget, reward=reward, target=target, recipe=recipe, pilot_budget=pilot_budget, sizes=sizes
        )
        self._set_up(Proposer(space, seed=seed, start=start, prior=prior), evidence_of(records), rule)

    @classmethod
    def of(
        cls, proposer: Proposer, *, records: Sequence[PilotRecord] = (), rule: StoppingRule | None = None
    ) -> RaceSampler:
        """Wrap a proposer that exists already, sharing its fitted surrogate."""
        sampler = cls.__new__(cls)
        sampler._set_up(proposer, tuple(records), rule)
        return sampler

    def _set_up(self, proposer: Proposer, records: tuple[PilotRecord, ...], rule: StoppingRule | None) -> None:
        self._proposer = proposer
        self._records = records
        self._rule = rule
        if rule is not None:
            proposer.rule = rule
        self._axes = trials.distributions(proposer.space)
        self._why: dict[int, Proposal] = {}
        # study.optimize(n_jobs=...) samples from several threads; one proposal must see the one before it.
        self._lock = threading.RLock()

    @property
    def proposer(self) -> Proposer:
        """What chooses the pilots."""
        return self._proposer

    @property
    def space(self) -> PilotSpace:
        """What may be proposed."""
        return self._proposer.space

    def suggest(self, trial: Trial) -> PilotSpec:
        """Fill the trial's parameters in and return the pilot they stand for.

        Works under any sampler; choices outside the feasible region move to the nearest cell inside it.
        """
        params = {name: trial._suggest(name, axis) for name, axis in self._axes.items()}
        spec = self.space.spec(
            trials.cell_of(params, self.space), seed=trial_seed(self._proposer.seed, trial.number)
        )
        trial.set_user_attr(trials.SPEC, spec.to_dict())
        why = self._why.pop(trial.number, None)
        if why is not None:
            trial.set_user_attr(WHY, {"by": why.reason, "expected_gain": why.gain, "doubt": why.doubt})
        return spec

    def report(self, trial: Trial, record: PilotRecord) -> float:
        """Keep the whole record with the trial and return the value to hand to Optuna.

        Raises
        ------
        InvalidInput
            The record has no curve of the target; raise `optuna.TrialPruned` or return NaN for a failed run.
        """
        trial.set_user_attr(trials.RECORD, record.to_dict())
        trial.set_user_attr(trials.RECORD_ID, record.id)
        value = trials.value_of(record, self.space.target)
        if value is None:
            raise InvalidInput(
                f"record.curves: found {', '.join(record.curves) or 'none'}; this study needs {self.space.target}"
            )
        return value

    def ensure_something(self, study: Study) -> None:
        """Raise `NoProposal` when nothing fits, before a trial is created for it."""
        self._proposer.ensure_something(self.progress(study))

    def progress(self, study: Study, *, skip: int | None = None) -> Progress:
        """The study as the proposer sees it."""
        return replace(
            trials.read(study, self.space, seed=self._proposer.seed, skip=skip), evidence=self._records
        )

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Freeze the space in a new study; refuse a study started with another one, or axes fixed to what is none.

        Raises
        ------
        InvalidInput
            Optuna closes no trial that is refused here, so it is closed first.
        """
        try:
            trials.freeze(study, self.space)
            trials.check_fixed(trial.system_attrs.get("fixed_params", {}), self.space)
        except InvalidInput:
            study.tell(trial.number, state=TrialState.FAIL)
            raise

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The fixed axes of a pilot."""
        return dict(self._axes)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """All axes at once; axes fixed by ``enqueue_trial`` are taken as given.

        Raises
        ------
        NoProposal
            Nothing fits the remaining pilot budget. The trial is closed first, so that no zombie stays behind.
        """
        with self._lock:
            fixed: Mapping[str, Any] = trial.system_attrs.get("fixed_params", {})
            try:
                proposal = self._proposer.propose(self.progress(study, skip=trial.number), fixed=fixed)
            except NoProposal:
                if not study._thread_local.in_optimize_loop:  # there, Optuna closes a trial that raised
                    study.tell(trial.number, state=TrialState.FAIL)
                raise
            self._why[trial.number] = proposal
            return trials.params_of(proposal.cell, self.space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Parameters that are none of ours (somebody's own) are drawn at random, seeded by the trial."""
        random = RandomSampler(seed=trial_seed(self._proposer.seed, trial.number))
        return random.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """End ``study.optimize`` when nothing more fits the pilot budget, or the rule is met."""
        if (wrong := trials.off_scale(values)) is not None:
            warnings.warn(f"trial {trial.number} teaches nothing: {wrong}", stacklevel=2)
        if not study._thread_local.in_optimize_loop:
            return  # ask/tell: whoever drives the loop decides
        with self._lock:
            progress = self.progress(study)
            try:
                self._proposer.ensure_something(progress)
            except NoProposal:
                study.stop()
                return
            if self._rule is not None and self._proposer.stop(progress, self._rule) is not None:
                study.stop()
