"""Every matrix multiplication of a forward, a backward and a recomputation, as rates.

Notation
--------
n, k   tokens in a sequence; positions at which the head is computed
pairs  query-key pairs that attention scores (see ``race.flops.work``)
rate   FLOPs per token, per head position, or per *half* pair. A causal sequence has n (n + 1) / 2
       pairs; counting half pairs keeps everything an integer polynomial.

A matmul (m x k) @ (k x n) is 2 m n k FLOPs, the convention of ``torch.utils.flop_counter``.

The backward is not "twice the forward". A matmul ``y = x W`` costs a second matmul for the gradient of
``x`` only if ``x`` requires one, and a third for the gradient of ``W`` only if ``W`` is trained. Which
does is decided as autograd decides it: ``requires_grad`` is propagated through the layers in execution
order. That yields, without a special case, the first LoRA layer (its input needs no gradient), single
projections, adapters on some layers only, an adapter on the LM head, and full fine-tuning.

What is left out: norms, softmax, activations, masks, look-ups and the optimizer, where there is no matmul;
and the fifth attention matmul that flash kernels run again in their backward (eager attention runs four).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from race.errors import InvalidInput
from race.flops.architecture import Architecture
from race.flops.checks import Rotary
from race.flops.lora import LoraSpec, check_lora
from race.flops.training import Checkpointing, Training

Phase = Literal["forward", "backward", "recompute"]
Kind = Literal["linear", "attention", "experts", "router", "lora", "head", "rotary"]


class Pairs(NamedTuple):
    """The unit of attention: half of one query-key pair in a layer with this sliding window."""

    window: int | None


Unit = Literal["token", "logit"] | Pairs


class Term(NamedTuple):
    """One line of the bill: what is multiplied, in which phase, per what."""

    phase: Phase
    kind: Kind
    unit: Unit


Rates = Mapping[Term, int]


@dataclass(frozen=True)
class _Matmul:
    """One matmul in execution order. ``saves``: autograd keeps one of its operands for the backward."""

    kind: Kind
    unit: Unit
    forward: int
    backward: int
    saves: bool


class _Tape:
    """Matmuls of one layer (or of the head) in execution order, with ``requires_grad`` propagation."""

    def __init__(self, *, trained: bool, adapters: frozenset[str], rank: int) -> None:
        self.matmuls: list[_Matmul] = []
        self.trained = trained
        self._adapters = adapters
        self._rank = rank

    def linear(
        self,
        name: str,
        x: bool,
        n_in: int,
        n_out: int,
        *,
        kind: Kind = "linear",
        unit: Unit = "token",
        times: int = 1,
    ) -> bool:
        """``y = x W`` plus its adapter, if ``name`` has one. ``x`` and the result: requires grad?"""
        out = self._weight(x, self.trained, n_in, n_out, kind, unit, times)
        if name in self._adapters:
            self._weight(x, True, n_in, self._rank, "lora", unit, times)
            self._weight(True, True, self._rank, n_out, "lora", unit, times)
            out = True
        return out

    def _weight(self, x: bool, w: bool, n_in: int, n_out: int, kind: Kind, unit: Unit, times: int) -> bool:
        cost = 2 * n_in * n_out * times
        self.matmuls.append(_Matmul(kind, unit, cost, cost * (x + w), x or w))
        return x or w

    def attention(self, q: bool, k: bool, v: bool, arch: Architecture, window: int | None) -> bool:
        """Scores ``Q K^T`` and context ``P V``: 2 heads head_dim per pair each, half that per half pair."""
        cost = arch.heads * arch.head_dim
        scores = q or k
        for left, right in ((q, k), (scores, v)):
            self.matmuls.append(
                _Matmul("attention", Pairs(window), cost, cost * (left + right), left or right)
            )
        return scores or v


_HEAD_NAMES = frozenset({"lm_head", "score"})


def linear_names(arch: Architecture) -> tuple[str, ...]:
    """Names of the adaptable linear layers of ``arch``, head last.

    With a mixture of experts only the attention projections and the head: PEFT reads the MLP names there as
    the stacked expert weights and folds the adapter into them on every call, which costs FLOPs per call
    and per expert rather than per token.
    """
    attention = ("qkv_proj", "o_proj") if arch.fused else ("q_proj", "k_proj", "v_proj", "o_proj")
    mlp = ("gate_up_proj", "down_proj") if arch.fused else ("gate_proj", "up_proj", "down_proj")
    head = {"lm": ("lm_head",), "none": ()}.get(arch.head, ("score",))
    return attention + (() if arch.moe is not None else mlp) + head


def adapter_names(arch: Architecture, lora: LoraSpec | None) -> frozenset[str]:
    """The linear layers that carry an adapter; ``InvalidInput`` for a target the model does not have."""
    if lora is None:
        return frozenset()
    known = linear_names(arch)
    if lora.layers is not None:
        if lora.layers[-1] >= arch.layers:
            raise InvalidInput(
                f"lora.layers: {lora.layers[-1]} is not a layer of {arch.name} (0 to {arch.layers - 1})"
            )
        heads = _HEAD_NAMES.intersection(lora.targets)
        if heads:
            raise InvalidInput(
                f"lora.layers: {', '.join(heads)} is in no decoder layer, so PEFT skips it; drop it or layers"
            )
    if lora.targets == "all-linear":
        if arch.moe is not None:
            raise InvalidInput(
                f'lora.targets: "all-linear" on {arch.name} would fold adapters into the stacked expert '
                f"weights, at a cost per call instead of per token; name targets out of {', '.join(known)}"
            )
        return frozenset(known) - (_HEAD_NAMES if lora.layers is not None else {"lm_head"})
    unknown = sorted(set(lora.targets) - set(known))
    if unknown:
        raise InvalidInput(
            f"lora.targets: {', '.join(unknown)} cannot be adapted in {arch.name}; "
            f"known: all-linear, {', '.join(known)}"
        )
    return frozenset(lora.targets)


def _layer(arch: Architecture, window: int | None, sparse: bool, x: bool, tape: _Tape) -> bool:
    """Run one decoder layer on ``tape``; returns whether its output requires grad."""
    trained = tape.trained  # a trained norm makes its output require grad
    hidden, q_width, kv_width = arch.hidden, arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    h = x or trained
    if arch.fused:
        q = k = v = tape.linear("qkv_proj", h, hidden, q_width + 2 * kv_width)
    else:
        q = tape.linear("q_proj", h, hidden, q_width)
        k = tape.linear("k_proj", h, hidden, kv_width)
        v = tape.linear("v_proj", h, hidden, kv_width)
    context = tape.attention(q, k, v, arch, window)
    x = tape.linear("o_proj", context, q_width, hidden) or x
    h = x or trained
    if sparse:
        return _experts(arch, h, tape) or x
    if arch.fused:
        gated = tape.linear("gate_up_proj", h, hidden, 2 * arch.intermediate)
    else:
        gate = tape.linear("gate_proj", h, hidden, arch.intermediate)
        gated = tape.linear("up_proj", h, hidden, arch.intermediate) or gate
    return tape.linear("down_proj", gated, arch.intermediate, hidden) or x


def _experts(arch: Architecture, h: bool, tape: _Tape) -> bool:
    """Router, ``top_k`` routed experts and the shared expert. Every token visits exactly ``top_k``."""
    moe = arch.moe
    assert moe is not None  # Architecture guarantees it for a sparse layer
    out = False
    if moe.shared_intermediate:
        width = moe.shared_intermediate
        gated = tape.linear("shared_expert.gate_up", h, arch.hidden, 2 * width, kind="experts")
        out = tape.linear("shared_expert.down", gated, width, arch.hidden, kind="experts")
        out = tape.linear("shared_expert.gate", h, arch.hidden, 1, kind="router") or out
    weights = tape.linear("router", h, arch.hidden, moe.experts, kind="router")
    gated = tape.linear(
        "experts.gate_up", h, arch.hidden, 2 * moe.intermediate, kind="experts", times=moe.top_k
    )
    routed = tape.linear(
        "experts.down", gated, moe.intermediate, arch.hidden, kind="experts", times=moe.top_k
    )
    return out or weights or routed


def _recomputed(matmuls: list[_Matmul], tail_saves: bool, checkpointing: Checkpointing) -> list[_Matmul]:
    """The matmuls of one checkpointed layer that run again in the backward.

    Reentrant checkpointing runs the whole layer again. The non-reentrant kind stops as soon as the last
    operand that the backward needs has been recomputed; autograd saves an operand *before* it multiplies,
    so the last matmul of the layer is not run again, unless something after it (a norm, the weighting of
    the experts) saves an operand too. A layer in which nothing requires grad is not run again.
    """
    saving = [i for i, matmul in enumerate(matmuls) if matmul.saves]
    if checkpointing == "none" or not saving:
        return []
    if checkpointing == "reentrant" or tail_saves:
        return matmuls
    return matmuls[: saving[-1]]


def _add(rates: dict[Term, int], phase: Phase, matmuls: Iterable[_Matmul]) -> None:
    for matmul in matmuls:
        term = Term(phase, matmul.kind, matmul.unit)
        cost = matmul.backward if phase == "backward" else matmul.forward
        if cost:
            rates[term] = rates.get(term, 0) + cost


@lru_cache(maxsize=4096)
def training_rates(arch: Architecture, training: Training, rotary: Rotary = "elementwise") -> Rates:
    """Rates of forward, backward and recomputation under ``training``."""
    names = adapter_names(arch, training.lora)
    rank = training.lora.rank if training.lora is not None else 0
    x = training.full or training.inputs_require_grad
    rates: dict[Term, int] = {}
    seen: dict[tuple[int | None, bool, bool, bool], tuple[list[_Matmul], list[_Matmul], bool]] = {}
    for index, (window, sparse) in enumerate(zip(arch.windows, arch.sparse, strict=True)):
        adapted = training.lora is not None and training.lora.on_layer(index)
        key = (window, sparse, x, adapted)
        if key not in seen:
            tape = _Tape(trained=training.full, adapters=names if adapted else frozenset(), rank=rank)
            out = _layer(arch, window, sparse, x, tape)
            tail_saves = out and (sparse or arch.norms_per_layer == 4)
            seen[key] = tape.matmuls, _recomputed(tape.matmuls, tail_saves, training.checkpointing), out
        matmuls, again, out = seen[key]
        if training.checkpointing == "reentrant" and not x:
            raise InvalidInput(
                "input_require_grads: reentrant checkpointing needs it, or no gradient reaches the adapters; "
                "set it True or use_reentrant False"
            )
        _add(rates, "forward", matmuls)
        _add(rates, "backward", matmuls)
        _add(rates, "recompute", again)
        x = out
    tape = _Tape(trained=training.full, adapters=names, rank=rank)
    _head(arch, x or training.full, tape)
    _add(rates, "forward", tape.matmuls)
    _add(rates, "backward", tape.matmuls)
    if rotary == "matmul":
        rates[Term("forward", "rotary", "token")] = arch.rotary_dim * arch.rotary_tables
    return rates


def _head(arch: Architecture, h: bool, tape: _Tape) -> None:
    if arch.head == "lm":
        tape.linear("lm_head", h, arch.hidden, arch.vocab, kind="head", unit="logit")
    elif arch.head == "mlp-score":
        h = tape.linear("score", h, arch.hidden, arch.hidden, kind="head", unit="logit")
        tape.linear("score", h, arch.hidden, arch.num_labels, kind="head", unit="logit")
    elif arch.head != "none":
        tape.linear("score", h, arch.hidden, arch.num_labels, kind="head", unit="logit")


def forward_rates(arch: Architecture, lora: LoraSpec | None, rotary: Rotary = "elementwise") -> Rates:
    """Rates of a forward alone (no gradients); ``lora=None`` is the base model, adapter off."""
    training = Training(full=False, lora=check_lora(lora), inputs_require_grad=False, checkpointing="none")
    every = training_rates(arch, training, rotary)
    return {term: rate for term, rate in every.items() if term.phase == "forward"}
