"""What ``race run`` was told, made into a setup, a spec and options; and the folder that is the run's own."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from race.cli.options import RecipeOptions, split_targets
from race.cli.run_config import words
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from race.records import PilotSpec
    from real_runs.assemble import Setup
    from real_runs.config import RunOptions

SETUP_FILE = "setup.json"
_FLAGS = ("model", "reward", "budget", "rho", "seed", "targets")


def settle(told: dict[str, Any], file: Path | None) -> tuple[Setup, PilotSpec, RunOptions]:
    """What ``told`` (flags over TOML) and the spec in ``file`` mean, before anything heavy is imported.

    Raises
    ------
    InvalidInput
        Something is missing, unknown, out of range, or said twice in different ways.
    """
    from real_runs.assemble import Setup, priced_reward
    from real_runs.config import RunOptions
    from real_runs.nano.defaults import default_options

    pilot = None
    if file is not None:
        given = [name for name in (*_FLAGS, "recipe") if told.get(name) not in (None, {})]
        if given:
            raise InvalidInput(
                f"spec: given together with {', '.join(given)}, which it says itself; drop one of them"
            )
        pilot = _read_spec(file)
        told = {**told, "model": pilot.model, "reward": pilot.reward}
    if not told.get("model"):
        raise InvalidInput("model: missing; give --model nano-s, a folder or a hub id (see --help)")
    reward, in_recipe = told.get("reward"), told["recipe"].pop("reward", None)
    if reward is not None and in_recipe is not None and priced_reward(reward) != in_recipe:
        raise InvalidInput(f"reward: found {reward!r}, and {in_recipe!r} in the recipe; drop one")
    reward = reward or in_recipe or "sparse"
    priced = priced_reward(reward)
    reward_model = told.get("reward_model") or told["recipe"].pop("reward_model", None)
    setup = Setup(
        model=told["model"],
        reward=reward,
        reward_model=reward_model,
        judge_model=told.get("judge_model"),
        data=told["data"],
        prm=told["prm"],
    )
    options = RunOptions.from_dict({**default_options(setup.model), **told["options"]})
    if pilot is None:
        pilot = _spec(told, setup, priced)
    return _with_reward_model(setup, pilot), pilot, options


def _spec(told: dict[str, Any], setup: Setup, priced: str) -> PilotSpec:
    from race.allocation import size_run
    from race.flops import Architecture
    from race.ladders import ladder
    from race.records import PilotSpec
    from race.units import parse_budget
    from real_runs.assemble import locate, reward_model_for
    from real_runs.nano.defaults import default_budget

    model = setup.model.lower() if setup.nano else setup.model
    architecture = Architecture.from_config(locate(model))
    scorer = reward_model_for(model, priced, setup.reward_model)
    given = {**told["recipe"], "reward_model": scorer}
    built = RecipeOptions({k: v for k, v in given.items() if v is not None}).build(
        ladder("nano" if setup.nano else "qwen2.5").recipe(priced)
    )
    budget = told.get("budget") or default_budget(model)
    if budget is None:
        raise InvalidInput(
            "budget: missing; give the FLOPs to spend, such as 1e16 (race flops says what a step costs)"
        )
    rho = told.get("rho")
    if rho is not None and "update_ratio" in told["recipe"]:
        raise InvalidInput("rho: given together with update_ratio; drop one, since each fixes the other")
    plan = size_run(architecture, built, parse_budget(budget), rho=rho)
    targets = words(told.get("targets"), "targets")
    return PilotSpec(
        model=model,
        params=architecture.params(),
        recipe=plan.recipe,
        rho=plan.step.rho if rho is None else float(rho),
        budget=plan.budget,
        seed=told.get("seed") or 0,
        targets=tuple(split_targets(",".join(targets)) if targets else _default_targets(setup)),
    )


def _default_targets(setup: Setup) -> list[str]:
    judged = ["judge"] if setup.nano or setup.judge_model else []
    return ["native", "pass@1", *judged, *(f"pass@1:{name}" for name in setup.data.get("benchmarks", {}))]


def _with_reward_model(setup: Setup, pilot: PilotSpec) -> Setup:
    """The setup with the reward model that the spec prices; one that a nano model does not have is refused."""
    from dataclasses import replace

    from real_runs.assemble import reward_model_for

    priced = pilot.recipe.reward_model
    if priced is None:
        return setup
    return replace(setup, reward_model=reward_model_for(setup.model, pilot.reward, priced))


def _read_spec(path: Path) -> PilotSpec:
    from race.records import PilotSpec

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise InvalidInput(f"spec: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"spec: {path} is not JSON: {error}") from None
    return PilotSpec.from_dict(data)


def default_folder(setup: Setup, pilot: PilotSpec, options: RunOptions) -> Path:
    """A folder of this run's own: the same command finds it again, and another never does."""
    text = json.dumps([setup.to_dict(), pilot.to_dict(), options.to_dict()], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.+-]+", "-", f"{Path(setup.model).name}-{setup.reward}").strip("-")
    return Path("runs") / f"{name}-{digest}"


def check_setup(folder: Path, setup: Setup) -> None:
    """Refuse to resume with other data or models behind the same recipe."""
    path = folder / SETUP_FILE
    if not path.exists():
        return
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CannotDo(f"out: cannot read {path} ({error}); not run over it") from None
    wanted = json.loads(json.dumps(setup.to_dict()))
    for name, value in wanted.items():
        if found.get(name) != value:
            raise InvalidInput(
                f"{name}: found {value!r}, the run in {folder} has {found.get(name)!r}; resuming needs what the run "
                "was started with: use it, or another folder"
            )
