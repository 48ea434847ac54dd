"""What a LoRA adapter is attached to.

LoRA (Hu et al. 2021, arXiv 2106.09685) adds ``B A x`` to a frozen linear layer ``W x``, with
``A: rank x in`` and ``B: out x rank``. Variants that change the arithmetic (DoRA, and the like) are not
this class; they are refused where configs are read, not approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from race.errors import InvalidInput
from race.flops.checks import positive_int


@dataclass(frozen=True)
class LoraSpec:
    """Rank and targets of a LoRA adapter.

    Parameters
    ----------
    rank
        Rank of every adapter.
    targets
        ``"all-linear"`` (every linear layer except the LM head, as PEFT reads it) or a tuple of module
        names: ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj``, ``gate_proj``, ``up_proj``, ``down_proj``,
        ``lm_head``; Phi-3 has ``qkv_proj`` and ``gate_up_proj``. Names that the model does not have are
        refused when FLOPs are counted.
    layers
        Indices of the decoder layers that carry adapters (PEFT ``layers_to_transform``); ``None``: all.

    Examples
    --------
    >>> LoraSpec(16).targets
    'all-linear'
    """

    rank: int
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        positive_int("lora.rank", self.rank)
        if isinstance(self.targets, str):
            if self.targets != "all-linear":
                raise InvalidInput(
                    f'lora.targets: {self.targets!r} is not "all-linear"; give projection names as a tuple'
                )
        else:
            names = _tuple("lora.targets", self.targets)
            if not names or not all(isinstance(name, str) and name for name in names):
                raise InvalidInput("lora.targets: give at least one projection name")
            # Order and repeats mean nothing to PEFT, so they must not make two specs differ.
            object.__setattr__(self, "targets", tuple(sorted(set(names))))
        if self.layers is not None:
            indices = _tuple("lora.layers", self.layers)
            if not indices or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in indices):
                raise InvalidInput("lora.layers: give decoder layer indices >= 0, or None for all layers")
            object.__setattr__(self, "layers", tuple(sorted(set(indices))))

    def on_layer(self, index: int) -> bool:
        """Whether decoder layer ``index`` carries adapters."""
        return self.layers is None or index in self.layers


def _tuple(field: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list, set, frozenset)):
        raise InvalidInput(f"{field}: {value!r} is not a list")
    return tuple(value)


def check_lora(lora: object) -> LoraSpec | None:
    """A ``LoraSpec`` or ``None``; anything else (a PEFT config, a name) is ``InvalidInput``."""
    if lora is not None and not isinstance(lora, LoraSpec):
        raise InvalidInput(f"lora: {lora!r} is not a LoraSpec or None")
    return lora
