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
from race.flops.shapes import Linear, attention_linears, expert_linears, head_linears, head_name, mlp_linears
from race.flops.targets import adapter_names
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
        self, name: str, x: bool, shape: Linear, kind: Kind = "linear", unit: Unit = "token", times: int = 1
    ) -> bool:
        """``y = x W`` plus its adapter, if ``name`` has one. ``x`` and the result: requires grad?"""
        out = self._weight(x, self.trained, shape.n_in, shape.n_out, kind, unit, times)
        if name in self._adapters:
            self._weight(x, True, shape.n_in, self._rank, "lora", unit, times)
            self._weight(True, True, self._rank, shape.n_out, "lora", unit, times)
            out = True
        return out

    def _weight(self, x: bool, w: bool, n_in: int, n_out: int, kind: Kind, unit: Unit, times: int) -> bool:
        cost = 2 * n_in * n_out * times
        self.matmuls.append(_Matmul(kind, unit, cost, cost * (x + w), x or w))
        return x or w

    def attention(self, q: bool, k: bool, v: bool, arch: Architecture, window: int | None) -> bool:
        """Scores ``Q K^T`` and context ``P V``: 2 heads head_dim per pair each, half that per half pair."""
        cost, unit = arch.heads * arch.head_dim, Pairs(window)
        scores = q or k
        for left, right in ((q, k), (scores, v)):
            self.matmuls.append(_Matmul("attention", unit, cost, cost * (left + right), left or right))
        return scores or v


def _layer(arch: Architecture, window: int | None, sparse: bool, x: bool, tape: _Tape) -> bool:
    """Run one decoder layer on ``tape``; returns whether its output requires grad."""
    shapes = attention_linears(arch)
    h = x or tape.trained  # a trained norm makes its output require grad
    if arch.fused:
        q = k = v = tape.linear("qkv_proj", h, shapes["qkv_proj"])
    else:
        q, k, v = (tape.linear(name, h, shapes[name]) for name in ("q_proj", "k_proj", "v_proj"))
    context = tape.attention(q, k, v, arch, window)
    x = tape.linear("o_proj", context, shapes["o_proj"]) or x
    h = x or tape.trained
    return (_experts(arch, h, tape) if sparse else _mlp(arch, h, tape)) or x


def _mlp(arch: Architecture, h: bool, tape: _Tape) -> bool:
    """Gated MLP: every projection but the last reads ``h``, the last reads their product."""
    *first, (down, shape) = mlp_linears(arch).items()
    gated = [tape.linear(name, h, linear) for name, linear in first]
    return tape.linear(down, any(gated), shape)


def _experts(arch: Architecture, h: bool, tape: _Tape) -> bool:
    """Shared expert, router and ``top_k`` routed experts. Every token visits exactly ``top_k``."""
    assert arch.moe is not None  # an Architecture with sparse layers has it
    shapes, top_k = expert_linears(arch), arch.moe.top_k

    def run(name: str, x: bool, kind: Kind = "experts", times: int = 1) -> bool:
        return tape.linear(name, x, shapes[name], kind, times=times)

    out = False
    if arch.moe.shared_intermediate:
        out = run("shared_expert.down", run("shared_expert.gate_up", h))
        out = run("shared_expert.gate", h, "router") or out
    weights = run("router", h, "router")
    routed = run("expert.down", run("expert.gate_up", h, times=top_k), times=top_k)
    return out or weights or routed


def _head(arch: Architecture, h: bool, tape: _Tape) -> None:
    for shape in head_linears(arch):
        h = tape.linear(head_name(arch), h, shape, "head", "logit")


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


def forward_rates(arch: Architecture, lora: LoraSpec | None, rotary: Rotary = "elementwise") -> Rates:
    """Rates of a forward alone (no gradients); ``lora=None`` is the base model, adapter off."""
    training = Training(full=False, lora=check_lora(lora), inputs_require_grad=False, checkpointing="none")
    every = training_rates(arch, training, rotary)
    return {term: rate for term, rate in every.items() if term.phase == "forward"}
