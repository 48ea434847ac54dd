"""From the switches a trainer has to what autograd sees."""

from __future__ import annotations

from race.errors import InvalidInput
from race.flops.lora import LoraSpec, check_lora
from race.flops.matmuls import Checkpointing, Training


def training_of(
    lora: LoraSpec | None, gradient_checkpointing: bool, use_reentrant: bool, input_require_grads: bool | None
) -> Training:
    """Resolve the switches of ``update_flops``.

    ``input_require_grads=None`` is what transformers and PEFT do: ``enable_input_require_grads`` is called
    when gradient checkpointing is on, so that gradients flow through checkpointed frozen layers.
    """
    for field, value in (
        ("gradient_checkpointing", gradient_checkpointing),
        ("use_reentrant", use_reentrant),
    ):
        if not isinstance(value, bool):
            raise InvalidInput(f"{field}: {value!r} is not True or False")
    if input_require_grads is not None and not isinstance(input_require_grads, bool):
        raise InvalidInput(f"input_require_grads: {input_require_grads!r} is not True, False or None")
    checkpointing: Checkpointing = "none"
    if gradient_checkpointing:
        checkpointing = "reentrant" if use_reentrant else "non-reentrant"
    inputs = gradient_checkpointing if input_require_grads is None else input_require_grads
    return Training(
        full=lora is None, lora=check_lora(lora), inputs_require_grad=inputs, checkpointing=checkpointing
    )
