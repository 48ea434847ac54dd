"""The planner: ask for a pilot, tell its record, decide.

The Optuna study is the memory: what has been asked, what came back, what is still out. A planner over a storage
can be dropped at any moment and built again by the same call; it then goes on as if nothing had happened. Deciding
without a study (``race plan`` on records from a store) never imports Optuna.

RACE is a diagnostic: it says where the optimum is likely to lie, it does not promise a better held-out result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.decision import Decision
from planner.progress import Progress, evidence_of
from planner.proposer import NoProposal, Proposer
from planner.pruning import Prune, check_running
from planner.space import PilotSpace
from planner.stopping import Stop, StoppingRule
from race.ladders import Ladder
from race.recipe import Recipe
from race.records import PilotRecord, PilotSpec
from race.simulator import Worlds

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

    from planner.memory import StudyMemory
    from planner.storage import Storage
    from surrogate import Surrogate

DEFAULT_PILOTS = 3


class Planner:
    """Plans pilots for one budget and decides where it should go.

    Parameters
    ----------
    ladder
        The models: a `Ladder`, the name of a built-in one (``"qwen2.5"``), or a list of model names.
    budget
        The real budget in FLOPs, as a number or as people write it (``"1e18"``).
    reward
        Reward system, or several to choose among (then ``target`` is judge or pass@1).
    target
        What is maximised; further targets are reported beside it.
    recipe
        Template of every run; defaults to the ladder's.
    pilot_budget
        FLOPs for all pilots together; a tenth of the budget by default.
    sizes
        Pilot sizes to choose among; by default four, doubling up to half of the pilot budget.
    records
        Evidence from elsewhere: a store, imported logs.
    study, storage, study_name
        An Optuna study, or where to keep one: a storage URL or object, or a path (``.journal`` for a journal file,
        anything else for SQLite). With neither, a study in memory is made at the first `ask`.
    seed
        Everything random derives from it.
    start
        IsoFLOP pilots that open the plan; one per model by default.
    prior
        Simulator worlds to start from; the calibrated ones by default.
    rule
        When to stop.
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
        records: Iterable[PilotRecord] = (),
        study: Study | None = None,
        storage: str | BaseStorage | Storage | None = None,
        study_name: str = "race",
        seed: int = 0,
        start: int | None = None,
        prior: Worlds | None = None,
        rule: StoppingRule | None = None,
    ) -> None:
        self.space = PilotSpace.build(
            ladder, budget=budget, reward=reward, target=target, recipe=recipe, pilot_budget=pilot_budget, sizes=sizes
        )
        self.proposer = Proposer(self.space, seed=seed, start=start, prior=prior)
        self.rule = StoppingRule(min_pilots=self.proposer.start_count) if rule is None else rule
        self._evidence = evidence_of(records)
        self._study_name = study_name
        self._memory: StudyMemory | None = None
        if study is not None or storage is not None:
            self._memory = self._open(study=study, storage=storage)

    @property
    def rule(self) -> StoppingRule:
        """When to stop."""
        return self._rule

    @rule.setter
    def rule(self, rule: StoppingRule) -> None:
        self._rule = self.proposer.rule = rule

    def _open(self, *, study: Study | None = None, storage: Any = None) -> StudyMemory:
        from planner.memory import StudyMemory

        return StudyMemory.open(
            self.proposer, evidence=self._evidence, study=study, storage=storage, name=self._study_name
        )

    @property
    def memory(self) -> StudyMemory:
        """The study, made in memory when there is none yet."""
        if self._memory is None:
            self._memory = self._open()
        return self._memory

    @property
    def study(self) -> Study:
        """The Optuna study behind the plan."""
        return self.memory.study

    @property
    def progress(self) -> Progress:
        """What has been asked and learned so far."""
        if self._memory is None:
            return Progress(evidence=self._evidence)
        return self._memory.progress()

    @property
    def remaining(self) -> float:
        """Pilot FLOPs neither spent nor reserved by running pilots."""
        return self.space.pilot_budget - self.progress.spent

    def adopt(self, fitted: Surrogate) -> None:
        """Answer from ``fitted`` until a record is added: the caller vouches that fitting would give the same."""
        self.proposer.adopt(self.progress, fitted)

    def ask(self) -> PilotSpec:
        """The next pilot to run; it counts as running until `tell` or `give_up`.

        Raises
        ------
        NoProposal
            Nothing fits what is left of the pilot budget; the message says why.
        """
        return self.memory.ask()

    def tell(self, spec: PilotSpec, record: PilotRecord) -> None:
        """Hand a pilot's record in.

        Telling the same record twice changes nothing. Records of pilots that were given up, or never asked for, are
        kept as data. Failed and collapsed runs belong here too: their FLOPs were spent.

        Raises
        ------
        InvalidInput
            The record is about another model or reward system than the spec.
        """
        self.memory.tell(spec, record)

    def give_up(self, spec: PilotSpec, reason: str) -> None:
        """Close a running pilot whose runner died; its whole budget stays charged until a record turns up."""
        self.memory.give_up(spec, reason)

    def next_pilots(self, count: int = DEFAULT_PILOTS) -> list[PilotSpec]:
        """Up to ``count`` pilots to run side by side. Nothing is reserved: that is what `ask` does."""
        return self.proposer.batch(self.progress, count)

    def decide(self, *, pilots: int = DEFAULT_PILOTS) -> Decision:
        """The decision on everything known, with up to ``pilots`` next pilots.

        Raises
        ------
        CannotDo
            The budget pays for no step of any model, or cannot be filled.
        """
        progress = self.progress
        decision = self.proposer.decide(progress)
        specs: list[PilotSpec] = []
        notes = list(progress.notes)
        if pilots > 0:
            specs = self.proposer.batch(progress, pilots)
            if not specs:
                try:
                    self.proposer.propose(progress)
                except NoProposal as nothing:
                    notes.append(str(nothing))
        return replace(decision, pilots=tuple(specs), notes=(*decision.notes, *notes))

    def stopped(self) -> Stop | None:
        """Why no further pilot should be bought, or ``None``."""
        return self.proposer.stop(self.progress, self.rule)

    def check(self, spec: PilotSpec, so_far: PilotRecord) -> Prune | None:
        """Whether a running pilot can no longer change the decision, from its record so far."""
        return check_running(self.proposer, self.progress, spec, so_far)

    def run(self, world: Callable[[PilotSpec], PilotRecord]) -> Decision:
        """Run pilots in ``world`` (any callable spec -> record) until `stopped`, then decide."""
        while self.stopped() is None:
            try:
                spec = self.ask()
            except NoProposal:
                break
            self.tell(spec, world(spec))
        return self.decide()
