"""From logged values by step to a record, with FLOPs rebuilt from the recipe.

A log says what a run scored; what it spent is recomputed: optimisation step k of a recipe has cost k times
``race.allocation.step_allocation``, so the last logged step gives the budget, and the recipe gives rho.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from race.allocation import step_allocation
from race.errors import InvalidInput
from race.importers._base import ModelRef, RunFacts
from race.ladders import LadderModel, model
from race.recipe import Recipe, exact, parse_lora_targets
from race.records import Curve, PilotRecord, PilotSpec

# FLOPs depend on these more than on anything else, so they have no default here, unlike in a plan.
REQUIRED = {
    "reward": "one of sparse, structured, dense, proxy-prm and prm",
    "prompts_per_step": "prompts per optimisation step, before multiplying by the group size",
    "group_size": "rollouts per prompt",
    "prompt_tokens": "the mean prompt length in tokens (an estimate will do; say so under assumptions)",
    "completion_tokens": "the mean completion length in tokens, not the limit (an estimate will do; say so)",
    "lora": "lora_rank, 0 for full fine-tuning",
}
# Published sizes of the evaluation sets, so that nobody has to look them up.
BENCHMARK_SIZES = {"gsm8k": 1319, "math500": 500, "math-500": 500, "aime24": 30, "aime25": 30}


@dataclass(frozen=True)
class Run:
    """One run of a log: ``values[i]`` was measured after ``steps[i]`` optimisation steps."""

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    provenance: Mapping[str, Any]


def recipe_of(given: Mapping[str, Any], *, where: str) -> tuple[Recipe, list[str]]:
    """The recipe, and in words each field that was not given and took its default.

    Raises
    ------
    InvalidInput
        A field that FLOPs depend on is missing, unknown or out of range.
    """
    values = _with_lora({name: exact(value) for name, value in given.items()}, where=where)
    for name, what in REQUIRED.items():
        if name not in values:
            raise InvalidInput(f"{where}.{name}: missing, and FLOPs are rebuilt from it; allowed is {what}")
    recipe = Recipe.from_dict(values, where=where)
    taken = [
        f"{f.name} = {getattr(recipe, f.name)} (not given)"
        for f in fields(recipe)
        if f.name not in values and getattr(recipe, f.name) is not None
    ]
    return recipe, taken


def _with_lora(values: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Turn the command line's ``lora_rank`` and ``lora_targets`` into a record's ``lora``."""
    rank, targets = values.pop("lora_rank", None), values.pop("lora_targets", None)
    if rank is None and targets is None:
        return values
    if "lora" in values or rank is None:
        raise InvalidInput(
            f"{where}: found {'lora beside lora_rank' if 'lora' in values else 'lora_targets without lora_rank'}; "
            "allowed is lora_rank (0 for full fine-tuning) with optional lora_targets, or a lora table"
        )
    if isinstance(targets, str):
        targets = parse_lora_targets(targets)
    full = isinstance(rank, int) and rank == 0
    values["lora"] = None if full else {"rank": rank, **({} if targets is None else {"targets": targets})}
    return values


def resolve(ref: ModelRef, *, where: str) -> LadderModel:
    """The model behind a name in a log; an unknown one is `InvalidInput` that says where it was named."""
    try:
        return model(ref.name, config=ref.config)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def eval_size_of(facts: RunFacts, target: str, recipe: Recipe) -> tuple[int, str]:
    """Samples behind each value, and where that number comes from."""
    if facts.eval_size is not None:
        return facts.eval_size, "given"
    benchmark = target.partition(":")[2].lower()
    if benchmark in BENCHMARK_SIZES:
        return BENCHMARK_SIZES[benchmark], f"size of {benchmark}"
    if target == "native":
        return recipe.samples_per_step, "samples of one step"
    raise InvalidInput(
        f"eval_size: missing, and standard errors come from it; allowed is how many questions {target} was "
        "evaluated on"
    )


def standard_error(value: float, size: int) -> float:
    """Binomial standard error of a mean of ``size`` scores in [0, 1].

    ``sqrt(p (1 - p) / n)`` at ``p = (n value + 1) / (n + 2)``: the rule of succession keeps 0 and 1, which
    are never certain, from looking exact. For scores that are not 0 or 1 it is an upper bound.
    """
    p = (size * value + 1) / (size + 2)
    return math.sqrt(p * (1 - p) / size)


def record_of(
    run: Run, rung: LadderModel, recipe: Recipe, facts: RunFacts, *, where: str, seed: int
) -> PilotRecord:
    """Rebuild FLOPs and put the record together."""
    target = facts.target
    if target is None:
        raise InvalidInput(
            "target: missing; allowed are native, judge, pass@1, or pass@1:<benchmark>, what the values are"
        )
    last = run.steps[-1]
    if last < 1:
        raise InvalidInput(
            f"{where}: found values at step 0 only; allowed is at least one value after training"
        )
    size, size_from = eval_size_of(facts, target, recipe)
    step = step_allocation(rung.architecture, recipe)
    spent = step * last
    if not spent.total <= 1e30:
        raise InvalidInput(
            f"{where}: found step {last}, {spent.total:.3g} FLOPs by this recipe; allowed are at most 1e30"
        )
    spec = PilotSpec(
        model=rung.name,
        params=rung.params,
        recipe=recipe,
        rho=spent.rho,
        budget=math.ceil(spent.total),
        seed=seed,
        targets=(target,),
    )
    curve = Curve(
        step=tuple(run.steps),
        flops=tuple((step * k).total for k in run.steps),
        value=tuple(run.values),
        se=tuple(standard_error(v, size) for v in run.values),
    )
    record = PilotRecord(
        spec=spec,
        flops=spent,
        curves={target: curve},
        evidence="imported",
        provenance={
            **run.provenance,
            "run": run.name,
            "source": facts.source,
            "flops": "rebuilt from the recipe: steps x FLOPs of one step, causal attention, mean lengths",
            "eval_size": size,
            "eval_size_from": size_from,
        },
        steps=last,
    )
    return replace(record, id=content_id(record))


def content_id(record: PilotRecord) -> str:
    """An id that depends on what a record says, not on when or from where it was read.

    Importing the same run again, under another file name too, gives the same id, which a store refuses:
    evidence is never counted twice.
    """
    data = record.to_dict()
    said = {name: data[name] for name in ("spec", "steps", "flops", "curves", "evidence")}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return f"imported-{digest[:32]}"
