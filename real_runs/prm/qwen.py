"""Qwen2.5-Math-PRM's architecture on the Qwen2 backbone, so that no remote code is needed.

The published checkpoint is a Qwen2 decoder with a two-layer head on every hidden state:

    score.0  Linear(hidden, hidden)      ReLU      score.2  Linear(hidden, labels)

Its own modelling code calls a cache method that transformers 4.55 removed; the weights are fine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2Model, Qwen2PreTrainedModel

from race.errors import InvalidInput

ARCHITECTURE = "Qwen2ForProcessRewardModel"


class QwenProcessRewardModel(Qwen2PreTrainedModel):
    """Logits of shape (batch, length, labels); label 1 means that the step so far is correct."""

    config_class = Qwen2Config
    # The published files carry an unused language-model head.
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # noqa: RUF012  transformers declares it so

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__(config)
        self.model = Qwen2Model(config)
        self.score = nn.Sequential(
            nn.Linear(config.hidden_size, config.hidden_size),
            nn.ReLU(),
            nn.Linear(config.hidden_size, config.num_labels or 2),
        )
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> Tensor:
        """Score every position; padding goes on the right."""
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        logits: Tensor = self.score(hidden)
        return logits


def load_qwen_prm(path: str, *, dtype: torch.dtype) -> QwenProcessRewardModel:
    """Load a checkpoint of this layout, from a folder or the hub; safetensors only.

    Raises
    ------
    InvalidInput
        Weights of the layout are missing, which would leave part of the model random.
    """
    config = Qwen2Config.from_pretrained(path)
    config.num_labels = 2
    loaded: Any = QwenProcessRewardModel.from_pretrained(
        path, config=config, dtype=dtype, output_loading_info=True, use_safetensors=True
    )
    model: QwenProcessRewardModel = loaded[0]
    info: dict[str, Any] = loaded[1]
    missing = sorted(info["missing_keys"])
    if missing:
        raise InvalidInput(
            f"prm: {path!r} has no weight {missing[0]!r} ({len(missing)} missing); allowed is a checkpoint with "
            "model.*, score.0.* and score.2.*"
        )
    model.eval()
    return model
