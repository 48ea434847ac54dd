"""Small pilots to run: real nano runs of a step or two, and simulated ones that take as long as a test wants."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from race.allocation import size_run
from race.flops import Architecture
from race.ladders import ladder
from race.records import PilotSpec
from real_runs.executors import Job

NANO = Architecture.from_config("nano-s")
# Six steps, evaluated on few problems: a second of work.
BUDGET = int(2.6e10)
QUICK_OPTIONS = {"eval_problems": 32, "eval_points": 6}


def simulated(seconds: float) -> list[str]:
    """A command that pretends to work for a while, telling its progress."""
    return [
        sys.executable, "-m", "real_runs.executors.simulated", "--world", "own-3", "--seconds", str(seconds),
        "--progress", "{progress}",
    ]  # fmt: skip


WARM = ("real_runs.executors.simulated",)


def spec(seed: int = 0, budget: int = BUDGET, **changes: object) -> PilotSpec:
    recipe = ladder("nano").recipe("sparse")
    plan = size_run(NANO, recipe, budget)
    built = PilotSpec("nano-s", NANO.params(), plan.recipe, plan.step.rho, budget, seed, ("native", "pass@1"))
    return replace(built, **changes)  # type: ignore[arg-type]


def job(folder: Path, name: str = "pilot", **about: object) -> Job:
    return Job(name, spec(**about), folder / name)  # type: ignore[arg-type]


def python(text: str) -> list[str]:
    """A runner written on the spot, with a quick start: no site packages."""
    return [sys.executable, "-I", "-S", "-c", text]
