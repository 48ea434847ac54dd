"""What is trained and how: from the switches a trainer has to what autograd sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from race.errors import InvalidInput
from race.flops.lora import LoraSpec, check_lora

Checkpointing = Literal["none", "non-reentrant", "reentrant"]


@dataclass(frozen=True)
class Training:
    """Everything that the propagation of ``requires_grad`` starts from.

    ``full``: every parameter is trained, otherwise the adapter ``lora`` alone. ``inputs_require_grad``: the
    embedding output requires grad although the embedding is frozen.
    """

    full: bool
    lora: LoraSpec | None
    inputs_require_grad: bool
    checkpointing: Checkpointing

    @classmethod
    def of(
        cls,
        lora: LoraSpec | None,
        gradient_checkpointing: bool,
        use_reentrant: bool,
        input_require_grads: bool | None,
    ) -> Training:
        """Resolve the switches of ``update_flops``.

        ``input_require_grads=None`` is what transformers and PEFT do: ``enable_input_require_grads`` is
        called when gradient checkpointing is on, so that gradients pass through frozen layers.
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
        return cls(check_lora(lora) is None, lora, inputs, checkpointing)
