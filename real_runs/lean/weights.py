"""Base and adapter weights, read out of a transformers model wrapped by PEFT or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from transformers import PreTrainedModel

FAMILIES = ("qwen2", "qwen3", "llama", "mistral")
# Rotary tables that depend on positions alone, so that one table serves a whole run.
STATIC_ROPE = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Projection:
    """``y = x W^T + bias + scale * (x A^T) B^T``; ``a`` and ``b`` are None without an adapter."""

    weight: Tensor
    bias: Tensor | None
    a: Tensor | None
    b: Tensor | None
    scale: float


@dataclass(frozen=True)
class Layer:
    """Weights of one decoder layer. ``q_norm`` and ``k_norm`` are None where the family has none."""

    input_norm: Tensor
    q: Projection
    k: Projection
    v: Projection
    o: Projection
    post_norm: Tensor
    gate: Projection
    up: Projection
    down: Projection
    q_norm: Tensor | None
    k_norm: Tensor | None


@dataclass(frozen=True)
class Decoder:
    """A decoder as plain tensors and numbers.

    Attributes
    ----------
    rotary
        The model's own module: position ids to cos and sin, whatever scaling it applies.
    eager
        Multiply attention scores out (what FLOP counters see) instead of calling the fused kernel.
    """

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    eps: float
    heads: int
    kv_heads: int
    head_dim: int
    rotary: Any
    eager: bool


def unsupported(model: PreTrainedModel) -> str | None:
    """Why the lean forward cannot run ``model``; ``None`` when it can."""
    config = model.config
    inner: Any = model.base_model
    if config.model_type not in FAMILIES:
        return f"model_type {config.model_type!r} is not one of {', '.join(FAMILIES)}"
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "some layers have a sliding window"
    if config.model_type == "mistral" and getattr(config, "sliding_window", None):
        return "it has a sliding window"
    if getattr(inner.rotary_emb, "rope_type", "default") not in STATIC_ROPE:
        return f"rope_type {inner.rotary_emb.rope_type!r} depends on the length of the sequence"
    if config.hidden_act != "silu":
        return f"hidden_act {config.hidden_act!r} is not silu"
    if getattr(config, "attention_dropout", 0.0):
        return "it has attention dropout"
    if len({p.dtype for p in model.parameters()}) != 1:
        return "base and adapter have different dtypes"
    if len({p.device for p in model.parameters()}) != 1:
        return "it spans several devices"
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            reason = _unreadable(module)
            if reason:
                return f"{name} {reason}"
    return None


def _unreadable(module: nn.Module) -> str | None:
    if type(module) is nn.Linear:
        return None
    if not isinstance(module, LoraLinear) or type(module.base_layer) is not nn.Linear:
        return f"is a {type(module).__name__}, not a linear layer with or without LoRA"
    if list(module.lora_A) != ["default"] or module.lora_variant or any(module.lora_bias.values()):
        return "carries an adapter that is not one plain LoRA"
    return None


def read_decoder(model: PreTrainedModel) -> Decoder:
    """Read the weights as they are now; adapters that PEFT has disabled are left out.

    The tensors are the model's own, so gradients reach its parameters.
    """
    config = model.config
    inner: Any = model.base_model
    layers = []
    for layer in inner.layers:
        attention, mlp = layer.self_attn, layer.mlp
        layers.append(
            Layer(
                input_norm=layer.input_layernorm.weight,
                **{name: read_projection(getattr(attention, f"{name}_proj")) for name in ("q", "k", "v", "o")},
                post_norm=layer.post_attention_layernorm.weight,
                **{name: read_projection(getattr(mlp, f"{name}_proj")) for name in ("gate", "up", "down")},
                q_norm=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
                k_norm=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
            )
        )
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Decoder(
        embedding=inner.embed_tokens.weight,
        layers=tuple(layers),
        norm=inner.norm.weight,
        eps=config.rms_norm_eps,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        rotary=inner.rotary_emb,
        eager=config._attn_implementation == "eager",
    )


def read_projection(module: Any) -> Projection:
    """Weights of one linear layer, with its adapter unless PEFT has it disabled."""
    adapted = isinstance(module, LoraLinear)
    base: Any = module.base_layer if adapted else module
    lora: Any = module
    if not adapted or lora.disable_adapters:
        return Projection(base.weight, base.bias, None, None, 0.0)
    return Projection(
        base.weight,
        base.bias,
        lora.lora_A["default"].weight,
        lora.lora_B["default"].weight,
        float(lora.scaling["default"]),
    )


def rotary_tables(decoder: Decoder, length: int) -> tuple[Tensor, Tensor]:
    """cos and signed sin of positions 0 ... length - 1, shape (length, head_dim) each.

    The first half of the sines is negative: (a, b) turns into (a cos - b sin, b cos + a sin).
    """
    like = decoder.embedding
    cos, sin = decoder.rotary(like, torch.arange(length, device=like.device)[None])
    half = decoder.head_dim // 2
    return cos[0].contiguous(), torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1)


@dataclass(frozen=True)
class Packed:
    """Projections of one input as one matmul: every W, then every A, below each other.

    Attributes
    ----------
    weight, bias
        (out + ranks, in) and (out + ranks,); no bias is zero bias.
    widths
        Outputs of each projection; they add up to ``out``.
    ups
        For each adapted projection: its columns in the result, the columns of ``x A^T``, B and the scale.
    """

    weight: Tensor
    bias: Tensor | None
    widths: tuple[int, ...]
    ups: tuple[tuple[slice, slice, Tensor, float], ...]

    @property
    def out(self) -> int:
        """Columns that are outputs; the rest belong to the adapters."""
        return sum(self.widths)

    @classmethod
    def of(cls, projections: Sequence[Projection]) -> Packed:
        """Copy the weights of ``projections`` together; no gradient goes through the copy."""
        widths = tuple(p.weight.shape[0] for p in projections)
        downs, ups, column, inner = [], [], 0, sum(widths)
        for p, width in zip(projections, widths, strict=True):
            if p.a is not None and p.b is not None:
                rank = p.a.shape[0]
                downs.append(p.a.detach())
                ups.append((slice(column, column + width), slice(inner, inner + rank), p.b.detach(), p.scale))
                inner += rank
            column += width
        weight = torch.cat([*(p.weight for p in projections), *downs])
        bias = None
        if any(p.bias is not None for p in projections):
            parts = [
                weight.new_zeros(w) if p.bias is None else p.bias for p, w in zip(projections, widths, strict=True)
            ]
            bias = torch.cat([*parts, weight.new_zeros(inner - sum(widths))])
        return cls(weight, bias, widths, tuple(ups))

    def apply(self, x: Tensor) -> Tensor:
        """Outputs side by side in the first ``out`` columns, ``x A^T`` in the others; x is (M, in)."""
        wide = F.linear(x, self.weight, self.bias)
        for columns, inner, up, scale in self.ups:
            add_product(wide[:, columns], wide[:, inner], up.t(), scale)
        return wide


def add_product(into: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """``into += scale * a @ b``, in place.

    Written with ``out=`` because FLOP counters know ``addmm`` and its out variant, not ``addmm_``.
    """
    return torch.addmm(into, a, b, alpha=scale, out=into)
