"""Made-up studies with known answers.

The latent of a run's final value is  base + gain - bend (logit rho - logit top)^2 + seed noise, with the top by reward
system and target, and a learning curve that saturates in FLOPs spent. Budgets multiply the gain by C^0.1.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from race.records import Curve, Health, PilotRecord
from real_runs.study import Study, StudyRun, study_runs, tuned_rates, tuning_runs
from real_runs.study.file import study_from_dict

TEXT = """
schema = "race.study/1"
name = "made"
ladder = "nano"
targets = ["native", "pass@1", "judge"]
[tuning]
reward = "sparse"
target = "pass@1"
update_ratios = [0.25, 4]
learning_rates = [0.5, 1]
budgets = ["4e11"]
seeds = [100]
[[stage]]
name = "main"
models = ["nano-s", "nano-m"]
rewards = ["sparse", "prm"]
rho = [0.3, 0.45, 0.6, 0.75, 0.85]
budgets = ["4e11"]
seeds = [0, 1, 2]
learning_rate = "tuned"
[[stage]]
name = "fixed"
models = ["nano-s", "nano-m"]
rewards = ["sparse"]
rho = [0.3, 0.45, 0.6, 0.75, 0.85]
budgets = ["4e11"]
seeds = [0, 1]
[[stage]]
name = "small"
models = ["nano-s"]
rewards = ["sparse"]
rho = [0.3, 0.45, 0.6, 0.75, 0.85]
budgets = ["1.3e11"]
seeds = [10]
learning_rate = "tuned"
[[stage]]
name = "rank"
models = ["nano-s"]
rewards = ["sparse"]
rho = [0.3, 0.45, 0.6, 0.75, 0.85]
budgets = ["4e11"]
lora_ranks = [2]
seeds = [0]
learning_rate = "tuned"
"""
TOPS = {"sparse": 0.68, "structured": 0.68, "dense": 0.66, "proxy-prm": 0.5, "prm": 0.36}
SHIFT = {"native": 0.0, "pass@1": 0.35, "judge": -0.2}  # of the top, in logits
LEVEL = {"nano-s": 0.9, "nano-m": 1.2, "nano-l": 1.0}
SHARES = np.arange(7) / 6


def logit(p: Any) -> Any:
    return np.log(p / (1 - p))


def top(reward: str, target: str) -> float:
    return float(1 / (1 + np.exp(-(logit(TOPS[reward]) + SHIFT[target.partition(":")[0]]))))


def made(run: StudyRun, *, noise: float = 0.06, bend: float = 0.25, status: str = "ok") -> PilotRecord:
    """The record of one run."""
    spec, plan = run.spec, run.plan
    seed = [spec.seed, round(1000 * spec.rho), spec.budget % 2**31, len(spec.model), sum(map(ord, run.id))]
    rng = np.random.default_rng(seed)
    shift = noise * rng.standard_normal()
    steps = np.unique(np.round(SHARES * plan.steps).astype(int))
    flops = steps / plan.steps * plan.flops.total
    flops[-1] = plan.flops.total
    curves = {}
    for target in spec.targets:
        gain = LEVEL[spec.model] * (spec.budget / 4e11) ** 0.1
        gain -= bend * (logit(spec.rho) - logit(top(spec.reward, target))) ** 2
        gain -= 0.1 * abs(np.log(spec.recipe.learning_rate))
        done = (1 - np.exp(-3 * flops / 4e11)) / (1 - np.exp(-3))
        p = 1 / (1 + np.exp(-(-0.8 + (gain + shift) * done)))
        se = np.sqrt(p * (1 - p) / 400)
        value = np.clip(p + 0.3 * se * rng.standard_normal(len(p)), 0, 1)
        curves[target] = Curve(tuple(steps.tolist()), tuple(flops.tolist()), tuple(value.tolist()), tuple(se.tolist()))
    return PilotRecord(
        spec=spec,
        flops=plan.flops,
        curves=curves,
        evidence="real",
        health=Health() if status == "ok" else Health(status, "made so"),  # type: ignore[arg-type]
        provenance={
            "stages": list(run.stages),
            "silent_groups": 0.4,
            "training": [{"step": plan.steps, "completions": 10, "accuracy": curves["pass@1"].value[-1] + 0.05}],
        },
        steps=plan.steps,
        id=run.id,
    )


def made_study(text: str = TEXT) -> Study:
    return study_from_dict(tomllib.loads(text))


def made_records(study: Study, *, stages: Sequence[str] = (), noise: float = 0.06) -> list[PilotRecord]:
    """Tuning, then every stage (or some)."""
    tuning = tuning_runs(study)
    records = {run.id: made(run, noise=noise) for run in tuning}
    for run in study_runs(study, tuned_rates(study, tuning, records)):
        if not stages or set(stages) & set(run.stages):
            records[run.id] = made(run, noise=noise)
    return list(records.values())


def collapsed(record: PilotRecord) -> PilotRecord:
    return replace(record, health=Health("collapsed", "made so"))
