"""Tiny random checkpoints of the two PRM layouts, with a byte-level tokenizer; written to disk as users have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForTokenClassification, Qwen2Model

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def byte_tokenizer(
    *, separator: str | None = "<extra_0>", template: str | None = CHATML, pad: bool = True, eos: bool = True
) -> PreTrainedTokenizerFast:
    """One token per byte, plus special tokens."""
    vocab = {char: index for index, char in enumerate(sorted(ByteLevel.alphabet()))}
    core = Tokenizer(BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = ByteLevelDecoder()
    core.add_special_tokens([*SPECIAL, *([separator] if separator else [])])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>" if eos else None,
        pad_token="<|endoftext|>" if pad else None,
    )
    tokenizer.chat_template = template
    return tokenizer


def save_qwen_prm(
    folder: Path,
    *,
    seed: int = 0,
    drop: str | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
    **config: Any,
) -> Path:
    """A checkpoint as Qwen2.5-Math-PRM ships it: remote code named in the config, an unused LM head in the weights."""
    torch.manual_seed(seed)
    tokenizer = tokenizer or byte_tokenizer()
    shape = Qwen2Config(vocab_size=len(tokenizer), tie_word_embeddings=False, **{**SIZES, **config})
    hidden = shape.hidden_size
    weights = {f"model.{name}": tensor.clone() for name, tensor in Qwen2Model(shape).state_dict().items()}
    weights |= {
        "score.0.weight": torch.randn(hidden, hidden) / hidden**0.5,
        "score.0.bias": torch.randn(hidden) / 4,
        "score.2.weight": torch.randn(2, hidden),
        "score.2.bias": torch.randn(2),
        "lm_head.weight": torch.randn(len(tokenizer), hidden),
    }
    if drop is not None:
        del weights[drop]
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    written = {
        **SIZES,
        **config,
        "vocab_size": len(tokenizer),
        "model_type": "qwen2",
        "architectures": ["Qwen2ForProcessRewardModel"],
        "auto_map": {
            "AutoConfig": "configuration_qwen2_rm.Qwen2RMConfig",
            "AutoModel": "modeling_qwen2_rm.Qwen2ForProcessRewardModel",
        },
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(written))
    tokenizer.save_pretrained(folder)
    return folder


def save_token_classifier(folder: Path, *, seed: int = 0, labels: int = 2) -> Path:
    """A checkpoint as TRL's PRMTrainer saves it."""
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer(separator=None, template=None)
    shape = Qwen2Config(vocab_size=len(tokenizer), num_labels=labels, pad_token_id=tokenizer.pad_token_id, **SIZES)
    Qwen2ForTokenClassification(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
