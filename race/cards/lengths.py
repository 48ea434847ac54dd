"""Settle how many tokens there were: lengths, samples, passes. See `race.cards.assumption` for the names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from race.cards.assumption import Assumption, Evidence
from race.errors import InvalidInput

# Where a log says nothing at all: a span that GRPO runs on reasoning tasks lie in, not an estimate.
_COMPLETION = (32.0, 512.0, 8192.0)
_PROMPT = (8.0, 200.0, 2000.0)
_SAMPLES = (8, 64, 1024)
_GROUP = (2, 8, 64)


def whole(e: Evidence, name: str) -> int | None:
    """A config entry as a whole number of at least 1; anything else that is there is an error."""
    known = e.config(name)
    if known is None:
        return None
    value = known.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise InvalidInput(f"{known.source}: found {value!r}; allowed is a whole number of at least 1")
    return value


def settle_lengths(e: Evidence) -> list[Assumption]:
    """Prompt and completion lengths."""
    completion = _completion(e)
    if _only_tokens(e) and not completion.settled:
        # Only the split between prompt and completion is open.
        whole_length = f"{e.from_log('tokens_total')} / samples"
        return [
            Assumption("completion_tokens", completion.label, None, f"{whole_length} x their share of the tokens"),
            Assumption(
                "completion_share", "completions' share of the tokens", 0.7,
                "the log counts prompt and completion tokens together", (0.05, 0.98),
            ),
            Assumption("prompt_tokens", "mean prompt length, tokens", None, f"{whole_length}, less the completion"),
            *_spread(e, completion),
        ]  # fmt: skip
    return [completion, _prompt(e, completion), *_spread(e, completion)]


def _only_tokens(e: Evidence) -> bool:
    """Whether the sum of prompt and completion lengths is known and nothing else about them is."""
    lengths = ("completion_mean", "prompt_mean", "total_mean", "tokens_completion_step")
    known = "prompts_per_step" in e.given or _samples_of_config(e) is not None
    return (
        e.log.has("tokens_total")
        and known
        and not any(map(e.log.has, lengths))
        and "prompt_tokens" not in e.given
    )


def _completion(e: Evidence) -> Assumption:
    name, label = "completion_tokens", "mean completion length, tokens"
    if "completion_tokens" in e.given:
        return Assumption(name, label, e.given[name], _given_against(e, "completion_mean"))
    for field in ("completion_mean", "tokens_completion_step"):
        if e.log.has(field):
            return Assumption(name, label, None, e.from_log(field))
    low, value, high = _COMPLETION
    limit = whole(e, "completion_limit")
    if limit is not None:
        source = f"the log has no lengths; half the limit of {limit} ({_source(e, 'completion_limit')})"
        return Assumption(name, label, max(1, limit / 2), source, (max(1, limit / 16), limit))
    return Assumption(name, label, value, "the log has no lengths and no limit is known", (low, high))


def _given_against(e: Evidence, field: str) -> str:
    """``given``, with what the log says if it says anything else."""
    logged = e.log.mean(field)
    return "given" if math.isnan(logged) else f"given; the log has {logged:.4g} on average"


def _prompt(e: Evidence, completion: Assumption) -> Assumption:
    name, label = "prompt_tokens", "mean prompt length, tokens"
    if "prompt_tokens" in e.given:
        return Assumption(name, label, e.given[name], _given_against(e, "prompt_mean"))
    if e.log.has("prompt_mean") or e.log.has("tokens_prompt_step"):
        field = "prompt_mean" if e.log.has("prompt_mean") else "tokens_prompt_step"
        return Assumption(name, label, None, e.from_log(field))
    logged = completion.value is None
    if e.log.has("total_mean") and logged:
        return Assumption(name, label, None, f"{e.from_log('total_mean')} less {completion.source[5:]}")
    if e.log.has("tokens_total") and logged and samples_known(e):
        return Assumption(
            name, label, None, f"{e.from_log('tokens_total')} / samples, less {completion.source[5:]}"
        )
    low, value, high = _PROMPT
    limit = whole(e, "prompt_limit")
    if limit is not None:
        high = float(max(limit, 1))
        low, value = min(low, high), min(value, high / 2 if high > 1 else 1.0)
    why = (
        "not in the log"
        if not e.log.has("tokens_total")
        else "the samples per step are unknown, so tokens do not give it"
    )
    return Assumption(name, label, value, why, (low, high))


def _source(e: Evidence, name: str) -> str:
    known = e.config(name)
    return "" if known is None else known.source


def _spread(e: Evidence, completion: Assumption) -> list[Assumption]:
    found = [
        Assumption(
            "spread",
            "spread of lengths around their means (attention is quadratic)",
            1 / 3,
            "logs have means; a third of the largest variance that the shortest and longest allow",
            (0.0, 1.0),
        )
    ]
    log = e.log
    cadence = float(np.median(log.covered))
    if completion.value is None and log.has("completion_mean") and not log.averaged and cadence > 1:
        values = log.series["completion_mean"]
        values = values[np.isfinite(values)]
        if len(values) > 1 and values.mean() > 0:
            error = min(0.5, 2 * float(values.std(ddof=1)) / math.sqrt(len(values)) / float(values.mean()))
            found.append(
                Assumption(
                    "between",
                    "lengths in steps that were not logged, relative",
                    1.0,
                    f"only every {cadence:g}th step is in the log; two standard errors",
                    (1 - error, 1 + error),
                )
            )
    return found


def samples_known(e: Evidence) -> bool:
    """Whether the number of samples follows from what is known."""
    return (
        "prompts_per_step" in e.given
        or _samples_of_config(e) is not None
        or e.log.has("samples_step")
        or e.log.has("samples_trained")
    )


def _samples_of_config(e: Evidence) -> tuple[int, str] | None:
    """Completions per generation batch from the run's config."""
    direct = whole(e, "generation_batch") or whole(e, "samples_per_step")
    if direct is not None:
        return direct, _source(e, "generation_batch") or _source(e, "samples_per_step")
    micro, world = whole(e, "micro_batch"), whole(e, "world")
    per_generation = whole(e, "steps_per_generation") or whole(e, "accumulation")
    if micro is not None and world is not None and per_generation is not None:
        return (
            micro * world * per_generation,
            f"{_source(e, 'micro_batch')} x processes x steps per generation",
        )
    prompts, group = whole(e, "prompts_per_step"), _group_known(e)
    if prompts is not None and group is not None:
        return prompts * group, f"{_source(e, 'prompts_per_step')} x group size"
    return None


