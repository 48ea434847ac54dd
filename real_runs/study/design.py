"""From a study to its runs: every setting once, under a name that says what it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from race.allocation import RunPlan, size_run
from race.errors import InvalidInput
from race.flops import LoraSpec
from race.recipe import Recipe
from race.records import PilotSpec
from race.units import format_flops

if TYPE_CHECKING:
    from real_runs.study.file import Stage, Study
    from real_runs.study.tuning import Rates

TUNING_STAGE = "tuning"


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes
    ----------
    id
        Made of the setting, so the same setting has the same name on every machine; file-name safe.
    stages
        Those that look at it.
    spec, plan
        What to run, and what it will spend at the recipe's mean lengths.
    """

    id: str
    stages: tuple[str, ...]
    spec: PilotSpec
    plan: RunPlan


def study_runs(study: Study, rates: Rates | None = None) -> list[StudyRun]:
    """All runs of all stages, each setting once, in the order of the file.

    Parameters
    ----------
    rates
        What ``learning_rate = "tuned"`` means; without it such runs carry rate 1, which costs the same.

    Raises
    ------
    InvalidInput
        A rho that a setting cannot reach, or a budget below one step; the setting is named.
    """
    return _unique(run for stage in study.stages for run in _stage_runs(study, stage, rates))


def tuning_runs(study: Study) -> list[StudyRun]:
    """The runs that choose the learning rates; none without a ``[tuning]`` table."""
    tuning = study.tuning
    if tuning is None:
        return []
    grid = product(tuning.models, tuning.budgets, tuning.update_ratios, tuning.rates, tuning.seeds)
    return _unique(
        _run(study, TUNING_STAGE, model, budget, seed, _recipe(study, tuning.reward, a=a, rate=rate))
        for model, budget, a, rate, seed in grid
    )


def _stage_runs(study: Study, stage: Stage, rates: Rates | None) -> Iterator[StudyRun]:
    ranks: tuple[int | None, ...] = stage.lora_ranks or (None,)
    grid = product(stage.budgets, stage.rewards, ranks, stage.models, stage.rhos, stage.seeds)
    for budget, reward, rank, model, rho, seed in grid:
        recipe = _recipe(study, reward, rank=rank)
        run = _run(study, stage.name, model, budget, seed, recipe, rho=rho)
        rate = stage.rate
        if rate == "tuned":
            rate = 1.0 if rates is None else rates.at(model, run.spec.recipe.update_ratio)
        if rate != 1.0:
            run = _run(study, stage.name, model, budget, seed, replace(recipe, learning_rate=rate), rho=rho)
        yield run


def _recipe(
    study: Study, reward: str, *, a: float = 1.0, rank: int | None = None, rate: float = 1.0
) -> Recipe:
    recipe = study.ladder.recipe(reward, **study.recipe)
    if rank is not None:
        recipe = replace(recipe, lora=replace(recipe.lora, rank=rank) if recipe.lora else LoraSpec(rank=rank))
    return replace(recipe, update_ratio=a, learning_rate=rate)


def _run(
    study: Study,
    stage: str,
    model: str,
    budget: int,
    seed: int,
    recipe: Recipe,
    *,
    rho: float | None = None,
) -> StudyRun:
    rung = study.ladder[model]
    try:
        plan = size_run(rung.architecture, recipe, budget, rho=rho)
    except InvalidInput as error:
        raise InvalidInput(f"stage {stage}, {model}, {recipe.reward}: {error}") from None
    spec = PilotSpec(
        model=rung.name,
        params=rung.params,
        recipe=plan.recipe,
        rho=plan.step.rho if rho is None else rho,
        budget=budget,
        seed=seed,
        targets=study.targets,
    )
    return StudyRun(run_id(spec, by_ratio=rho is None), (stage,), spec, plan)


def run_id(spec: PilotSpec, *, by_ratio: bool = False) -> str:
    """``nano-s_prm_rho0p45_4e11_r8_x1_s0``: model, reward, rho (or a), budget, LoRA rank, learning rate, seed.

    Points become ``p``: record ids are file names of letters, digits, ``-`` and ``_``.
    """
    recipe = spec.recipe
    arm = f"a{recipe.update_ratio:.4g}" if by_ratio else f"rho{spec.rho:.4g}"
    rank = f"r{recipe.lora.rank}" if recipe.lora else "full"
    budget = format_flops(spec.budget).replace("+", "")
    parts = (spec.model, recipe.reward, arm, budget, rank, f"x{recipe.learning_rate:.4g}", f"s{spec.seed}")
    return "_".join(parts).replace(".", "p").replace(" ", "")


def _unique(runs: Iterable[StudyRun]) -> list[StudyRun]:
    found: dict[str, StudyRun] = {}
    for run in runs:
        known = found.get(run.id)
        if known is None:
            found[run.id] = run
        elif known.spec != run.spec:
            # Names round to four digits; two settings that close are a slip in the file.
            raise InvalidInput(
                f"study: two settings are both called {run.id}; make them differ by more, or drop one"
            )
        elif run.stages[0] not in known.stages:
            found[run.id] = replace(known, stages=(*known.stages, *run.stages))
    return list(found.values())
