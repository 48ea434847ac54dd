"""Settle what was run on the samples: adapter, checkpointing, log-prob passes, reward model, prefix caching."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from race.cards.assumption import Assumption, Evidence
from race.cards.lengths import settle_reuse
from race.errors import InvalidInput, RaceError
from race.flops import Architecture, LoraSpec
from race.recipe import parse_lora_targets

_SMALL_RANK = 8


def settle_switches(e: Evidence) -> list[Assumption]:
    """Everything that is on or off."""
    return [
        settle_lora(e),
        _checkpointing(e),
        _reference(e),
        _old_logprobs(e),
        _reward_model(e),
        _prefix_caching(e),
        *_masked(e),
    ]


def _flag(e: Evidence, name: str) -> tuple[bool, str] | None:
    known = e.config(name)
    if known is None:
        return None
    value = known.value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value in (0, 1):
        value = bool(value)
    if not isinstance(value, bool):
        raise InvalidInput(f"{known.source}: found {value!r}; allowed are true and false")
    return value, known.source


def settle_lora(e: Evidence) -> Assumption:
    """What was trained."""
    name, label = "lora", "trained weights"
    if "lora_rank" in e.given or "lora_targets" in e.given or "lora" in e.given:
        return Assumption(name, label, _given_lora(e), "given")
    adapter = e.config("adapter")
    if adapter is not None:
        return Assumption(name, label, LoraSpec.from_peft(adapter.value), adapter.source)
    rank = e.config("lora_rank")
    enabled = _flag(e, "lora_on")
    if rank is not None and (enabled is None or enabled[0]):
        if isinstance(rank.value, bool) or not isinstance(rank.value, int) or rank.value < 0:
            raise InvalidInput(
                f"{rank.source}: found {rank.value!r}; allowed is a rank, 0 for full fine-tuning"
            )
        if rank.value > 0:
            return Assumption(name, label, LoraSpec(rank.value, _config_targets(e)), rank.source)
        return Assumption(name, label, None, rank.source)
    if enabled is not None and not enabled[0]:
        return Assumption(name, label, None, enabled[1])
    full = e.config("full_weights")
    if full is not None:
        return Assumption(name, label, None, full.source)
    targets = ("qkv_proj",) if e.policy.fused else ("q_proj", "v_proj")
    if e.log.config and e.log.trainer != "trl" and e.config("model") is not None:
        # A whole config without a rank is a config of full fine-tuning.
        return Assumption(name, label, None, f"the config sets no rank; {e.default('lora')}")
    return Assumption(
        name,
        label,
        None,
        e.default("lora") or "nothing says otherwise",
        (LoraSpec(_SMALL_RANK, targets), None),
    )


def _given_lora(e: Evidence) -> LoraSpec | None:
    if "lora" in e.given:
        lora = e.given["lora"]
        if lora is not None and not isinstance(lora, LoraSpec):
            raise InvalidInput(f"lora: found {lora!r}; allowed is a LoraSpec, or None for full fine-tuning")
        return lora
    rank, targets = e.given.get("lora_rank"), e.given.get("lora_targets")
    if rank is None:
        raise InvalidInput("lora_rank: missing beside lora_targets; allowed is a rank, or drop both")
    if rank == 0:
        if targets is not None:
            raise InvalidInput("lora_targets: given with lora_rank 0, which is full fine-tuning; drop one")
        return None
    if targets is None:
        return LoraSpec(rank)
    return LoraSpec(rank, _targets(parse_lora_targets(targets) if isinstance(targets, str) else targets))


def _targets(value: Any) -> Any:
    return value if isinstance(value, str) else tuple(value)


def _config_targets(e: Evidence) -> Any:
    known = e.config("lora_targets")
    if known is None or known.value in ("all-linear", None, [], ["all-linear"]):
        return "all-linear"
    value = known.value
    return _targets(
        parse_lora_targets(value.strip("[]").replace("'", "")) if isinstance(value, str) else value
    )


def _checkpointing(e: Evidence) -> Assumption:
    name, label = "checkpointing", "gradient checkpointing"
    if "gradient_checkpointing" in e.given:
        return Assumption(name, label, bool(e.given["gradient_checkpointing"]), "given")
    if e.log.trainer == "prime-rl" and e.config("checkpointing") is not None:
        return Assumption(name, label, True, e.log.config["checkpointing"].source)  # a table of its own
    found = _flag(e, name)
    if found is not None:
        return Assumption(name, label, *found)
    usual = e.log.trainer in ("trl", "verl")
    why = f"{e.log.title} {'turns it on' if usual else 'leaves it off'} by default in recent releases"
    return Assumption(name, label, usual, why, (False, True))


def _moves(e: Evidence, field: str) -> bool:
    """Whether a field has a value other than zero."""
    values = e.log.series[field]
    return bool((np.abs(values[np.isfinite(values)]) > 0).any())


def _reference(e: Evidence) -> Assumption:
    name, label = "reference", "reference log-probs (KL penalty)"
    log = e.log
    if "kl" in e.given:
        return Assumption(name, label, bool(e.given["kl"]), "given")
    if log.has("seconds_reference"):
        return Assumption(name, label, True, e.from_log("seconds_reference"))
    if log.has("kl") and (log.trainer == "trl" or _moves(e, "kl")):
        return Assumption(name, label, True, e.from_log("kl"))
    beta = e.config("beta")
    if beta is not None:
        value = beta.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise InvalidInput(f"{beta.source}: found {value!r}; allowed is a number")
        return Assumption(name, label, value != 0, beta.source)
    for flag in ("use_kl_loss", "use_kl_reward"):
        if (found := _flag(e, flag)) is not None and (found[0] or flag == "use_kl_reward"):
            return Assumption(name, label, *found)
    if log.trainer == "trl" and e.full_log:
        return Assumption(name, label, False, "log: kl is missing, which TRL logs when beta is not 0")
    if log.trainer == "verl" and log.has("seconds_search"):
        return Assumption(name, label, False, "log: timing_s/ref is missing beside the other timings")
    if log.trainer == "openrlhf" and log.has("kl"):
        return Assumption(name, label, False, "log: kl is 0 throughout")
    return Assumption(name, label, False, "no sign of one in the log", (False, True))


def _old_logprobs(e: Evidence) -> Assumption:
    name, label = "old_logprobs", "old-log-prob pass"
    log = e.log
    if "recompute_old_logprobs" in e.given:
        return Assumption(name, label, bool(e.given["recompute_old_logprobs"]), "given")
    if log.trainer == "trl":
        return _old_logprobs_of_trl(e, name, label)
    if log.has("seconds_old_logprobs"):
        return Assumption(name, label, True, e.from_log("seconds_old_logprobs"))
    if log.trainer == "openrlhf":
        return Assumption(name, label, True, "OpenRLHF always runs it")
    if (why := e.default("old_logprobs")) is not None:
        return Assumption(name, label, log.trainer == "nemo-rl", why)
    if log.trainer == "verl" and log.has("seconds_search"):
        return Assumption(
            name, label, False, "log: timing_s/old_log_prob is missing beside the other timings"
        )
    return Assumption(name, label, True, f"{log.title} runs it by default", (False, True))


def _old_logprobs_of_trl(e: Evidence, name: str, label: str) -> Assumption:
    """TRL runs it when samples outlive an optimiser step, and to correct for vLLM."""
    log = e.log
    if log.has("rollout_correction"):
        return Assumption(name, label, True, e.from_log("rollout_correction"))
    reuse = {a.name: a for a in settle_reuse(e)}
    if reuse["period"].value > 1:
        return Assumption(name, label, True, "samples are used in more than one optimiser step")
    if reuse["passes"].settled is False:
        return Assumption(name, label, False, "no sign of reuse in the log", (False, True))
    vllm, correction = _flag(e, "vllm"), _flag(e, "correction")
    if vllm is not None and not vllm[0]:
        return Assumption(name, label, False, f"{vllm[1]} is false, and samples are used once")
    if vllm is not None and correction is not None:
        return Assumption(name, label, correction[0], correction[1])
    if e.full_log:
        return Assumption(
            name, label, False, "log: no sampling/ keys, which TRL logs when it corrects for vLLM"
        )
    return Assumption(name, label, False, "no sign of it in the log", (False, True))


def _reward_model(e: Evidence) -> Assumption:
    name, label = "reward_model", "reward model"
    if e.scorer is not None:
        return Assumption(name, label, e.scorer, "given")
    if e.given.get("reward") in ("sparse", "structured", "dense"):
        return Assumption(name, label, None, f"given: {e.given['reward']} is a rule")
    enabled = _flag(e, "reward_model_on")
    if enabled is not None and not enabled[0]:
        return Assumption(name, label, None, enabled[1])
    named = e.config("reward_model")
    if named is not None and (enabled is None or enabled[0]):
        try:
            scorer = Architecture.from_config(str(named.value))
        except RaceError as error:
            raise InvalidInput(
                f"{named.source}: {error}; say which model it is (reward_model), or that rewards are rules (reward)"
            ) from None
        return Assumption(name, label, scorer, named.source)
    if e.config("remote_reward") is not None:
        why = "a remote reward was asked for what it is; it may or may not be a model"
        return Assumption(name, label, None, why, (None, replace(e.policy, name="one of the policy's size")))
    return Assumption(
        name,
        label,
        None,
        "the log does not say; the range allows for one of the policy's size: name a larger one (reward_model)",
        (None, replace(e.policy, name="one of the policy's size")),
    )


def _prefix_caching(e: Evidence) -> Assumption:
    name, label = "prefix_caching", "a group's prompt is prefilled once"
    if name in e.given:
        return Assumption(name, label, bool(e.given[name]), "given")
    if (found := _flag(e, name)) is not None:
        return Assumption(name, label, *found)
    if e.log.trainer == "trl":
        vllm = _flag(e, "vllm")
        paged = _flag(e, "paged")
        if vllm is not None and not vllm[0] and not (paged is not None and paged[0]):
            return Assumption(name, label, False, f"{vllm[1]} is false: transformers prefills every row")
        if e.log.has("rollout_correction") or (vllm is not None and vllm[0]):
            return Assumption(name, label, True, "vLLM caches prefixes by default", (True, False))
        return Assumption(name, label, False, "no sign of vLLM in the log", (True, False))
    usual = e.log.trainer != "openrlhf"
    return Assumption(
        name, label, usual, e.default("prefix_caching") or "the engine's default", (True, False)
    )


def _masked(e: Evidence) -> list[Assumption]:
    """TRL can leave completions that were cut at the limit out of the loss."""
    if e.log.trainer != "trl":
        return []
    name, label = "masked", "share of completions left out of the loss for being cut"
    found = _flag(e, "mask_truncated")
    if found is not None and not found[0]:
        return [Assumption(name, label, 0.0, f"{found[1]} is false")]
    if found is not None and e.log.has("truncated_share"):
        return [Assumption(name, label, None, e.from_log("truncated_share"))]
    if found is not None:
        return [
            Assumption(name, label, 0.1, f"{found[1]} is true, and the log does not say how many", (0.0, 1.0))
        ]
    logged = e.log.mean("truncated_share")
    high = 1.0 if math.isnan(logged) else min(logged, 1.0)
    if high < 1e-6:
        return [Assumption(name, label, 0.0, "log: none was cut")]
    return [Assumption(name, label, 0.0, "TRL's default; no config says it", (0.0, high))]


def generated_by_transformers(e: Evidence) -> bool:
    """Whether rollouts were, as far as is known, padded batches of `transformers` generation."""
    if e.log.trainer != "trl" or e.log.has("rollout_correction"):
        return False
    vllm = _flag(e, "vllm")
    paged = _flag(e, "paged")
    return vllm is not None and not vllm[0] and not (paged is not None and paged[0])