def _group_known(e: Evidence) -> int | None:
    group = e.given.get("group_size")
    return int(group) if group is not None else whole(e, "group_size")


def settle_samples(e: Evidence) -> list[Assumption]:
    """Group size, samples per generation batch, steps per batch and passes."""
    return [_group(e), _samples(e), *_generated(e), *settle_reuse(e)]


def _generated(e: Evidence) -> list[Assumption]:
    """With dynamic sampling a generation batch may be larger than a training batch."""
    if not e.log.has("generation_batches"):
        return []
    name, label = "generated", "generation batch over training batch"
    made, kept = whole(e, "generated_prompts"), whole(e, "prompts_per_step")
    if made is not None and kept is not None:
        return [Assumption(name, label, made / kept, _source(e, "generated_prompts"))]
    return [Assumption(name, label, 1.0, "equal by default; no config says otherwise", (1.0, 3.0))]


def _group(e: Evidence) -> Assumption:
    name, label = "group_size", "rollouts per prompt, G"
    if name in e.given:
        return Assumption(name, label, e.given[name], "given")
    group = whole(e, name)
    if group is not None:
        return Assumption(name, label, group, _source(e, name))
    low, value, high = _GROUP
    return Assumption(name, label, value, "no trainer logs it, and no config says it", (low, high))


