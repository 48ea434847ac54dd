"""A study as a TOML file.

    schema = "race.study/1"
    name = "nano-study"            ASCII letters, digits, - and _
    about = "what it asks"         optional
    ladder = "nano"                as everywhere
    targets = ["native", "pass@1", "judge"]
    [recipe]                       `race.recipe.Recipe` fields on top of the ladder's, for every run
    [run]                          TOML for the runner (`race run --config`): options, data, prm
    [tuning]                       optional: learning rates per model and update ratio, on seeds of their own
    [[stage]]                      a grid: models x rewards x rho x budgets x LoRA ranks x seeds

A stage leaves out what it does not vary: all models of the ladder, the recipe's LoRA rank, the tuned rate of 1.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from race.checks import check_object, check_real, check_whole
from race.errors import InvalidInput
from race.ladders import Ladder, ladder
from race.rewards import check_target, reward_system
from race.units import parse_budget

STUDY_SCHEMA = "race.study/1"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
Rate = float | Literal["tuned"]


@dataclass(frozen=True)
class Stage:
    """One grid of settings.

    Attributes
    ----------
    name
        ``A``, ``B``, ...: stages may share runs, which are then carried out once.
    models, rewards, rhos, budgets, seeds
        Every combination is a run.
    lora_ranks
        Empty: the recipe's own.
    rate
        `Recipe.learning_rate`, or ``"tuned"``.
    later
        Decided on after a look at other stages: results are given without these runs, and once more with them.
    """

    name: str
    models: tuple[str, ...]
    rewards: tuple[str, ...]
    rhos: tuple[float, ...]
    budgets: tuple[int, ...]
    seeds: tuple[int, ...]
    lora_ranks: tuple[int, ...] = ()
    rate: Rate = 1.0
    later: bool = False


@dataclass(frozen=True)
class Tuning:
    """Runs that choose the learning rate: the best mean of ``target`` over ``seeds`` at each model and update ratio.

    Attributes
    ----------
    reward
        One reward system for all: tuning each on its own would compare tuning effort, not rewards.
    update_ratios, rates
        Where the best rate is looked for; between update ratios it is interpolated in log a.
    """

    models: tuple[str, ...]
    reward: str
    target: str
    update_ratios: tuple[float, ...]
    rates: tuple[float, ...]
    budgets: tuple[int, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Study:
    """What the file says, checked.

    Attributes
    ----------
    recipe
        Recipe fields that every run has.
    run
        What the runner is told beside each spec, as ``race run --config`` reads it.
    """

    name: str
    ladder: Ladder
    targets: tuple[str, ...]
    stages: tuple[Stage, ...]
    tuning: Tuning | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""

    def stage(self, name: str) -> Stage:
        """A stage by name; `InvalidInput` names those there are."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise InvalidInput(f"stage: found {name!r}; allowed are {', '.join(s.name for s in self.stages)}")


