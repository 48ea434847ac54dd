"""Which linear layers of a model an adapter reaches, as PEFT would decide."""

from __future__ import annotations

from race.errors import InvalidInput
from race.flops.architecture import Architecture
from race.flops.lora import LoraSpec
from race.flops.shapes import attention_linears, head_name, mlp_linears

_HEAD_NAMES = frozenset({"lm_head", "score"})


def linear_names(arch: Architecture) -> tuple[str, ...]:
    """Names of the adaptable linear layers of ``arch``, head last.

    With a mixture of experts only the attention projections and the head: PEFT reads the MLP names there as
    the stacked expert weights and folds the adapter into them on every call, which costs FLOPs per call
    and per expert rather than per token.
    """
    mlp = () if arch.moe is not None else tuple(mlp_linears(arch))
    head = () if arch.head == "none" else (head_name(arch),)
    return (*attention_linears(arch), *mlp, *head)


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