def _samples(e: Evidence) -> Assumption:
    name, label = "samples", "completions per generation batch"
    if "prompts_per_step" in e.given:
        group = _group_known(e)
        if group is None:
            raise InvalidInput(
                "group_size: missing beside prompts_per_step; allowed is the rollouts per prompt"
            )
        return Assumption(name, label, e.given["prompts_per_step"] * group, "given: prompts x group size")
    for field in ("samples_step", "samples_trained"):
        if e.log.has(field) and e.log.trainer != "nemo-rl":
            return Assumption(name, label, None, e.from_log(field))
    found = _samples_of_config(e)
    log = e.log
    if (
        log.has("tokens_step")
        and log.has("completion_mean")
        and (log.has("prompt_mean") or log.has("total_mean"))
    ):
        derived = _derived_samples(e)
        if found is None or not math.isclose(found[0], derived, rel_tol=0.02):
            return Assumption(name, label, derived, f"{e.from_log('tokens_step')} / mean length")
    if found is not None:
        return Assumption(name, label, found[0], found[1])
    if log.has("samples_trained"):
        return Assumption(name, label, None, e.from_log("samples_trained"))
    micro = whole(e, "micro_batch")
    if micro is not None:
        each = micro * (whole(e, "steps_per_generation") or whole(e, "accumulation") or 1)
        source = f"{_source(e, 'micro_batch')}, and one process: how many there were is not said"
        return Assumption(name, label, each, source, (each, 8 * each))
    if log.has("tokens_total") and log.has("completion_mean"):
        # What samples x length is follows from the tokens; the split between them is the prompt length's range.
        return Assumption(name, label, "from tokens", f"{e.from_log('tokens_total')} / the assumed length")
    low, value, high = _SAMPLES
    return Assumption(name, label, value, "neither the log nor a config says it", (low, high))


def _derived_samples(e: Evidence) -> float:
    log = e.log
    length = (
        log.series["completion_mean"] + log.series["prompt_mean"]
        if log.has("prompt_mean")
        else log.series["total_mean"]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = log.series["tokens_step"] / length
    samples = samples[np.isfinite(samples) & (samples > 0)]
    if not len(samples):
        raise InvalidInput(
            f"{log.file}: {log.keys['tokens_step']}: found no step with tokens; allowed is at least one"
        )
    value = float(np.median(samples))
    return float(round(value)) if abs(value - round(value)) < 0.02 * value else value


def settle_reuse(e: Evidence) -> list[Assumption]:
    """Optimiser steps per generation batch, and passes over it."""
    log = e.log
    passes = e.given.get("update_ratio")
    source = "given: update ratio"
    if passes is None and (known := whole(e, "passes")) is not None:
        passes, source = known, _source(e, "passes")
    if log.trainer != "trl":
        if passes is None:
            known_default = (
                "one pass; other trainers than TRL do not reuse samples across steps unless told to"
            )
            passes, source = 1, known_default
            ends: Any = (1, 4) if log.trainer in ("verl", "openrlhf") and not log.config else None
            return [
                Assumption("period", "optimiser steps per generation batch", 1, "one by construction"),
                Assumption("passes", "passes over each sample", passes, source, ends),
            ]
        return [
            Assumption("period", "optimiser steps per generation batch", 1, "one by construction"),
            Assumption("passes", "passes over each sample", passes, source),
        ]
    per_generation, accumulation = whole(e, "steps_per_generation"), whole(e, "accumulation")
    seen = _period_of_pattern(e)
    period: float | None = None
    why = ""
    if passes is not None and per_generation is not None and accumulation is not None:
        period, why = per_generation * float(passes) / accumulation, _source(e, "steps_per_generation")
    elif (
        passes is not None
        and e.config("steps_per_generation") is None
        and (accumulation is not None or seen is None)
    ):
        period, why = float(passes), "steps_per_generation follows the accumulation, as by default"
    if seen is not None and (period is None or not math.isclose(period, seen, rel_tol=0.01)):
        period, why = seen, "log: which rows have lengths"
    label = "optimiser steps per generation batch"
    if period is None:
        many = (1.0, 4.0)
        return [
            Assumption("period", label, 1.0, "TRL's default; the log does not show it", None),
            Assumption("passes", "passes over each sample", 1.0, "TRL's default; no config says it", many),
        ]
    found = [Assumption("period", label, period, why)]
    if passes is None:
        ends = None if period <= 1 else (1.0, float(period))
        found.append(
            Assumption(
                "passes",
                "passes over each sample",
                float(max(1.0, period)),
                "one pass a step over the whole batch",
                ends,
            )
        )
    else:
        found.append(Assumption("passes", "passes over each sample", float(passes), source))
    return found


def _period_of_pattern(e: Evidence) -> float | None:
    """Steps between rows with lengths, when every step has a row; ``None`` when rows cannot show it."""
    log = e.log
    if not log.has("completion_mean") or len(log.steps) < 4 or int(np.median(log.covered)) != 1:
        return None
    at = log.steps[np.isfinite(log.series["completion_mean"])]
    gaps = np.diff(at)
    return float(np.median(gaps)) if len(gaps) else None
