"""The shape of a decoder-only transformer: all that matrix-multiply arithmetic needs to know.

An ``Architecture`` is plain numbers, hashable, and knows nothing about FLOPs, files or frameworks. It
is read from a Hugging Face config by ``Architecture.from_config`` (``race.flops.config`` does the
reading); the FLOPs are counted from it in ``race.flops.matmuls``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from race.errors import InvalidInput
from race.flops.checks import positive_int
from race.flops.lora import LoraSpec

Head = Literal["lm", "token-classification", "sequence-classification", "mlp-score", "none"]


@dataclass(frozen=True)
class MoE:
    """The sparse MLP of a mixture-of-experts layer: ``top_k`` of ``experts`` gated MLPs per token.

    Parameters
    ----------
    experts, top_k
        Routed experts, and how many of them each token visits.
    intermediate
        Width of one routed expert.
    shared_intermediate
        Width of the shared expert every token visits (0: none). Its output is scaled by a
        ``hidden -> 1`` sigmoid gate, as in Qwen2-MoE.
    """

    experts: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0

    def __post_init__(self) -> None:
        for field in ("experts", "top_k", "intermediate"):
            positive_int(f"moe.{field}", getattr(self, field))
        if self.shared_intermediate != 0:
            positive_int("moe.shared_intermediate", self.shared_intermediate)
        if self.top_k > self.experts:
            raise InvalidInput(f"moe.top_k: {self.top_k} is more than moe.experts = {self.experts}")


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a model.

    ``total`` counts every parameter once (a tied head is the embedding matrix). ``non_embedding`` leaves
    out the token embedding, and with it a tied head, but keeps an untied one: what
    ``PreTrainedModel.num_parameters(exclude_embeddings=True)`` returns. ``active`` is ``total`` less the
    experts a token does not visit. ``trainable`` is ``total`` for full fine-tuning, the adapter alone
    under LoRA; the adapter is in none of the other three.
    """

    total: int
    non_embedding: int
    active: int
    trainable: int


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer with rotary positions, gated MLPs and grouped-query attention.

    Parameters
    ----------
    name
        What the user called it; shown in tables. Takes no part in arithmetic.
    family
        Hugging Face ``model_type``.
    layers, hidden, heads, kv_heads, head_dim, intermediate, vocab
        The usual widths. ``heads * head_dim`` need not equal ``hidden``.
    tied
        The LM head is the embedding matrix (matters for parameters, not for FLOPs).
    windows
        Per layer: the sliding window in tokens, or ``None`` for full attention.
    sparse
        Per layer: whether the MLP is the mixture of experts.
    moe
        The mixture of experts, when any layer is sparse.
    head
        What sits on the last hidden state. ``"lm"``: hidden -> vocab. ``"token-classification"`` (with
        bias) and ``"sequence-classification"`` (without): hidden -> num_labels, both computed at every
        position. ``"mlp-score"``: Linear, ReLU, Linear to num_labels (Qwen2.5-Math-PRM). ``"none"``.
    num_labels
        Outputs of a classification or score head.
    fused
        One ``qkv_proj`` and one ``gate_up_proj`` (Phi-3) instead of separate projections.
    qkv_bias, o_bias, mlp_bias, qk_norm, norms_per_layer
        Only parameters depend on these; ``norms_per_layer == 4`` also says that the layer ends in a norm,
        which decides what gradient checkpointing recomputes.
    rotary_dim, rotary_tables
        Rotated dimensions per head, and how many cos/sin tables a forward builds (Gemma 3: one per layer).
        Only ``rotary="matmul"`` counts them.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    windows: tuple[int | None, ...]
    sparse: tuple[bool, ...]
    moe: MoE | None = None
    head: Head = "lm"
    num_labels: int = 0
    fused: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norms_per_layer: int = 2
    rotary_dim: int = 0
    rotary_tables: int = 1

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab"):
            positive_int(field, getattr(self, field))
        if self.heads % self.kv_heads:
            raise InvalidInput(f"kv_heads: {self.kv_heads} does not divide heads = {self.heads}")
        for per_layer in ("windows", "sparse"):
            if len(getattr(self, per_layer)) != self.layers:
                found = len(getattr(self, per_layer))
                raise InvalidInput(
                    f"{per_layer}: {found} entries for {self.layers} layers; give one per layer"
                )
        for window in self.windows:
            if window is not None:
                positive_int("windows", window)
        if any(self.sparse) and self.moe is None:
            raise InvalidInput("moe: missing, although some layers are sparse")
        if self.head not in get_args(Head):
            raise InvalidInput(f"head: {self.head!r} is not one of {', '.join(get_args(Head))}")
        if self.head not in ("lm", "none"):
            positive_int("num_labels", self.num_labels)

    @classmethod
    def from_config(
        cls, source: object, *, head: Head | None = None, num_labels: int | None = None
    ) -> Architecture:
        """Read an architecture from wherever a Hugging Face config may be.

        Parameters
        ----------
        source
            A config ``dict``; a path to ``config.json`` or to a folder holding one; any object with
            ``to_dict()`` (``PretrainedConfig``); a built-in name such as ``qwen2.5-1.5b`` or
            ``Qwen/Qwen2.5-Math-PRM-7B`` (offline, case-insensitive); or another hub id, fetched with
            ``huggingface_hub`` when that is installed. An ``Architecture`` is returned as it is.
        head, num_labels
            Override the head that the config's ``architectures`` names (an LM head when it names none).

        Raises
        ------
        InvalidInput
            Unknown name or family, missing field, or numbers that do not fit together.
        CannotDo
            A hub id that cannot be fetched here.
        """
        from race.flops.config import read_architecture

        architecture = read_architecture(source)
        if head is None and num_labels is None:
            return architecture
        new_head = head or architecture.head
        return replace(architecture, head=new_head, num_labels=num_labels or architecture.num_labels)

    @property
    def distinct_windows(self) -> tuple[int | None, ...]:
        """The different sliding windows of the layers (``None``: full attention), in order of appearance."""
        return tuple(dict.fromkeys(self.windows))

    def params(self) -> int:
        """All parameters, each counted once: the N of tables and of the size axis."""
        return self.count_params().total

    def count_params(self, lora: LoraSpec | None = None) -> ParameterCount:
        """Parameters by role; ``lora=None`` means that everything is trained.

        ``total`` equals ``sum(p.numel() for p in model.parameters())`` of the Hugging Face module.
        """
        from race.flops.parameters import count_parameters

        return count_parameters(self, lora)


def check_architecture(arch: object) -> Architecture:
    """``arch`` itself, if it is an ``Architecture``; a name has to be read first."""
    if not isinstance(arch, Architecture):
        raise InvalidInput(
            f"arch: {type(arch).__name__} is not an Architecture; use Architecture.from_config(...)"
        )
    return arch
