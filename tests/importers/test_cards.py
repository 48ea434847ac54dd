"""Cards: the same arithmetic as everywhere else, ranges that hold their ends, waste, comparisons, renderings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from race.allocation import step_allocation
from race.cards import Card, Known, RunLog, card_of
from race.cards.account import _two_points
from race.cards.assumption import Assumption
from race.cards.ranges import ranges_of
from race.cards.render import latex, markdown
from race.errors import InvalidInput
from race.flops import Architecture, LoraSpec, update_flops
from race.hardware import hardware_cost
from race.recipe import Recipe

MODEL = "qwen2.5-0.5b"
ARCH = Architecture.from_config(MODEL)


def constant_log(trainer: str, steps: int, **series: float) -> RunLog:
    """A run whose every step is the same."""
    return RunLog(
        trainer=trainer,
        title=trainer,
        container="JSON lines",
        file="log.jsonl",
        sha256="0" * 64,
        steps=np.arange(1, steps + 1),
        covered=np.ones(steps, dtype=np.int64),
        series={k: np.full(steps, float(v)) for k, v in series.items()},
        keys={k: k for k in series},
    )


LENGTHS = {
    "completion_mean": 250, "completion_min": 250, "completion_max": 250, "prompt_mean": 100, "prompt_min": 100,
    "prompt_max": 100, "reward": 0.5,
}  # fmt: skip
KNOWN: dict[str, Any] = {
    "reward": "sparse", "prompts_per_step": 4, "group_size": 8, "lora_rank": 16, "kl": False, "prefix_caching": True,
    "gradient_checkpointing": False, "recompute_old_logprobs": False, "update_ratio": 1,
}  # fmt: skip


@pytest.mark.parametrize("trainer", ["verl", "openrlhf", "prime-rl", "nemo-rl"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lora_rank": 0},
        {"kl": True, "recompute_old_logprobs": True},
        {"gradient_checkpointing": True, "update_ratio": 3, "recompute_old_logprobs": True},
        {"prefix_caching": False},
        {"reward": "prm"},
    ],
)
def test_equal_steps_cost_what_the_recipe_says(trainer: str, changes: dict[str, Any]) -> None:
    known = {**KNOWN, **changes}
    words = {k: v for k, v in known.items() if k not in ("lora_rank",)}
    lora = LoraSpec(known["lora_rank"]) if known["lora_rank"] else None
    recipe = Recipe(**words, lora=lora, prompt_tokens=100, completion_tokens=250)
    card = card_of(constant_log(trainer, 5, **LENGTHS), MODEL, given=known)
    step = step_allocation(ARCH, recipe)
    for phase in ("search", "learning", "reward"):
        assert getattr(card.flops, phase) == pytest.approx(5 * getattr(step, phase), rel=1e-9)
    # Bounds equal to the mean leave no spread, and everything else was said.
    assert card.ranges.total.lo == pytest.approx(card.ranges.total.hi)
    assert card.curve()[-1]["total"] == pytest.approx(float(card.flops.total))


def test_the_spread_of_lengths_is_charged_exactly_for_two_lengths() -> None:
    lengths = [60, 540]
    log = constant_log(
        "verl", 3, **{**LENGTHS, "completion_mean": 300, "completion_min": 60, "completion_max": 540}
    )
    card = card_of(
        log, MODEL, given={**KNOWN, "prompts_per_step": 1, "group_size": 2, "prefix_caching": False}
    )
    exact = sum(
        update_flops(ARCH, [100 + c], lora=LoraSpec(16), logits=c).total for c in lengths
    )  # two lengths at their bounds: the largest variance there is
    top = card.ranges.phases["learning"].hi / 3
    assert top == pytest.approx(exact, rel=1e-9)
    assert card.flops.learning < card.ranges.phases["learning"].hi


@given(st.floats(1, 1e4), st.floats(0, 1e8))
def test_two_points_have_the_mean_and_variance_they_stand_for(mean: float, variance: float) -> None:
    below, above, weight = _two_points(np.array([mean]), np.array([variance]), 1.0)
    assert below[0] >= 1
    got = weight * below + (1 - weight) * above
    assert got[0] == pytest.approx(mean, rel=1e-6, abs=1e-3 * math.sqrt(variance) + 1e-9)
    if mean > 1 + 2e-3 * math.sqrt(variance):
        spread = weight * (below - got) ** 2 + (1 - weight) * (above - got) ** 2
        assert spread[0] == pytest.approx(variance, rel=1e-6, abs=1e-6)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=11))
def test_the_joint_range_holds_every_combination_of_a_product(ends: list[tuple[int, int]]) -> None:
    from race.allocation import Allocation

    assumptions = [Assumption(f"a{i}", "", 1, "", pair) for i, pair in enumerate(ends)]

    def price(values: Any) -> Allocation:
        return Allocation(math.prod(1 + v for v in values.values()), 1, 0)

    found = ranges_of(assumptions, price)
    assert found.total.lo <= math.prod(1 + min(1, *p) for p in ends) + 1
    assert found.total.hi >= math.prod(1 + max(p) for p in ends) + 1
    assert all(m.lo <= found.point.total <= m.hi for m in found.moves)
    widths = [m.hi - m.lo for m in found.moves]
    assert widths == sorted(widths, reverse=True)


def known_card(**series: float) -> Card:
    return card_of(constant_log("verl", 4, **{**LENGTHS, **series}), MODEL, given=KNOWN)


def test_waste_is_counted_or_said_to_be_unknown() -> None:
    waste = {w.name: w for w in known_card(zero_std_share=0.25, truncated_share=0.1).waste}
    total = float(known_card().flops.total)
    assert waste["zero_variance"].share == pytest.approx(0.25)
    assert waste["zero_variance"].flops == pytest.approx(0.25 * total)
    assert waste["truncated"].share == pytest.approx(0.1)
    assert waste["truncated"].flops == pytest.approx(0.1 * total)
    assert waste["padding"].flops is None
    assert {w.name: w for w in known_card().waste}["zero_variance"].share is None


def test_the_longest_of_a_batch_is_not_taken_for_a_cut_completion() -> None:
    """verl's newer trainer logs it as clipped at any length (verl issue 7817)."""
    log = constant_log("verl", 4, **LENGTHS, truncated_share=0.1)
    for limit, share in ((512, 0.0), (250, 0.1)):
        config = {"completion_limit": Known(limit, "config.yaml: data.max_response_length")}
        card = card_of(replace(log, config=config), MODEL, given=KNOWN)
        found = {w.name: w for w in card.waste}["truncated"]
        assert found.share == pytest.approx(share)
        assert "config.yaml" in found.how
    assert (
        "even where none was cut"
        in {w.name: w for w in card_of(log, MODEL, given=KNOWN).waste}["truncated"].how
    )


