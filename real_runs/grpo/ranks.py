"""One run on several devices, one process each, started by torchrun or accelerate.

Every process holds the whole policy and goes through the same steps with the same state. What is divided:

    search    prompts, in contiguous parts; random numbers belong to a prompt's place in the step, not to a process
    reward    completions, in contiguous parts
    learning  micro-batches; gradients are summed over processes before each optimiser step

Process 0 alone writes: ledger, checkpoints, record, adapter. A run on several devices samples the completions and
takes the steps of a run on one, up to float rounding, and is charged the same FLOPs. When one process ends, the others
say so and end: the launcher starts them all again, and the run is resumed.

Left out: sharded weights. LoRA on a frozen base needs neither optimiser nor gradient sharding at the sizes planned
for here; a base that does not fit one device does not fit this trainer.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from race.errors import CannotDo
from real_runs.contracts import Completion, Judge, Reward, Scores
from real_runs.rollout._base import RolloutBackend, Rollouts, Sample, Sampling

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among ``count``."""

    rank: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> Ranks:
        """What torchrun or accelerate set up; alone where they did not."""
        if not dist.is_available():
            return cls()
        if not dist.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) < 2:
                return cls()
            if torch.cuda.is_available():
                torch.cuda.set_device(local_rank())
            # gloo carries the objects, nccl the gradients.
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
            atexit.register(_leave)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def part(self, items: Sequence[T]) -> tuple[int, Sequence[T]]:
        """This process's contiguous part of ``items``, and where it starts."""
        start, stop = (len(items) * r // self.count for r in (self.rank, self.rank + 1))
        return start, items[start:stop]

    def gathered(self, mine: T) -> list[T]:
        """What every process brought, in the order of the ranks."""
        if self.count == 1:
            return [mine]
        everyone: list[Any] = [None] * self.count
        with self._together():
            dist.all_gather_object(everyone, mine)
        return everyone

    def told(self, value: T) -> T:
        """Process 0's value, everywhere."""
        if self.count == 1:
            return value
        box = [value]
        with self._together():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over the processes, in place."""
        if self.count > 1:
            # One message: an adapter has hundreds of small tensors.
            flat = torch.cat([t.reshape(-1) for t in tensors])
            with self._together():
                dist.all_reduce(flat)
            for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Name what it means when the others cannot be reached."""
        try:
            yield
        except RuntimeError as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            raise CannotDo(
                f"processes: another of the {self.count} cannot be reached ({first}); its own message says "
                "why, and everything up to the last checkpoint is kept"
            ) from error


ALONE = Ranks()


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def writes() -> bool:
    """Whether this process is the one of its run that writes and talks; before anything is set up."""
    return int(os.environ.get("RANK", "0")) == 0 or int(os.environ.get("WORLD_SIZE", "1")) < 2


def local_rank() -> int:
    """This process's number on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


class DividedRollouts:
    """A `RolloutBackend` that samples this process's prompts and gathers everyone's."""

    def __init__(self, inner: RolloutBackend, ranks: Ranks) -> None:
        self.name = inner.name
        self._inner, self._ranks = inner, ranks

    def refresh(self, step: int) -> None:
        """See `RolloutBackend.refresh`."""
        self._inner.refresh(step)

    def close(self) -> None:
        """See `RolloutBackend.close`."""
        self._inner.close()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        share_prefill: bool = True,
        first: int = 0,
    ) -> Rollouts:
        """See `RolloutBackend.generate`."""
        start, mine = self._ranks.part(prompts)
        groups: list[list[Sample]] = []
        executed: int | None = 0
        if mine:
            done = self._inner.generate(
                mine, group_size=group_size, sampling=sampling, seed=seed, share_prefill=share_prefill,
                first=first + start,
            )  # fmt: skip
            groups, executed = done.groups, done.executed
        everyone = self._ranks.gathered((groups, executed))
        counts = [count for _, count in everyone]
        return Rollouts(
            [group for part, _ in everyone for group in part],
            None if None in counts else sum(count for count in counts if count is not None),
        )


class DividedScores:
    """A reward or judge that scores this process's completions and gathers everyone's."""

    def __init__(self, inner: Reward | Judge, ranks: Ranks) -> None:
        self.name = inner.name
        self._inner, self._ranks = inner, ranks

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        """See `Reward.flops_bound`; a judge that does not know has none."""
        bound = getattr(self._inner, "flops_bound", None)
        return 0 if bound is None else int(bound(prompt_tokens, completion_tokens))

    def score(self, completions: Sequence[Completion]) -> Scores:
        """See `Reward.score`."""
        _, mine = self._ranks.part(completions)
        scores = self._inner.score(mine) if mine else None
        everyone = [s for s in self._ranks.gathered(scores) if s is not None]
        counters = dict.fromkeys(name for s in everyone for name in s.health)
        return Scores(
            values=np.concatenate([s.values for s in everyone]),
            flops=sum(s.flops for s in everyone),
            parts={name: np.concatenate([s.parts[name] for s in everyone]) for name in everyone[0].parts},
            health={name: sum(s.health.get(name, 0.0) for s in everyone) for name in counters},
        )
