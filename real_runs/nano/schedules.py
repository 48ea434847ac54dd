"""How each nano model is made: its architecture and its training, in numbers.

Heads are 32 wide because that is the narrowest head vLLM's CPU attention takes. Update counts are fixed, not
seconds, so a loaded machine makes the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from real_runs.nano.alphabet import ALPHABET, EOS_ID, PAD_ID, VOCAB
from real_runs.nano.corpora import Mixture

HEAD_DIM = 32
MAX_POSITIONS = 128


@dataclass(frozen=True)
class PolicySchedule:
    """Three stages of supervised training.

    Attributes
    ----------
    hidden, layers, intermediate
        Widths; hidden / 32 attention heads share one KV head.
    facts, chains, hands
        Updates on short correct solutions (levels 1-3), on correct solutions of all levels, and on ``mixture``.
    batch
        Solutions per update, spread evenly over the levels.
    learning_rate
        AdamW's at the start; a cosine to a tenth through the second stage, 0.4 of it to 0 through the third.
    """

    hidden: int
    layers: int
    intermediate: int
    facts: int
    chains: int
    hands: int
    batch: int
    learning_rate: float
    mixture: Mixture
    seed: int = 0


@dataclass(frozen=True)
class PrmSchedule:
    """Training of a reward model.

    Attributes
    ----------
    base
        The policy it starts from and whose shape it has.
    updates, batch
        One stage, each update on ``batch`` completions spread evenly over the levels.
    learning_rate
        AdamW's at the start; cosine to 0.
    """

    base: str
    updates: int
    batch: int
    learning_rate: float
    seed: int = 0


HANDS = Mixture(careful=0.12, sloppy=0.83, least_slip=0.3)

POLICY_SCHEDULES = {
    "nano-s": PolicySchedule(64, 2, 176, 300, 300, 200, 120, 4e-3, HANDS),
    "nano-m": PolicySchedule(96, 4, 272, 300, 400, 200, 120, 3e-3, HANDS),
    "nano-l": PolicySchedule(160, 5, 448, 200, 400, 150, 100, 2e-3, HANDS),
}
PRM_SCHEDULES = {
    "nano-prm": PrmSchedule("nano-m", 50, 120, 2e-3),
    "nano-proxy-prm": PrmSchedule("nano-s", 30, 120, 2e-3),
}


def config(schedule: PolicySchedule | PrmSchedule) -> dict[str, Any]:
    """Fields of a `Qwen2Config`."""
    shape = POLICY_SCHEDULES[schedule.base] if isinstance(schedule, PrmSchedule) else schedule
    fields: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.hidden // HEAD_DIM,
        "num_key_value_heads": 1,
        "max_position_embeddings": MAX_POSITIONS,
        # The usual 0.02 learns nothing in this many updates.
        "initializer_range": 0.1,
        "tie_word_embeddings": isinstance(schedule, PolicySchedule),
        "bos_token_id": None,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }
    if isinstance(schedule, PrmSchedule):
        # The token due next is one of the vocabulary.
        names = dict(enumerate(ALPHABET))
        fields |= {"num_labels": VOCAB, "id2label": names, "label2id": {name: i for i, name in names.items()}}
    return fields