def read_study(path: str | Path) -> Study:
    """Read and check a study file.

    Raises
    ------
    InvalidInput
        It cannot be read, is not TOML, or says something unknown or impossible; the field is named.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"study: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"study: {path} is not TOML: {error}") from None
    return study_from_dict(data)


def study_from_dict(data: Mapping[str, Any]) -> Study:
    """As `read_study`, from what a TOML reader gives."""
    data = check_object(
        "study",
        data,
        required=("schema", "name", "ladder", "targets", "stage"),
        optional=("about", "recipe", "run", "tuning"),
    )
    if data["schema"] != STUDY_SCHEMA:
        raise InvalidInput(f"study.schema: found {data['schema']!r}; allowed is {STUDY_SCHEMA!r}")
    rungs = ladder(data["ladder"])
    study = Study(
        name=_name("study.name", data["name"]),
        ladder=rungs,
        targets=tuple(check_target(t) for t in _list("study.targets", data["targets"], str)),
        stages=_stages(data["stage"], rungs),
        tuning=_tuning(data["tuning"], rungs) if "tuning" in data else None,
        recipe=_table("study.recipe", data.get("recipe", {})),
        run=_table("study.run", data.get("run", {})),
        about=str(data.get("about", "")),
    )
    if study.tuning is not None and study.tuning.target not in study.targets:
        raise InvalidInput(
            f"tuning.target: found {study.tuning.target!r}, which no run measures; add it to targets"
        )
    if study.tuning is None and any(stage.rate == "tuned" for stage in study.stages):
        raise InvalidInput(
            'stage.learning_rate: found "tuned" without a [tuning] table; add one, or give a number'
        )
    for name in ("reward", "update_ratio", "learning_rate"):
        if name in study.recipe:
            raise InvalidInput(
                f"study.recipe.{name}: given for all runs; the stages vary it, so leave it out"
            )
    rungs.recipe("sparse", **study.recipe)  # an unknown or impossible field is found now
    return study


def _stages(data: Any, rungs: Ladder) -> tuple[Stage, ...]:
    if not isinstance(data, list) or not data:
        raise InvalidInput("study.stage: found none; allowed is at least one [[stage]] table")
    stages = []
    for number, given in enumerate(data):
        where = f"stage[{number}]"
        item = check_object(
            where,
            given,
            required=("name", "rewards", "rho", "budgets", "seeds"),
            optional=("models", "lora_ranks", "learning_rate", "later"),
        )
        later = item.get("later", False)
        if not isinstance(later, bool):
            raise InvalidInput(f"{where}.later: found {later!r}; allowed are true and false")
        rate = item.get("learning_rate", 1.0)
        stages.append(
            Stage(
                name=_name(f"{where}.name", item["name"]),
                models=_models(where, item, rungs),
                rewards=tuple(reward_system(r).name for r in _list(f"{where}.rewards", item["rewards"], str)),
                rhos=_reals(f"{where}.rho", item["rho"], 0.001, 0.999),
                budgets=_budgets(where, item),
                seeds=_wholes(f"{where}.seeds", item["seeds"], 0, 2**31),
                lora_ranks=_wholes(f"{where}.lora_ranks", item["lora_ranks"], 1, 1024)
                if "lora_ranks" in item
                else (),
                rate=rate
                if rate == "tuned"
                else check_real(f"{where}.learning_rate", rate, low=1e-4, high=1e4),
                later=later,
            )
        )
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise InvalidInput(f"stage.name: found {', '.join(names)}; allowed is each name once")
    return tuple(stages)


def _tuning(data: Any, rungs: Ladder) -> Tuning:
    where = "tuning"
    data = check_object(
        where,
        data,
        required=("reward", "target", "update_ratios", "learning_rates", "budgets", "seeds"),
        optional=("models",),
    )
    return Tuning(
        models=_models(where, data, rungs),
        reward=reward_system(data["reward"]).name,
        target=check_target(data["target"]),
        update_ratios=tuple(sorted(_reals(f"{where}.update_ratios", data["update_ratios"], 1 / 16, 16))),
        rates=tuple(sorted(_reals(f"{where}.learning_rates", data["learning_rates"], 1e-4, 1e4))),
        budgets=_budgets(where, data),
        seeds=_wholes(f"{where}.seeds", data["seeds"], 0, 2**31),
    )


def _models(where: str, data: Mapping[str, Any], rungs: Ladder) -> tuple[str, ...]:
    if "models" not in data:
        return tuple(m.name for m in rungs.models)
    return tuple(rungs[name].name for name in _list(f"{where}.models", data["models"], str))


def _budgets(where: str, data: Mapping[str, Any]) -> tuple[int, ...]:
    items = _list(f"{where}.budgets", data["budgets"], (str, int, float))
    return tuple(parse_budget(item, field=f"{where}.budgets") for item in items)


def _table(where: str, data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{where}: found {data!r}; allowed is a table")
    return dict(data)


def _name(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(
            f"{where}: found {value!r}; allowed are 1 to 40 ASCII letters, digits, '-' and '_'"
        )
    return value


def _list(where: str, value: Any, kind: type | tuple[type, ...]) -> list[Any]:
    good = isinstance(value, list) and value
    if not good or not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
        raise InvalidInput(f"{where}: found {value!r}; allowed is a list with at least one entry")
    if len(set(value)) < len(value):
        raise InvalidInput(f"{where}: found {value!r}; allowed is each entry once")
    return list(value)


def _reals(where: str, value: Any, low: float, high: float) -> tuple[float, ...]:
    return tuple(check_real(where, v, low=low, high=high) for v in _list(where, value, (int, float)))


def _wholes(where: str, value: Any, low: int, high: int) -> tuple[int, ...]:
    return tuple(check_whole(where, v, low=low, high=high) for v in _list(where, value, int))
