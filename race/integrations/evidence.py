"""A metered run as a `PilotRecord`: what other runs can be planned from.

A step of a recipe is one generation with everything that is learned from it, so a point on the curve is a generation
(the policy that wrote the completions, and what had been spent by then), not an optimiser step: TRL may take several
of these from one generation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from race.allocation import Allocation
from race.checks import check_real, check_whole
from race.errors import InvalidInput
from race.flops import LoraSpec
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.records import Curve, Health, PilotRecord, PilotSpec

#: A curve keeps at most this many points: a surrogate thins further, and a store holds many records.
MAX_POINTS = 400


@dataclass(frozen=True)
class Generation:
    """One generation of a run.

    Attributes
    ----------
    index
        Generations before it.
    flops
        Spent before it (needed, causal).
    reward
        Mean training reward of its samples.
    samples
        How many.
    """

    index: int
    flops: int
    reward: float
    samples: int

    def to_list(self) -> list[int | float]:
        """Plain JSON types."""
        return [self.index, self.flops, self.reward, self.samples]

    @classmethod
    def from_list(cls, data: Any, *, where: str) -> Generation:
        """Read back what `to_list` wrote."""
        if not isinstance(data, Sequence) or len(data) != 4:
            raise InvalidInput(f"{where}: found {data!r}; allowed are index, FLOPs, reward and samples")
        index, flops, reward, samples = data
        return cls(
            check_whole(f"{where}.index", index, low=0, high=1e12),
            check_whole(f"{where}.flops", flops, low=0, high=10**31),
            check_real(f"{where}.reward", reward, low=-1e30, high=1e30),
            check_whole(f"{where}.samples", samples, low=1, high=1e12),
        )


@dataclass(frozen=True)
class RunSummary:
    """Everything about a finished run that its record needs; the fields are `Recipe`'s and `PilotSpec`'s."""

    run_id: str
    model: str
    params: int
    reward: str
    reward_model: str | None
    lora: LoraSpec | None
    kl: bool
    prompts_per_step: int
    group_size: int
    prompt_tokens: float
    completion_tokens: float
    update_ratio: float
    prefix_caching: bool
    gradient_checkpointing: bool
    recompute_old_logprobs: bool
    budget: int | None
    seed: int
    flops: Allocation
    eval_flops: int
    steps: int
    generations: tuple[Generation, ...]
    reward_range: tuple[float, float] | None
    diverged: str
    provenance: dict[str, Any]
    assumptions: tuple[str, ...]


def record_of(run: RunSummary) -> PilotRecord:
    """The record; its native reward is scaled to [0, 1] by ``reward_range``, or by what was observed.

    Raises
    ------
    InvalidInput
        Nothing was generated, or a field has a value that a record cannot hold.
    """
    if not run.generations:
        raise InvalidInput("record: nothing was generated in this run; allowed is at least one step")
    values = [g.reward for g in run.generations]
    assumptions = list(run.assumptions)
    bounds = run.reward_range
    if bounds is None:
        bounds = (0.0, 1.0)
        if min(values) < 0 or max(values) > 1:
            bounds = (min(values), max(values))
            assumptions.append("reward_range: the lowest and highest mean reward of a generation (not given)")
    low, high = bounds
    width = (high - low) or 1.0
    points = thinned(run.generations)
    scaled = [min(max((g.reward - low) / width, 0.0), 1.0) for g in points]
    ratio = min(max(run.update_ratio, MIN_UPDATE_RATIO), MAX_UPDATE_RATIO)
    recipe = Recipe(
        reward=run.reward,
        prompts_per_step=run.prompts_per_step,
        group_size=run.group_size,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        update_ratio=ratio,
        lora=run.lora,
        kl=run.kl,
        reward_model=run.reward_model,
        prefix_caching=run.prefix_caching,
        gradient_checkpointing=run.gradient_checkpointing,
        recompute_old_logprobs=run.recompute_old_logprobs,
    )
    spec = PilotSpec(
        model=run.model,
        params=run.params,
        recipe=recipe,
        rho=run.flops.rho,
        budget=run.budget or int(run.flops.total),
        seed=run.seed,
        targets=("native",),
    )
    curve = Curve(
        step=tuple(g.index for g in points),
        flops=tuple(g.flops for g in points),
        value=tuple(scaled),
        se=tuple(_standard_error(v, g.samples) for v, g in zip(scaled, points, strict=True)),
    )
    return PilotRecord(
        spec=spec,
        flops=run.flops,
        curves={"native": curve},
        evidence="real",
        health=Health("diverged", run.diverged) if run.diverged else Health(),
        provenance={**run.provenance, "native_range": list(bounds), "assumptions": assumptions},
        eval_flops=run.eval_flops,
        steps=run.steps,
        id=run.run_id,
    )


def thinned(generations: Sequence[Generation]) -> list[Generation]:
    """At most `MAX_POINTS`: neighbours are averaged, weighted by their samples."""
    size = math.ceil(len(generations) / MAX_POINTS)
    merged = []
    for start in range(0, len(generations), size):
        group = generations[start : start + size]
        samples = sum(g.samples for g in group)
        reward = sum(g.reward * g.samples for g in group) / samples
        middle = group[len(group) // 2]
        merged.append(Generation(middle.index, middle.flops, reward, samples))
    return merged


def _standard_error(value: float, samples: int) -> float:
    """Of a mean of scores in [0, 1]: binomial by the rule of succession, an upper bound for graded scores."""
    p = (samples * value + 1) / (samples + 2)
    return math.sqrt(p * (1 - p) / samples)


def check_range(value: Sequence[float]) -> tuple[float, float]:
    """Two finite numbers, the lower first, or `InvalidInput`."""
    numbers = [float(v) for v in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)) or numbers[0] >= numbers[1]:
        raise InvalidInput(f"reward_range: found {value!r}; allowed are two numbers, the lower first")
    return numbers[0], numbers[1]
