"""The arithmetic behind the meter, without a trainer: against `race.flops` on whole passes."""

from __future__ import annotations

import json

import pytest

from race.errors import InvalidInput
from race.flops import Architecture, LoraSpec, forward_flops, generate_flops, update_flops
from race.integrations.evidence import MAX_POINTS, Generation, thinned
from race.integrations.pricing import Mode, ModelPrices
from race.integrations.tally import ATTENTIONS, Attention, Tally
from race.integrations.watch import _completion_lengths

ARCHITECTURE = Architecture.from_config("qwen2.5-0.5b")
PRICES = ModelPrices(ARCHITECTURE)
LORA = LoraSpec(8)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_token_by_token_is_a_rollout(attention: Attention) -> None:
    mode, prompt, completion = Mode(LORA), 13, 6
    head = PRICES.head(mode)[attention]
    steps = [PRICES.body(mode, prompt)] + [PRICES.body(mode, 1, prompt + i) for i in range(completion - 1)]
    seen = sum(step[attention] + head for step in steps)
    whole = generate_flops(ARCHITECTURE, [prompt], [completion], lora=LORA, attention=attention).total
    assert seen == whole == PRICES.rollout(mode, [(prompt, completion)], [prompt])[attention]


def test_several_tokens_on_a_cache() -> None:
    """Causal: nothing is computed twice. Full: every new token meets every token there is."""
    mode = Mode()
    parts = {a: PRICES.body(mode, 10)[a] + PRICES.body(mode, 5, 10)[a] for a in ATTENTIONS}
    whole = {a: forward_flops(ARCHITECTURE, [15], attention=a, logits="none").total for a in ATTENTIONS}
    assert parts["causal"] == whole["causal"]
    pair = 4 * ARCHITECTURE.heads * ARCHITECTURE.head_dim * ARCHITECTURE.layers
    assert whole["full"] - parts["full"] == 10 * 5 * pair


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("lora", [LORA, None])
def test_body_and_head_are_an_update(attention: Attention, lora: LoraSpec | None) -> None:
    mode = Mode(lora, trained=True, checkpointing=True, inputs_require_grad=True)
    body, head = PRICES.body(mode, 20)[attention], PRICES.head(mode)[attention]
    whole = update_flops(
        ARCHITECTURE, [20], lora=lora, attention=attention, logits=[7], gradient_checkpointing=True
    ).total
    assert body + 7 * head == whole == PRICES.sequence(mode, [(20, 7)])[attention]
    again = PRICES.head(mode, recomputed=True)[attention] - head
    assert again == 2 * ARCHITECTURE.hidden * ARCHITECTURE.vocab


def test_tally_survives_json() -> None:
    tally = Tally()
    tally.book("needed", "update", {"causal": 10**19 + 1, "full": 2 * 10**19}, 3)
    tally.book("executed", "eval", {"causal": 5, "full": 7})
    read = Tally.from_dict(json.loads(json.dumps(tally.to_dict())), where="state")
    assert read.to_dict() == tally.to_dict()
    assert read.allocation("needed", "causal").learning == 3 * (10**19 + 1)
    assert read.allocation("executed", "full").total == 0, "evaluation is in no total"
    broken = tally.to_dict()
    broken["needed"]["causal"]["update"] = -1
    with pytest.raises(InvalidInput, match=r"state.needed.causal.update: found -1"):
        Tally.from_dict(broken, where="state")


def test_long_curves_are_averaged_not_cut() -> None:
    generations = [Generation(i, 1000 * i, float(i % 2), 8) for i in range(4 * MAX_POINTS)]
    points = thinned(generations)
    assert len(points) == MAX_POINTS
    assert [p.reward for p in points] == [0.5] * MAX_POINTS
    assert sum(p.samples for p in points) == 8 * len(generations)
    assert [p.index for p in points] == sorted({p.index for p in points})
    assert all(p.flops == 1000 * p.index for p in points)


def test_masked_completions_keep_their_length() -> None:
    torch = pytest.importorskip("torch")
    ids = torch.tensor([[3, 4, 9, 0, 0], [3, 4, 5, 6, 7], [3, 4, 5, 0, 0], [3, 4, 5, 6, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    # Rows without a mask ended without EOS: they are as long as they go, less their padding.
    assert _completion_lengths({"completion_ids": ids, "completion_mask": mask}, pad=0) == [3, 5, 3, 4]
