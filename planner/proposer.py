"""What to run next: the first points of the IsoFLOP grid, then the pilot with the greatest gain per FLOP.

No Optuna in here: the sampler, the planner's batch of next pilots and ``race plan`` all ask this one object, and get
the same answer for the same progress and seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.acquisition import score, together
from planner.beliefs import form_beliefs
from planner.decision import Decision, decide
from planner.grid import candidates, start_grid
from planner.progress import Pilot, Progress
from planner.proving import missing_proof, proof_running
from planner.seeds import trial_seed
from planner.slices import BudgetSlice
from planner.space import Cell, PilotSpace
from planner.stopping import Stop, StoppingRule
from race.checks import check_whole
from race.errors import CannotDo
from race.records import PilotSpec
from race.simulator import Settings, Worlds
from race.units import format_flops
from surrogate import Surrogate

# Of all learning curves together. A planner fits after every pilot; beyond this, a fit takes seconds at two hundred
# pilots and moves no probability by more than a few hundredths. Up to fifty pilots nothing is thinned for it.
POINTS = 600


class NoProposal(CannotDo):
    """Nothing should, or can, be proposed now; the message says why. An answer, not a failure."""


@dataclass(frozen=True)
class Proposal:
    """A pilot and why it was chosen.

    Attributes
    ----------
    cell
        Where in the space.
    reason
        ``grid``, ``gain`` or ``proof`` (`planner.proving`).
    gain
        Expected reduction of regret by this one pilot, in units of the first target; ``None`` on the grid.
    doubt
        How far beliefs had to be widened for any pilot to matter (see `planner.acquisition`); 1 is not at all.
    """

    cell: Cell
    reason: str
    gain: float | None = None
    doubt: float = 1.0


@dataclass
class Proposer:
    """Chooses pilots for one space.

    Attributes
    ----------
    space
        What may be proposed.
    seed
        Seeds the surrogate.
    start
        IsoFLOP pilots that open a plan, counting records that are there already; ``None`` is one per model.
    prior
        Worlds the surrogate starts from; ``None`` is its default.
    rule
        When the plan would end: from there on larger pilots are asked for first (`planner.proving`). ``None``: never.
    """

    space: PilotSpace
    seed: int = 0
    start: int | None = None
    prior: Worlds | None = None
    rule: StoppingRule | None = None
    _fitted: tuple[tuple[str, ...], Surrogate] | None = field(default=None, repr=False)
    _decided: tuple[Surrogate, Decision] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, low=0, high=2**63 - 1)
        if self.start is not None:
            check_whole("start", self.start, low=0, high=10**6)

    @property
    def start_count(self) -> int:
        """Number of opening grid pilots."""
        return len(self.space.models) * len(self.space.recipes) if self.start is None else self.start

    @cached_property
    def slice(self) -> BudgetSlice:
        """The slice at the real budget."""
        return BudgetSlice.build(self.space)

    def surrogate(self, progress: Progress) -> Surrogate:
        """Fitted to all records; kept until they change."""
        key = tuple(record.id for record in progress.records)
        if self._fitted is None or self._fitted[0] != key:
            fitted = Surrogate.fit(
                progress.records,
                ladder=self.space.ladder,
                recipe=self.space.recipes[0],
                targets=self.space.targets,
                prior=self.prior,
                seed=self.seed,
                points=POINTS,
            )
            self._fitted = key, fitted
        return self._fitted[1]

    def adopt(self, progress: Progress, fitted: Surrogate) -> None:
        """Take ``fitted`` for what fitting to the records of ``progress`` would give."""
        self._fitted = tuple(record.id for record in progress.records), fitted

    @cached_property
    def smallest(self) -> float | None:
        """FLOPs of the smallest pilot that can be run at all, or ``None``."""
        return float(min(self.space.sizes[c.size] for c in self._cells)) if self._cells else None

    def propose(self, progress: Progress, *, fixed: Mapping[str, Any] | None = None) -> Proposal:
        """The next pilot.

        Parameters
        ----------
        fixed
            Axes that are given and not chosen: any of ``model``, ``reward`` (a name), ``rho`` and ``size``.

        Raises
        ------
        NoProposal
            No pilot fits what is left of the pilot budget.
        """
        remaining = self.space.pilot_budget - progress.spent
        if not fixed and progress.known(self.space) < self.start_count:
            for cell in start_grid(self.space, self.start_count):
                if self.space.affordable(cell, remaining) and not self._asked(cell, progress.pilots):
                    return Proposal(cell, "grid")
        proof = None if fixed else self._proof(progress)
        if proof is not None:
            return proof
        able = self.able(remaining)
        if fixed:
            able = _matching(able, self.space, fixed, remaining)
        if not able:
            raise NoProposal(self._why_nothing(progress, remaining))
        # Two seeds of one cell side by side are sometimes the best pair by the numbers, but one of them is soon
        # known not to have been needed; a cell next to it teaches nearly as much about this one, and more elsewhere.
        out = [p for p in progress.pilots if p.state == "running"]
        apart = [cell for cell in able if not self._asked(cell, out)]
        return self._best(apart or able, progress, remaining)

    def able(self, remaining: float) -> list[Cell]:
        """Candidates that ``remaining`` pilot FLOPs pay for."""
        return [cell for cell in self._cells if self.space.sizes[cell.size] <= remaining]

    def ensure_something(self, progress: Progress) -> None:
        """Raise `NoProposal` when no pilot fits; cheap."""
        remaining = self.space.pilot_budget - progress.spent
        smallest = self.smallest
        if smallest is None or smallest > remaining:
            raise NoProposal(self._why_nothing(progress, remaining))

    def decide(self, progress: Progress) -> Decision:
        """The decision on everything known; kept until that changes."""
        surrogate = self.surrogate(progress)
        if self._decided is None or self._decided[0] is not surrogate:
            self._decided = surrogate, decide(surrogate, self.slice, seed=self.seed)
        return self._decided[1]

    def stop(self, progress: Progress, rule: StoppingRule, *, finished: int | None = None) -> Stop | None:
        """Why no further pilot should be bought, or ``None``.

        Parameters
        ----------
        finished
            Pilots that count as finished, where that is not all that have reported.
        """
        decision = self.decide(progress)
        return rule.check(
            decision,
            finished=progress.finished if finished is None else finished,
            spent=progress.spent,
            pilot_budget=self.space.pilot_budget,
            smallest=self.smallest,
            unproven=decision.certain(rule.certainty) and self._unproven(progress),
        )

    def _unproven(self, progress: Progress) -> bool:
        decision = self.decide(progress)
        return (
            missing_proof(self.space, decision, progress, self._has_cells) is not None
            or proof_running(self.space, decision, progress)
        )

    def _proof(self, progress: Progress) -> Proposal | None:
        """A larger pilot that has to be run before the regime counts as certain, where it is."""
        if self.rule is None or progress.finished < self.rule.min_pilots or not progress.records:
            return None
        decision = self.decide(progress)
        if not decision.certain(self.rule.certainty):
            return None
        proof = missing_proof(self.space, decision, progress, self._has_cells)
        if proof is None:
            return None
        cells = self._cells_of(proof.model, proof.reward, proof.size)
        return Proposal(min(cells, key=lambda cell: abs(_logit(cell.rho) - _logit(proof.rho))), "proof")

    def _cells_of(self, model: str, reward: str, size: int) -> list[Cell]:
        names = [m.name for m in self.space.models]
        at = names.index(model), self.space.rewards.index(reward), size
        return [cell for cell in self._cells if (cell.model, cell.reward, cell.size) == at]

    def _has_cells(self, model: str, reward: str, size: int) -> bool:
        return bool(self._cells_of(model, reward, size))

    def _best(self, able: list[Cell], progress: Progress, remaining: float) -> Proposal:
        cost = np.array([self.space.sizes[cell.size] for cell in able], dtype=np.float64)
        place = {cell: index for index, cell in enumerate(self._cells)}
        known = all(cell in place for cell in able)
        only = [place[cell] for cell in able] if known else None
        table = self._table if known else self.space.settings(able, cost)
        running = self.running(progress)
        scores = [
            score(
                form_beliefs(
                    self.surrogate(progress).condition(running, target), self.slice, table, only=only, target=target
                ),
                cost,
                remaining,
            )
            for target in self.space.targets
        ]
        best = int(together(scores).argmax())
        return Proposal(able[best], "gain", float(scores[0].single[best]), scores[0].doubt)

    @cached_property
    def _cells(self) -> list[Cell]:
        """Every candidate that the whole pilot budget could pay for."""
        return candidates(self.space, remaining=self.space.pilot_budget)

    @cached_property
    def _table(self) -> Settings:
        """The simulator's view of them; one table for the life of a plan, so that it is simulated once."""
        return self.space.settings(self._cells, [self.space.sizes[cell.size] for cell in self._cells])

    def running(self, progress: Progress) -> Settings:
        """The pilots that are out, at their own budgets."""
        names = [m.name.lower() for m in self.space.models]
        out = [s for s in progress.pending if s.model.lower() in names and s.reward in self.space.rewards]
        cells = [Cell(names.index(s.model.lower()), self.space.rewards.index(s.reward), 0, s.rho) for s in out]
        return self.space.settings(cells, [s.budget for s in out])

    def _asked(self, cell: Cell, pilots: Sequence[Pilot]) -> bool:
        name, reward = self.space.models[cell.model].name, self.space.rewards[cell.reward]
        return any(
            p.spec.model == name
            and p.spec.reward == reward
            and p.spec.budget == self.space.sizes[cell.size]
            and abs(p.spec.rho - cell.rho) < 1e-6
            for p in pilots
        )

    def _why_nothing(self, progress: Progress, remaining: float) -> str:
        smallest = self.smallest
        total = format_flops(self.space.pilot_budget)
        if smallest is None:
            return (
                f"pilots: none proposed, since no size up to {format_flops(self.space.sizes[-1])} FLOPs pays for two "
                f"steps of any model; raise the pilot budget of {total} or shorten the recipe"
            )
        running = len(progress.pending)
        waiting = f", of which {running} running pilots hold a part" if running else ""
        left = format_flops(remaining) if remaining > 0 else "nothing"
        return (
            f"pilots: none proposed, since {left} of {total} pilot FLOPs is left{waiting}, and the smallest pilot "
            f"takes {format_flops(smallest)}"
        )

    def batch(self, progress: Progress, count: int) -> list[PilotSpec]:
        """Up to ``count`` pilots to run side by side, each chosen knowing of the others."""
        specs: list[PilotSpec] = []
        for _ in range(count):
            ahead = progress.with_running(specs)
            try:
                proposal = self.propose(ahead)
            except NoProposal:
                break
            number = max((p.number for p in ahead.pilots), default=-1) + 1
            specs.append(self.space.spec(proposal.cell, seed=trial_seed(self.seed, number)))
        return specs


def _matching(able: list[Cell], space: PilotSpace, fixed: Mapping[str, Any], remaining: float) -> list[Cell]:
    """Candidates that agree with the axes somebody has fixed."""
    wanted = {name: fixed[name] for name in ("model", "size") if name in fixed}
    cells = [
        cell
        for cell in able
        if all(getattr(cell, name) == value for name, value in wanted.items())
        and ("reward" not in fixed or space.rewards[cell.reward] == fixed["reward"])
    ]
    if "rho" in fixed:
        moved = {replace(cell, rho=_clip(fixed["rho"], space.rho_range(cell.model, cell.reward))) for cell in cells}
        cells = sorted((c for c in moved if space.affordable(c, remaining)), key=lambda c: (c.model, c.reward, c.size))
    return cells


def _logit(rho: float) -> float:
    return math.log(rho / (1 - rho))


def _clip(rho: float, bounds: tuple[float, float]) -> float:
    return min(max(float(rho), bounds[0]), bounds[1])