def test_groups_thrown_away_cost_rollouts_and_scores() -> None:
    plain, filtered = known_card(), known_card(kept_share=0.5)
    assert filtered.flops.search == pytest.approx(2 * float(plain.flops.search))
    assert filtered.flops.learning == pytest.approx(float(plain.flops.learning))
    lost = {w.name: w for w in filtered.waste}["never_trained"]
    assert lost.share == pytest.approx(0.5)
    assert lost.flops == pytest.approx(float(plain.flops.search))
    twice = known_card(generation_batches=2)
    assert twice.flops.search == pytest.approx(2 * float(plain.flops.search))


def test_steps_done_twice_are_charged_and_named() -> None:
    log = constant_log("verl", 10, **LENGTHS)
    card = card_of(replace(log, redone=5), MODEL, given=KNOWN)
    assert card.flops.total == pytest.approx(1.5 * float(card_of(log, MODEL, given=KNOWN).flops.total))
    assert {w.name: w for w in card.waste}["done_twice"].flops == pytest.approx(float(card.flops.total) / 3)


def test_the_trainers_own_figure_is_compared_and_zero_is_no_measurement() -> None:
    log = constant_log("trl", 4, **LENGTHS)
    zero = card_of(replace(log, own_total=0.0), MODEL, given=KNOWN).comparisons[0]
    assert (zero.flops, zero.ratio) == (None, None)
    card = known_card(own_mfu=0.4, seconds_update=10)
    assert not any("own_mfu" in c.name for c in card.comparisons)  # no GPU, no peak
    log = constant_log("verl", 4, **LENGTHS, own_mfu=0.4, seconds_update=10)
    with_gpu = card_of(log, MODEL, given=KNOWN, cost=lambda a: hardware_cost(a, "H100-SXM", count=2))
    own = next(c for c in with_gpu.comparisons if "own_mfu" in c.name)
    assert own.flops == pytest.approx(0.4 * 989.4e12 * 2 * 10 * 4, rel=0.01)
    formulas = {c.name: c.ratio for c in with_gpu.comparisons}
    ratio = formulas["verl-qwen2 formula"]
    assert ratio is not None
    assert ratio > 1.3  # charges what LoRA does not compute


def test_a_meter_inside_the_run_is_compared_with() -> None:
    log = constant_log("trl", 4, **LENGTHS)
    ours = float(card_of(log, MODEL, given=KNOWN).flops.total)
    counts = np.array([0.25, 0.5, 0.75, np.nan]) * ours
    log = replace(
        log, series={**log.series, "metered": counts}, keys={**log.keys, "metered": "compute/total_flops"}
    )
    found = card_of(log, MODEL, given=KNOWN).comparisons[0]
    assert found.name == "compute/total_flops in the log"
    assert found.ratio == pytest.approx(0.75)


@pytest.mark.parametrize("name", ["samples_step", "completion_mean"])
def test_a_run_without_work_is_an_error_not_a_division_by_zero(name: str) -> None:
    log = constant_log("openrlhf", 3, **{"samples_step": 32, **LENGTHS, name: 0})
    given = {k: v for k, v in KNOWN.items() if k != "prompts_per_step"}
    if name == "samples_step":
        with pytest.raises(InvalidInput, match=r"0 FLOPs come out of this"):
            card_of(log, MODEL, given=given)
    else:
        assert card_of(log, MODEL, given=given).tokens["mean_completion"] == 1


