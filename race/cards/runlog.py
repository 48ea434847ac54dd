"""A training run as its log and the files beside it tell it, in one vocabulary for all trainers.

The importers of `race.importers` fill a `RunLog`; cards and records are made from it and know nothing about
files. A number that a log does not have is absent here, never guessed: guesses are made in
`race.cards.settle`, where each of them is named and given a range.

    row       one log entry: values at, or averaged over, the optimiser steps since the entry before
    field     a canonical name below; its series has one value per row, NaN where the row has none
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Canonical series and their units. Key tables may fill these and no others.
FIELDS: dict[str, str] = {
    "completion_mean": "tokens, mean over completions",
    "completion_min": "tokens, shortest completion",
    "completion_max": "tokens, longest completion",
    "completion_ended": "tokens, mean over completions that ended by themselves",
    "prompt_mean": "tokens, mean over samples",
    "prompt_min": "tokens, shortest prompt",
    "prompt_max": "tokens, longest prompt",
    "total_mean": "tokens, prompt + completion, mean over samples",
    "tokens_step": "tokens of all samples of the step, prompt + completion, one pass",
    "tokens_prompt_step": "tokens of all prompts of the step",
    "tokens_completion_step": "tokens of all completions of the step",
    "tokens_total": "tokens since the start of the run, prompt + completion, one pass",
    "samples_step": "completions generated in the step",
    "samples_trained": "distinct completions trained on in the step",
    "generation_batches": "generation batches that one step took (dynamic sampling)",
    "kept_share": "share of generated groups that were kept (dynamic sampling)",
    "reward": "mean training reward",
    "reward_std": "spread of the reward, by the trainer's own definition",
    "zero_std_share": "share of groups whose rewards are all equal",
    "solved_none_share": "share of groups that are all wrong",
    "solved_all_share": "share of groups that are all right",
    "truncated_share": "share of completions cut at the limit",
    "kl": "divergence from the reference policy",
    "loss": "training loss",
    "seconds_step": "seconds of the step",
    "seconds_search": "seconds of generation",
    "seconds_update": "seconds of the update",
    "seconds_old_logprobs": "seconds of the old-log-prob pass",
    "seconds_reference": "seconds of the reference pass",
    "seconds_reward": "seconds of scoring",
    "own_mfu": "the trainer's own utilisation of the update, a share",
    "own_flops": "the trainer's own FLOPs per second of one GPU",
    "metered": "FLOPs so far, as a meter inside the run counted them",
    "rollout_correction": "present when rollout and training log-probs are compared",
    "accuracy": "validation accuracy",
}


@dataclass(frozen=True)
class Known:
    """A fact about a run and where it comes from (``training_args.json``, ``given``, ...)."""

    value: Any
    source: str


@dataclass(frozen=True)
class RunLog:
    """One run.

    Attributes
    ----------
    trainer, title
        Key of the trainer's table (``trl``) and its full name.
    container
        What kind of file it was: ``trainer_state.json``, ``console lines``, ...
    releases
        Which releases of the trainer log such keys, in words; empty when the keys do not say.
    file, sha256
        Name (without its folder) and digest of the log.
    run
        Name of the run in the log; empty when the log holds one and does not name it.
    steps
        Optimiser step of each row, shape (n,), strictly increasing.
    covered
        Steps that each row stands for, shape (n,); their sum is the number of steps in this log.
    series
        `FIELDS` names to values, shape (n,), NaN where a row has none.
    rewards
        Reward function or component to its mean, shape (n,).
    raw
        Every logged key to its values, shape (n,): what targets are chosen from.
    averaged
        Values are means over the steps a row covers; otherwise they are those of the row's own step.
    config
        Facts from files beside the log, by the names of `race.cards.settle`.
    redone
        Steps that were done twice because the run was resumed from an earlier one.
    own_total
        FLOPs that the trainer itself reports for the whole run, ``None`` if it reports none.
    notes
        In plain words, what is odd about the log.
    unknown_keys
        Keys that the trainer's table does not have.
    keys
        Field to the key it was read from.
    """

    trainer: str
    title: str
    container: str
    file: str
    sha256: str
    steps: IntArray
    covered: IntArray
    series: Mapping[str, FloatArray]
    rewards: Mapping[str, FloatArray] = field(default_factory=dict)
    raw: Mapping[str, FloatArray] = field(default_factory=dict)
    releases: str = ""
    run: str = ""
    averaged: bool = False
    config: Mapping[str, Known] = field(default_factory=dict)
    redone: int = 0
    own_total: float | None = None
    notes: tuple[str, ...] = ()
    unknown_keys: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def total_steps(self) -> int:
        """Optimiser steps that the rows stand for."""
        return int(self.covered.sum())

    def has(self, name: str) -> bool:
        """Whether any row has a value of this field."""
        values = self.series.get(name)
        return values is not None and bool(np.isfinite(values).any())

    def mean(self, name: str) -> float:
        """Mean of a field over steps; NaN when it was not logged."""
        values = self.series.get(name)
        if values is None:
            return float("nan")
        there = np.isfinite(values)
        if not there.any():
            return float("nan")
        return float(np.average(values[there], weights=self.covered[there]))

    def filled(self, name: str) -> FloatArray:
        """The field with each gap filled by the value before it (by the first one at the start).

        A row without lengths trains on samples that an earlier row reported, so this is not an interpolation.
        """
        values = self.series[name]
        there = np.flatnonzero(np.isfinite(values))
        at = np.clip(np.searchsorted(there, np.arange(len(values)), side="right") - 1, 0, None)
        filled: FloatArray = values[there[at]]
        return filled
