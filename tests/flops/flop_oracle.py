"""The truth: torch's FLOP counter over real Hugging Face and PEFT modules of drawn, tiny shapes.

Attention is forced to ``eager``: the counter does not see the fused CPU attention op at all
(pytorch#195460). Experts are forced to ``eager`` too: the batched and grouped implementations replicate
weights per token or call ops that are not in the counter's registry.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from race.flops import Architecture, LoraSpec
from race.flops.targets import linear_names

torch.set_num_threads(1)
logging.set_verbosity_error()
warnings.filterwarnings("ignore")

FAMILIES = (
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
    "gemma2",
    "gemma3_text",
    "phi3",
    "qwen3_moe",
    "qwen2_moe",
    "mixtral",
)
SPARSE = ("qwen3_moe", "qwen2_moe", "mixtral")


def draw_config(family: str, rng: random.Random) -> Any:
    """A random tiny config of ``family``: heads, KV heads, head dim, widths, vocabulary, layers, windows."""
    kv_heads = rng.choice([1, 2, 3])
    heads = kv_heads * rng.choice([1, 2, 3])
    head_dim = 2 * rng.randint(1, 5)
    layers = rng.randint(1, 3)
    fields: dict[str, Any] = {
        "vocab_size": rng.randint(11, 90),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": rng.randint(3, 40),
        "tie_word_embeddings": rng.random() < 0.5,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "eager",
    }
    explicit = family in ("qwen3", "gemma2", "gemma3_text", "qwen3_moe") or (
        family in ("llama", "mistral", "mixtral", "qwen2") and rng.random() < 0.6
    )
    if explicit:
        # Gemma and Llama configs want heads to divide hidden even where head_dim is explicit.
        fields["hidden_size"] = heads * rng.randint(2, 9)
        fields["head_dim"] = head_dim
    else:
        fields["hidden_size"] = heads * head_dim
    window = rng.choice([None, 2, 3, 5, 8])
    if family in ("mistral", "phi3", "mixtral"):
        fields["sliding_window"] = window
    elif family in ("gemma2", "gemma3_text"):
        fields["sliding_window"] = window or 4
        if rng.random() < 0.5:
            kinds = ("full_attention", "sliding_attention")
            fields["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
    elif family in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        fields["use_sliding_window"] = window is not None
        fields["sliding_window"] = window or 4
        if family != "qwen3_moe":
            fields["max_window_layers"] = rng.randint(0, layers)
    if family in ("llama", "qwen3", "gemma2", "gemma3_text", "qwen3_moe"):
        fields["attention_bias"] = rng.random() < 0.5
    if family == "llama":
        fields["mlp_bias"] = rng.random() < 0.5
    if family in SPARSE:
        experts = rng.randint(1, 6)
        fields["num_local_experts" if family == "mixtral" else "num_experts"] = experts
        fields["num_experts_per_tok"] = rng.randint(1, experts)
        fields["experts_implementation"] = "eager"
    if family in ("qwen2_moe", "qwen3_moe"):
        fields["moe_intermediate_size"] = rng.randint(3, 20)
        fields["decoder_sparse_step"] = rng.randint(1, 2)
        fields["mlp_only_layers"] = [0] if rng.random() < 0.3 else []
    if family == "qwen2_moe":
        fields["shared_expert_intermediate_size"] = rng.randint(3, 20)
    return AutoConfig.for_model(family, **fields)


def draw_lora(arch: Architecture, rng: random.Random) -> LoraSpec:
    """A random adapter: all-linear, the LM head alone or too, single projections, several, some layers."""
    attention = ["qkv_proj", "o_proj"] if arch.fused else ["q_proj", "k_proj", "v_proj", "o_proj"]
    mlp = ["gate_up_proj", "down_proj"] if arch.fused else ["gate_proj", "up_proj", "down_proj"]
    names = attention if arch.moe is not None else attention + mlp
    choice = rng.random()
    targets: Any
    if choice < 0.3 and arch.moe is None:
        targets = "all-linear"
    elif choice < 0.4:
        targets = ("lm_head",)
    elif choice < 0.65:
        targets = (rng.choice(names),)
    else:
        targets = tuple(rng.sample([*names, "lm_head"], rng.randint(1, len(names))))
    layers = None
    if "lm_head" not in targets and rng.random() < 0.25:
        layers = tuple(sorted(rng.sample(range(arch.layers), rng.randint(1, arch.layers))))
    return LoraSpec(rng.randint(1, 5), targets, layers)


def build(config: Any, lora: LoraSpec | None = None, *, auto: Any = AutoModelForCausalLM) -> Any:
    """The real module, wrapped by PEFT if ``lora`` is given."""
    torch.manual_seed(0)
    model = auto.from_config(config)
    if lora is None:
        return model
    targets: Any = "all-linear" if lora.targets == "all-linear" else list(lora.targets)
    if targets == "all-linear" and lora.layers is not None:  # PEFT wants the names spelled out then
        targets = [name for name in linear_names(Architecture.from_config(config)) if name != "lm_head"]
    peft = LoraConfig(
        r=lora.rank,
        target_modules=targets,
        layers_to_transform=list(lora.layers) if lora.layers is not None else None,
    )
    return get_peft_model(model, peft)


def tokens(config: Any, batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, config.vocab_size, (batch, length))


def positions(ids: torch.Tensor, start: int = 0) -> torch.Tensor:
    """Position ids per sequence, as trainers that pad pass them."""
    return torch.arange(start, start + ids.shape[1]).expand(ids.shape)


def counted(run: Any) -> int:
    """FLOPs that torch's counter sees in ``run()``."""
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def forward(model: Any, ids: torch.Tensor, keep: int | None) -> torch.Tensor:
    """Logits of the last ``keep`` positions (``None``: all, which Hugging Face spells 0)."""
    return model(input_ids=ids, position_ids=positions(ids), use_cache=False, logits_to_keep=keep or 0).logits


def update(model: Any, ids: torch.Tensor, keep: int | None) -> None:
    forward(model, ids, keep).float().square().sum().backward()


@dataclass
class Draw:
    """One drawn case; ``str`` makes a failure reproducible."""

    family: str
    seed: int
    rng: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.family}-{self.seed}")

    def __str__(self) -> str:
        return f"{self.family}-{self.seed}"


def rotary_of_this_transformers() -> str:
    """Whether the installed transformers builds cos/sin tables with a matmul (older releases do)."""
    config = draw_config("qwen2", random.Random(0))
    model = AutoModelForCausalLM.from_config(config).model
    x, positions = torch.zeros(1, 3, config.hidden_size), torch.arange(3)[None]
    return "matmul" if counted(lambda: model.rotary_emb(x, positions)) else "elementwise"