def test_hardware_spans_assumptions_and_utilisation() -> None:
    log = constant_log("verl", 4, **LENGTHS)
    unsure = {k: v for k, v in KNOWN.items() if k not in ("lora_rank", "reward")}
    card = card_of(log, MODEL, given=unsure, cost=lambda a: hardware_cost(a, "H100-SXM"))
    sure = card_of(log, MODEL, given=KNOWN, cost=lambda a: hardware_cost(a, "H100-SXM"))
    wide, narrow = (c.to_dict()["hardware"]["gpu_hours"] for c in (card, sure))
    assert wide["hi"] - wide["lo"] > narrow["hi"] - narrow["lo"]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("group_size", 0), ("group_size", -4), ("prompts_per_step", 0), ("prompt_tokens", 0.0),
        ("prompt_tokens", math.nan), ("completion_tokens", -5.0), ("completion_tokens", math.inf),
        ("update_ratio", -1.0), ("update_ratio", math.nan),
    ],
)  # fmt: skip
def test_numbers_that_no_run_has_are_refused_by_name(word: str, value: float) -> None:
    log = constant_log("verl", 4, **LENGTHS)
    with pytest.raises(InvalidInput, match=rf"^{word}: found .*; allowed is a (whole )?number from"):
        card_of(log, MODEL, given={**KNOWN, word: value})


def test_a_model_that_nobody_names_is_an_error() -> None:
    with pytest.raises(InvalidInput, match=r"^model: missing; log.jsonl does not say which model"):
        card_of(constant_log("verl", 4, **LENGTHS), given=KNOWN)
    log = replace(
        constant_log("verl", 4, **LENGTHS), config={"model": Known("no-such-model", "config.yaml: model")}
    )
    with pytest.raises(InvalidInput, match=r"^config.yaml: model: .*or say which model it is"):
        card_of(log, given=KNOWN)


def test_samples_that_contradict_the_tokens_are_refused() -> None:
    log = constant_log("trl", 4, completion_mean=250, reward=0.5)
    log = replace(
        log,
        series={**log.series, "tokens_total": np.arange(1, 5) * 1000.0},
        keys={**log.keys, "tokens_total": "num_tokens"},
    )
    with pytest.raises(
        InvalidInput, match=r"32 completions of 250.0 tokens a batch are more than the 1,000 tokens"
    ):
        card_of(log, MODEL, given=KNOWN)
    card = card_of(log, MODEL, given={**KNOWN, "prompts_per_step": 1, "group_size": 2})
    assert card.tokens["mean_prompt"] == pytest.approx(250)


def test_renderings_hold_the_same_numbers_and_escape_what_they_must() -> None:
    log = replace(constant_log("verl", 4, **LENGTHS), file="my_log|50%.jsonl", notes=("a note with | and _",))
    card = card_of(log, MODEL, given={k: v for k, v in KNOWN.items() if k != "lora_rank"})
    text, tex, data = markdown(card), latex(card), json.loads(json.dumps(card.to_dict()))
    total = f"{card.flops.total:.2e}".split("e")[0].rstrip("0").rstrip(".")
    assert total in text
    assert total in tex
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows if row.startswith("| search")} == {5}
    assert "my\\_log\\|50%.jsonl" in text
    assert r"\%" in tex
    assert not any(bad in tex.replace(r"\%", "").replace("% needs", "") for bad in ("%", " & & "))
    assert data["schema"] == "race.card/1"
    assert {a["name"] for a in data["assumptions"]} >= {"lora"}
    for a in data["assumptions"]:
        assert a["total"]["lo"] <= data["flops"]["total"] <= a["total"]["hi"]
    assert data["regime"]["label"] in data["regime"]["possible"]
    assert sum(data["shares"][p] for p in ("search", "learning", "reward")) == pytest.approx(1)


def test_a_whole_card_is_made_of_every_sample(tmp_path: Path) -> None:
    from importer_samples import SAMPLES

    from race.importers import key_tables, read_runs

    for name, sample in SAMPLES.items():
        if sample.format == "csv":
            continue
        folder = tmp_path / name
        folder.mkdir()
        (log,) = read_runs(sample.write(folder))
        recipe = dict(sample.facts.recipe)
        card = card_of(log, "qwen2.5-1.5b", given=recipe, defaults=key_tables()[sample.format].defaults)
        assert card.flops.search > 0
        assert card.flops.learning > 0
        assert log.total_steps == 6
        assert card.tokens["samples"] == pytest.approx(6 * 32)
        assert card.tokens["mean_prompt"] == pytest.approx(100, rel=1e-6)
        assert not log.unknown_keys
        assert markdown(card)
        assert latex(card)
