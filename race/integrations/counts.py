"""What a run has counted so far, over all processes; written into every checkpoint and read back on resume."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from race.checks import check_object, check_whole
from race.errors import InvalidInput
from race.integrations.evidence import Generation
from race.integrations.tally import Tally
from race.integrations.watch import Observed

_FIELDS = ("run_id", "tally", "generations", "steps", "tokens", "started_at", "diverged", "reward_models")
_TOKENS = ("prompt", "completion", "samples")


@dataclass
class RunCounts:
    """Counts of one run.

    Attributes
    ----------
    run_id
        Stays the same when the run is resumed.
    tally, generations, steps
        FLOPs; points of the reward curve; generations done.
    tokens
        Prompt tokens, completion tokens and samples generated in training.
    started_at
        Optimiser step from which on the run was metered.
    diverged
        Why, if it did.
    """

    run_id: str = field(default_factory=lambda: f"trl-{uuid.uuid4().hex}")
    tally: Tally = field(default_factory=Tally)
    generations: list[Generation] = field(default_factory=list)
    steps: int = 0
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))
    started_at: int = 0
    diverged: str = ""

    def add(self, everyone: Sequence[Observed]) -> None:
        """Add what each process saw; generations are common to all."""
        for seen in everyone:
            self.tally.add(seen.tally)
            self.tokens["prompt"] += seen.prompt_tokens
            self.tokens["completion"] += seen.completion_tokens
            self.tokens["samples"] += seen.samples
        self.steps += len(everyone[0].rewards)

    def to_dict(self, *, reward_models: int) -> dict[str, Any]:
        """Plain JSON types, with the number of models that have to be given again."""
        return {
            "run_id": self.run_id,
            "tally": self.tally.to_dict(),
            "generations": [g.to_list() for g in self.generations],
            "steps": self.steps,
            "tokens": dict(self.tokens),
            "started_at": self.started_at,
            "diverged": self.diverged,
            "reward_models": reward_models,
        }

    @classmethod
    def from_dict(cls, data: Any, *, reward_models: int, where: str) -> RunCounts:
        """Read back what `to_dict` wrote; something else, or other reward models, is `InvalidInput`."""
        values = check_object(where, data, required=_FIELDS)
        if values["reward_models"] != reward_models:
            raise InvalidInput(
                f"reward_models: found {reward_models}, the checkpoint was metered with {values['reward_models']}; "
                "allowed is the same models, and restore_callback_states_from_checkpoint=False, since this callback "
                "restores itself"
            )
        tokens = check_object(f"{where}.tokens", values["tokens"], required=_TOKENS)
        return cls(
            run_id=str(values["run_id"]),
            tally=Tally.from_dict(values["tally"], where=f"{where}.tally"),
            generations=[
                Generation.from_list(g, where=f"{where}.generations") for g in values["generations"]
            ],
            steps=check_whole(f"{where}.steps", values["steps"], low=0, high=1e12),
            tokens={n: check_whole(f"{where}.tokens.{n}", tokens[n], low=0, high=1e18) for n in _TOKENS},
            started_at=check_whole(f"{where}.started_at", values["started_at"], low=0, high=1e12),
            diverged=str(values["diverged"]),
        )
