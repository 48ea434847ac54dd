"""Hypothesis strategies for the spine's types, drawn over everything they allow."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from race.allocation import Allocation
from race.flops import Architecture, LoraSpec
from race.recipe import MAX_UPDATE_RATIO, MIN_UPDATE_RATIO, Recipe
from race.records import EVIDENCE, STATUSES, Curve, Health, PilotRecord, PilotSpec
from race.rewards import REWARD_SYSTEMS

TARGETS = ("native", "judge", "pass@1", "pass@1:gsm8k", "pass@1:math500")


@lru_cache
def small_arch(layers: int = 2, kv_heads: int = 2, tied: bool = True) -> Architecture:
    """A tiny Qwen2 shape: the arithmetic of the big ones, in numbers that are easy to check."""
    return Architecture.from_config(
        {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "num_hidden_layers": layers,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": kv_heads,
            "intermediate_size": 128,
            "vocab_size": 512,
            "tie_word_embeddings": tied,
        }
    )


lengths = st.integers(1, 4096) | st.floats(1, 4096, allow_nan=False)
loras = st.none() | st.builds(
    LoraSpec,
    rank=st.integers(1, 256),
    targets=st.just("all-linear")
    | st.lists(st.sampled_from(["q_proj", "v_proj", "o_proj", "down_proj"]), min_size=1).map(tuple),
)
ratios = st.floats(MIN_UPDATE_RATIO, MAX_UPDATE_RATIO)


@st.composite
def recipes(draw: st.DrawFn, lengths: st.SearchStrategy[Any] = lengths) -> Recipe:
    return Recipe(
        reward=draw(st.sampled_from(sorted(REWARD_SYSTEMS))),
        prompts_per_step=draw(st.integers(1, 600)),
        group_size=draw(st.integers(2, 64)),
        prompt_tokens=draw(lengths),
        completion_tokens=draw(lengths),
        update_ratio=draw(ratios),
        lora=draw(loras),
        kl=draw(st.booleans()),
        prefix_caching=draw(st.booleans()),
        gradient_checkpointing=draw(st.booleans()),
        recompute_old_logprobs=draw(st.booleans()),
        learning_rate=draw(st.floats(1e-3, 1e3)),
    )


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    steps = sorted(draw(st.sets(st.integers(0, 10**6), min_size=1, max_size=8)))
    flops = sorted(draw(st.lists(st.floats(0, 1e24), min_size=len(steps), max_size=len(steps))))
    shares = st.lists(st.floats(0, 1), min_size=len(steps), max_size=len(steps))
    return Curve(tuple(steps), tuple(flops), tuple(draw(shares)), tuple(draw(shares)))


@st.composite
def specs(draw: st.DrawFn) -> PilotSpec:
    return PilotSpec(
        model=draw(st.sampled_from(["Qwen2.5-1.5B-Instruct", "nano-s", "mine/at:1", "模型"])),
        params=draw(st.integers(1, 10**13)),
        recipe=draw(recipes()),
        rho=draw(st.floats(0, 1)),
        budget=draw(st.integers(1, 10**30)),
        seed=draw(st.integers(0, 2**63 - 1)),
        targets=tuple(draw(st.lists(st.sampled_from(TARGETS), min_size=1, max_size=3, unique=True))),
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def records(draw: st.DrawFn) -> PilotRecord:
    status = draw(st.sampled_from(STATUSES))
    return PilotRecord(
        spec=draw(specs()),
        flops=Allocation(*draw(st.tuples(*[st.integers(0, 10**24) | st.floats(0, 1e24)] * 3))),
        curves=draw(
            st.dictionaries(
                st.sampled_from(TARGETS), curves(), min_size=1 if status == "ok" else 0, max_size=3
            )
        ),
        evidence=draw(st.sampled_from(EVIDENCE)),
        health=Health(status, "" if status == "ok" else "why", tuple(draw(st.lists(st.text(), max_size=2)))),
        provenance=draw(st.dictionaries(st.text(), json_values, max_size=3)),
        eval_flops=draw(st.integers(0, 10**24)),
        steps=draw(st.integers(0, 10**6)),
        seconds=draw(st.dictionaries(st.text(), st.floats(0, 1e9), max_size=3)),
        id=draw(st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True)),
    )
