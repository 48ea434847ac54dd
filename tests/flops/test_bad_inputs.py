"""Bad questions get one line that names the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from race.errors import InvalidInput
from race.flops import (
    Architecture,
    Convention,
    FlopCount,
    LoraSpec,
    cost_functions,
    formula,
    forward_flops,
    generate_flops,
    logprob_flops,
    update_flops,
)

NANO = Architecture.from_config("nano-s")
MIXTURE = Architecture.from_config("qwen3-30b-a3b")
BAD_LENGTHS: list[Any] = [[], [0], [-3], [1.5], [float("nan")], [True], ["7"], [None], 5, None, "12", [3, 0]]


@pytest.mark.parametrize("lengths", BAD_LENGTHS, ids=repr)
def test_lengths(lengths: Any) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("lengths", lambda: forward_flops(NANO, lengths)),
        ("lengths", lambda: update_flops(NANO, lengths, lora=None)),
        ("prompt_lengths", lambda: generate_flops(NANO, lengths, [4])),
        ("completion_lengths", lambda: generate_flops(NANO, [4], lengths)),
        ("prompt_lengths", lambda: logprob_flops(NANO, lengths, [4])),
        ("lengths", lambda: formula("palm").update(NANO, lengths)),
    ]
    for field, call in calls:
        with pytest.raises(InvalidInput, match=rf"^{field}: ") as error:
            call()
        assert "\n" not in str(error.value)


def test_numpy_lengths_are_lengths() -> None:
    assert forward_flops(NANO, np.array([3, 4])) == forward_flops(NANO, [3, 4])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "logits", [6, -1, 1.5, True, "some", [1], [1, 2, 3], [1, 7], [1, None], float("nan")]
)
def test_logits(logits: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^logits: "):
        forward_flops(NANO, [5, 6], logits=logits)


def test_counts_that_do_not_match() -> None:
    for call in (
        lambda: generate_flops(NANO, [5, 6], [1, 2, 3]),
        lambda: generate_flops(NANO, [5, 6], [1, 2], group_size=2),
        lambda: logprob_flops(NANO, [5, 6], [1]),
    ):
        with pytest.raises(InvalidInput, match=r"^completion_lengths: "):
            call()
    for size in (0, -1, 1.5, True):
        with pytest.raises(InvalidInput, match=r"^group_size: "):
            generate_flops(NANO, [5], [5], group_size=size)  # type: ignore[arg-type]


def test_conventions_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"^attention: 'flash'"):
        forward_flops(NANO, [5], attention="flash")
    with pytest.raises(InvalidInput, match=r"^attention: "):
        cost_functions(NANO, lora=None, attention="casual")
    with pytest.raises(InvalidInput, match=r"^rotary: "):
        forward_flops(NANO, [5], rotary="bmm")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^rotary: "):
        cost_functions(NANO, lora=None, rotary="bmm")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^convention: 'verl'.*verl-qwen2"):
        formula("verl")


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, None, "8"])
def test_rank(rank: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^lora\.rank: "):
        LoraSpec(rank)


@pytest.mark.parametrize("targets", ["q_proj", (), (1,), ("",), None, 3])
def test_malformed_targets(targets: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^lora\.targets: "):
        LoraSpec(8, targets)


@pytest.mark.parametrize("layers", [(), (-1,), (True,), (1.5,), 3])
def test_malformed_layers(layers: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^lora\.layers: "):
        LoraSpec(8, ("q_proj",), layers)


def test_targets_the_model_does_not_have() -> None:
    cases = [
        (NANO, LoraSpec(8, ("qkv_proj",)), "targets: qkv_proj cannot be adapted.*known: all-linear, q_proj"),
        (NANO, LoraSpec(8, ("q_proj", "embed_tokens")), "targets: embed_tokens"),
        (NANO, LoraSpec(8, ("q_proj",), (1, 9)), "layers: 9 is not a layer of nano-s"),
        (NANO, LoraSpec(8, ("q_proj", "lm_head"), (1,)), "layers: lm_head"),
        (MIXTURE, LoraSpec(8), 'targets: "all-linear" .* per call'),
        (MIXTURE, LoraSpec(8, ("gate_proj",)), "targets: gate_proj"),
    ]
    for arch, lora, message in cases:
        for call in (forward_flops, update_flops):
            with pytest.raises(InvalidInput, match=rf"^lora\.{message}"):
                call(arch, [5], lora=lora)
        with pytest.raises(InvalidInput, match=rf"^lora\.{message}"):
            cost_functions(arch, lora=lora)
        with pytest.raises(InvalidInput, match=rf"^lora\.{message}"):
            arch.count_params(lora)


def test_switches() -> None:
    for field in ("gradient_checkpointing", "use_reentrant", "input_require_grads"):
        with pytest.raises(InvalidInput, match=rf"^{field}: "):
            update_flops(NANO, [5], lora=None, **{field: "yes"})  # type: ignore[arg-type]
    for call in (
        lambda lora: update_flops(NANO, [5], lora=lora),
        lambda lora: forward_flops(NANO, [5], lora=lora),
        lambda lora: cost_functions(NANO, lora=lora),
        lambda lora: NANO.count_params(lora),
    ):
        for lora in ("all-linear", {"rank": 8}):
            with pytest.raises(InvalidInput, match=r"^lora: "):
                call(lora)
    with pytest.raises(InvalidInput, match=r"^input_require_grads: reentrant"):
        update_flops(
            NANO,
            [5],
            lora=LoraSpec(8),
            gradient_checkpointing=True,
            use_reentrant=True,
            input_require_grads=False,
        )


def test_not_an_architecture() -> None:
    for call in (
        lambda: forward_flops("qwen2.5-7b", [5]),  # type: ignore[arg-type]
        lambda: generate_flops(None, [5], [5]),  # type: ignore[arg-type]
        lambda: cost_functions("qwen2.5-7b", lora=None),  # type: ignore[arg-type]
        lambda: formula("6nd").update("qwen2.5-7b", [5]),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput, match=r"^arch: "):
            call()


def test_conventions_do_not_mix() -> None:
    causal, full = forward_flops(NANO, [5]), forward_flops(NANO, [5], attention="full")
    for other in (full, formula("6nd").update(NANO, [5])):
        with pytest.raises(InvalidInput, match=r"^convention: .*attention causal"):
            causal + other
    with pytest.raises(TypeError):
        causal + 5  # type: ignore[operator]
    with pytest.raises(InvalidInput, match=r"^times: "):
        causal * -1


def test_counts_are_values() -> None:
    one = FlopCount(
        {"forward.linear": 6, "forward.head": 4, "backward.linear": 6}, Convention("race", "causal")
    )
    assert int(one) == one.total == 16
    assert (one * 3).total == (3 * one).total == sum([one, one, one]).total == 48  # type: ignore[union-attr]
    assert one.by_phase() == {"forward": 10, "backward": 6}
    assert one.by_kind() == {"linear": 12, "head": 4}
    assert "attention causal" in str(one.convention)
