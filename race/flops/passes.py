"""FLOPs of real batches: ragged lengths in, exact integers out.

One call is one pass over some sequences: a forward, an update, a generation. A batch that is padded to
its longest sequence executes ``lengths = [max] * n``; a packed or unpadded one executes its own lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from race.errors import InvalidInput
from race.flops import work
from race.flops.architecture import Architecture, check_architecture
from race.flops.checks import Attention, Rotary, check_attention, check_lengths, check_rotary, positive_int
from race.flops.count import Convention, FlopCount
from race.flops.lora import LoraSpec
from race.flops.matmuls import Rates, forward_rates, training_rates
from race.flops.training import Training
from race.flops.work import Work

Logits = Literal["all", "none"] | int | Sequence[int]
Lengths = Sequence[int]


def _convention(attention: Attention, rotary: Rotary) -> Convention:
    counted = "elementwise, 0" if check_rotary(rotary) == "elementwise" else "matmul"
    return Convention("race", attention, rotary=counted)


def forward_flops(
    arch: Architecture,
    lengths: Lengths,
    *,
    attention: str = "causal",
    logits: Logits = "all",
    lora: LoraSpec | None = None,
    rotary: Rotary = "elementwise",
) -> FlopCount:
    """FLOPs of one forward over sequences of these lengths.

    Parameters
    ----------
    arch
        The model.
    lengths
        Tokens of each sequence; summed exactly, sequence by sequence.
    attention
        ``"causal"`` counts unmasked pairs, ``"full"`` all S x S scores (what eager attention executes).
    logits
        Where the head is computed: ``"all"`` positions, ``"none"``, the last ``k`` of each sequence, or one
        ``k`` per sequence.
    lora
        The active adapter; ``None`` for the base model or an adapter that is switched off.
    rotary
        ``"elementwise"``: cos/sin tables cost nothing (current transformers). ``"matmul"``: early 5.x
        releases, which build them with a batched matmul (for position ids given per sequence).

    Raises
    ------
    InvalidInput
        A length that is not a whole number >= 1, more logits than tokens, an unknown convention or target.
    """
    kind = check_attention(attention)
    done = _sequences(arch, lengths, logits, kind)
    return _count(forward_rates(arch, lora, rotary), done, _convention(kind, rotary))


def logprob_flops(
    arch: Architecture,
    prompt_lengths: Lengths,
    completion_lengths: Lengths,
    *,
    attention: str = "causal",
    lora: LoraSpec | None = None,
    rotary: Rotary = "elementwise",
) -> FlopCount:
    """FLOPs of the forward that yields the log-probs of given completions.

    With the policy's ``lora`` this is the old-log-prob pass, with ``lora=None`` (adapter off) the reference
    pass. The head is computed at the ``c`` positions that predict the completion; a trainer that keeps
    ``c + 1`` (``logits_to_keep`` counts from the end) is ``forward_flops(..., logits=[c + 1, ...])``.
    """
    prompts = check_lengths("prompt_lengths", prompt_lengths)
    completions = check_lengths("completion_lengths", completion_lengths)
    _same_number(prompts, completions, 1)
    lengths = [p + c for p, c in zip(prompts, completions, strict=True)]
    return forward_flops(arch, lengths, attention=attention, logits=completions, lora=lora, rotary=rotary)


def update_flops(
    arch: Architecture,
    lengths: Lengths,
    *,
    lora: LoraSpec | None,
    attention: str = "causal",
    logits: Logits = "all",
    gradient_checkpointing: bool = False,
    use_reentrant: bool = False,
    input_require_grads: bool | None = None,
    rotary: Rotary = "elementwise",
) -> FlopCount:
    """FLOPs of forward, backward and recomputation over sequences of these lengths.

    Parameters
    ----------
    arch, lengths, attention, logits, rotary
        As in ``forward_flops``; the loss reaches every position at which the head is computed.
    lora
        The trained adapter, everything else frozen; ``None`` is full fine-tuning.
    gradient_checkpointing
        Every decoder layer is a checkpoint (``model.gradient_checkpointing_enable()``).
    use_reentrant
        torch's older checkpoint, which recomputes whole layers; the other kind (the default of
        transformers) stops after the last operand it needs.
    input_require_grads
        Whether the embedding output requires grad, so that the first layers compute input gradients that
        nobody uses. ``None``: as transformers and PEFT do it, exactly when checkpointing is on.

    Raises
    ------
    InvalidInput
        As ``forward_flops``; also when nothing would be trained.
    """
    kind = check_attention(attention)
    training = Training.of(lora, gradient_checkpointing, use_reentrant, input_require_grads)
    done = _sequences(arch, lengths, logits, kind)
    return _count(training_rates(arch, training, rotary), done, _convention(kind, rotary))


def generate_flops(
    arch: Architecture,
    prompt_lengths: Lengths,
    completion_lengths: Lengths,
    *,
    group_size: int = 1,
    shared_prefix: bool = False,
    attention: str = "causal",
    lora: LoraSpec | None = None,
    rotary: Rotary = "elementwise",
) -> FlopCount:
    """FLOPs of sampling completions with a key-value cache.

    A completion of ``c`` tokens is one prefill of the prompt (head at its last position, which yields the
    first token) and ``c - 1`` forwards of one token; the last token sampled is never fed back.

    Parameters
    ----------
    arch, attention, lora, rotary
        As in ``forward_flops``. ``attention`` matters for the prefill only.
    prompt_lengths
        Tokens of each prompt.
    completion_lengths
        Tokens sampled for each completion, end-of-sequence included: ``group_size`` per prompt, grouped by
        prompt.
    group_size
        Completions per prompt.
    shared_prefix
        Prefill each prompt once for its group (prefix caching) instead of once per completion.
    """
    kind = check_attention(attention)
    positive_int("group_size", group_size)
    prompts = check_lengths("prompt_lengths", prompt_lengths)
    completions = check_lengths("completion_lengths", completion_lengths)
    _same_number(prompts, completions, group_size)
    windows = check_architecture(arch).distinct_windows
    each = [p for p in prompts for _ in range(group_size)]
    prefills = (work.sequence(p, 1, kind, windows) for p in (prompts if shared_prefix else each))
    decodes = (work.decode(p, c, windows) for p, c in zip(each, completions, strict=True))
    rates, convention = forward_rates(arch, lora, rotary), _convention(kind, rotary)
    prefill = _count(rates, work.add(prefills, windows), convention, "prefill")
    return prefill + _count(rates, work.add(decodes, windows), convention, "decode")


def _same_number(prompts: list[int], completions: list[int], group_size: int) -> None:
    if len(completions) != len(prompts) * group_size:
        raise InvalidInput(
            f"completion_lengths: {len(completions)} given for {len(prompts)} prompts x group_size {group_size}"
        )


def _positions(lengths: list[int], logits: Any) -> list[int]:
    """Head positions per sequence."""
    if isinstance(logits, str):
        if logits not in ("all", "none"):
            raise InvalidInput(f'logits: {logits!r} is not "all", "none", a number or a list of numbers')
        return lengths if logits == "all" else [0] * len(lengths)
    each = [logits] * len(lengths) if isinstance(logits, (int, float, np.number)) else logits
    positions = check_lengths("logits", each, least=0)
    if len(positions) != len(lengths):
        raise InvalidInput(f"logits: {len(positions)} given for {len(lengths)} sequences")
    for k, n in zip(positions, lengths, strict=True):
        if k > n:
            raise InvalidInput(f"logits: {k} positions asked of a sequence of {n} tokens")
    return positions


def _sequences(arch: Architecture, lengths: Lengths, logits: Logits, attention: Attention) -> Work:
    windows = check_architecture(arch).distinct_windows
    checked = check_lengths("lengths", lengths)
    positions = _positions(checked, logits)
    pieces = (work.sequence(n, k, attention, windows) for n, k in zip(checked, positions, strict=True))
    return work.add(pieces, windows)


def _count(rates: Rates, done: Work, convention: Convention, phase: str | None = None) -> FlopCount:
    parts: dict[str, int] = {}
    for term, rate in rates.items():
        part, flops = f"{phase or term.phase}.{term.kind}", rate * done.amount(term.unit)
        if flops:
            parts[part] = parts.get(part, 0) + flops
    return FlopCount(parts, convention)
