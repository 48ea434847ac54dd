"""From a `RunLog` to a record: FLOPs priced row by row on the logged lengths, curves in [0, 1].

Unlike a card, a record is evidence that plans rest on, so the quantities that decide its FLOPs most have to be known:
from the log, a config beside it, or the user. What is left to assume is listed in ``provenance["assumptions"]`` with
its range, and what it does to the total in ``provenance["flops_range"]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from race.cards.card import Card, card_of, seconds_of
from race.cards.runlog import FloatArray, RunLog
from race.errors import InvalidInput
from race.importers._base import ModelRef, RunFacts
from race.importers._keys import KeyTable
from race.importers._rebuild import REQUIRED, content_id, eval_size_of, resolve, standard_error
from race.ladders import LadderModel
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe, exact
from race.records import Curve, PilotRecord, PilotSpec
from race.rewards import check_target, reward_system

MAX_POINTS = 400
# Quantities of a card without which there is no record, by the recipe's words for them.
_NEEDED = {
    "group_size": "group_size",
    "samples": "prompts_per_step",
    "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "lora": "lora",
}


def record_of_run(path: Path, log: RunLog, table: KeyTable, facts: RunFacts) -> PilotRecord:
    """The record of one run.

    Raises
    ------
    InvalidInput
        The model, the reward system or a quantity that FLOPs depend on is not known, or there is no value of a target.
    """
    given = {name: exact(value) for name, value in facts.recipe.items()}
    if isinstance(given.get("lora"), Mapping):
        given["lora"] = Recipe.from_dict({"reward": "sparse", "lora": given["lora"]}).lora
    if "reward" not in given:
        raise InvalidInput(
            f"recipe.reward: missing, and FLOPs are rebuilt from it; allowed is {REQUIRED['reward']}"
        )
    reward_system(given["reward"])
    rung = _rung(log, facts)
    card = card_of(log, None if rung is None else rung.architecture, given=given, defaults=table.defaults)
    if rung is None:
        rung = LadderModel(card.model, card.architecture, card.architecture.params())
    for a in card.assumptions:
        word = _NEEDED.get(a.name)
        if a.name == "completion_share":
            word = "completion_tokens"
        if word is not None and (not a.settled or a.value == "from tokens"):
            raise InvalidInput(
                f"recipe.{word}: missing, and FLOPs are rebuilt from it; allowed is {REQUIRED[word]}"
            )
    recipe = _recipe(card, given)
    flops = card.flops
    if not flops.total <= 1e30:
        raise InvalidInput(f"{path}: found {flops.total:.3g} FLOPs by this recipe; allowed are at most 1e30")
    targets, about = _curves(path, card, recipe, facts)
    record = PilotRecord(
        spec=PilotSpec(
            model=rung.name,
            params=rung.params,
            recipe=recipe,
            rho=flops.rho,
            budget=math.ceil(flops.total),
            seed=_seed(log, facts),
            targets=tuple(targets),
        ),
        flops=flops,
        curves=targets,
        evidence="imported",
        provenance={
            "importer": log.trainer,
            "file": log.file,
            "sha256": log.sha256,
            "container": log.container,
            "releases": log.releases,
            "run": log.run,
            "source": facts.source,
            "flops": "each row of the log at its own mean lengths; causal attention, needed tokens only",
            "flops_range": [card.ranges.total.lo, card.ranges.total.hi],
            "assumptions": [*facts.assumptions, *_sentences(card)],
            "settled": {a.name: a.source for a in card.assumptions if a.settled},
            "reward_components": sorted(log.rewards),
            "notes": list(log.notes),
            "unknown_keys": list(log.unknown_keys),
            **about,
        },
        steps=log.total_steps,
        seconds=seconds_of(log),
    )
    return replace(record, id=content_id(record))


def _rung(log: RunLog, facts: RunFacts) -> LadderModel | None:
    refs = list(facts.models.values())
    if not refs:
        return None
    if len(refs) > 1 and log.run in facts.models:
        refs = [facts.models[log.run]]
    if len(refs) > 1:
        raise InvalidInput(f"models: found {len(refs)}; allowed is one, the model that this run trained")
    ref: ModelRef = refs[0]
    return resolve(ref, where="models")


def _seed(log: RunLog, facts: RunFacts) -> int:
    known = log.config.get("seed")
    if facts.seed == 0 and known is not None and isinstance(known.value, int) and 0 <= known.value < 2**63:
        return int(known.value)
    return facts.seed


def _recipe(card: Card, given: Mapping[str, Any]) -> Recipe:
    values, tokens, work = card.values, card.tokens, card.work
    group = int(values["group_size"])
    if group < 2:
        raise InvalidInput(
            f"group_size: found {group}; allowed is at least 2: a group of one has no advantage"
        )
    made, trained = float(work.generated.sum()), float(work.trained.sum())
    batch = made / max(float(work.batches.sum()), 1.0)
    ratio = min(max(trained / made, MIN_UPDATE_RATIO), MAX_UPDATE_RATIO) if made > 0 else 1.0
    learned = reward_system(given["reward"]).learned
    return Recipe(
        reward=given["reward"],
        prompts_per_step=max(1, round(batch / group)),
        group_size=group,
        prompt_tokens=exact(tokens["mean_prompt"]),
        completion_tokens=exact(tokens["mean_completion"]),
        update_ratio=ratio,
        lora=values["lora"],
        kl=bool(values["reference"]),
        reward_model=given.get("reward_model") if learned else None,
        prefix_caching=bool(values["prefix_caching"]),
        gradient_checkpointing=bool(values["checkpointing"]),
        recompute_old_logprobs=bool(values["old_logprobs"]),
        learning_rate=given.get("learning_rate", 1.0),
    )


def _sentences(card: Card) -> list[str]:
    total = float(card.ranges.point.total)
    return [
        f"{m.assumption.label}: {m.assumption.shown} ({m.assumption.source}); {m.assumption.range_shown} would "
        f"move the total by {m.lo / total - 1:+.1%} to {m.hi / total - 1:+.1%}"
        for m in card.ranges.moves
    ]


def _curves(
    path: Path, card: Card, recipe: Recipe, facts: RunFacts
) -> tuple[dict[str, Curve], dict[str, Any]]:
    """Curves by target, and where each comes from."""
    log = card.log
    columns: dict[str, tuple[str, FloatArray]] = {}
    for target, key in facts.series.items():
        check_target(target)
        if key not in log.raw:
            near = (
                ", ".join(k for k in sorted(log.raw) if "reward" in k or "val" in k or "acc" in k) or "none"
            )
            raise InvalidInput(f"series: {key!r} is not in {path}; allowed is one of its keys ({near[:300]})")
        columns[target] = key, log.raw[key]
    wanted = facts.target or "native"
    if wanted not in columns:
        if not log.has("reward"):
            raise InvalidInput(
                f"{path}: has no training reward; allowed is a log with one, or name the key of a target (series)"
            )
        columns[wanted] = log.keys["reward"], log.series["reward"]
    curves: dict[str, Curve] = {}
    about: dict[str, Any] = {"series": {target: key for target, (key, _) in columns.items()}}
    flops = np.cumsum(card.spent.total) * (1 + card.spent.redone)
    for target, (key, values) in columns.items():
        low, high, why = _range_of(values, target, key, facts)
        if target == "native":
            about |= {"native_range": [low, high], "native_range_from": why}
        size, size_from = eval_size_of(facts, target, recipe)
        about |= {"eval_size": size, "eval_size_from": size_from}
        curves[target] = _curve(path, log, flops, (values - low) / (high - low), key, size)
    return curves, about


def _range_of(values: FloatArray, target: str, key: str, facts: RunFacts) -> tuple[float, float, str]:
    """The scale of a target's values, and where it comes from."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise InvalidInput(f"{key}: found no finite value; allowed is at least one")
    low, high = float(finite.min()), float(finite.max())
    if facts.native_range is not None and target == "native":
        a, b = facts.native_range
        if low < a - 1e-9 or high > b + 1e-9:
            raise InvalidInput(
                f"native_range: found {a:g} to {b:g}, but {key} goes from {low:g} to {high:g}; allowed is a range that "
                "holds every value"
            )
        return a, b, "given"
    if low >= 0 and high <= 1:
        return 0.0, 1.0, "every value lies in [0, 1]"
    if target != "native":
        raise InvalidInput(
            f"{key}: goes from {low:g} to {high:g}; allowed for {target} are values from 0 to 1"
        )
    if high - low < 1e-12:
        raise InvalidInput(
            f"native_range: missing; {key} is {low:g} throughout, and its scale is not known; allowed is LO,HI"
        )
    return (
        low,
        high,
        "the smallest and largest value of this log (not the scale of the reward, which is not known)",
    )


def _curve(path: Path, log: RunLog, flops: FloatArray, values: FloatArray, key: str, size: int) -> Curve:
    at = np.flatnonzero(np.isfinite(values))
    if not len(at):
        raise InvalidInput(f"{path}: {key}: found no finite value; allowed is at least one")
    # Long curves are averaged in blocks: fewer points, none of what they say lost.
    blocks = np.array_split(at, min(len(at), MAX_POINTS))
    mean = [float(np.clip(values[block].mean(), 0, 1)) for block in blocks]
    return Curve(
        step=tuple(int(log.steps[block[-1]]) for block in blocks),
        flops=tuple(float(flops[block[-1]]) for block in blocks),
        value=tuple(mean),
        se=tuple(standard_error(v, size * len(block)) for v, block in zip(mean, blocks, strict=True)),
    )
