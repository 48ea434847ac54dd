"""What a LoRA adapter is attached to.

LoRA (Hu et al. 2021, arXiv 2106.09685) adds ``B A x`` to a frozen linear layer ``W x``, with
``A: rank x in`` and ``B: out x rank``. Variants that change the arithmetic (DoRA, per-layer ranks, adapted
embeddings) are refused, not approximated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from race.errors import InvalidInput
from race.flops.checks import positive_int

#: Fields of a PEFT ``LoraConfig`` that leave the matmuls of plain LoRA as they are. Any other field that is set
#: (DoRA, rank patterns, target parameters, what future releases add) is refused.
_HARMLESS = frozenset(
    {
        "alpha_pattern",
        "auto_mapping",
        "base_model_name_or_path",
        "bias",
        "corda_config",
        "eva_config",
        "fan_in_fan_out",
        "inference_mode",
        "init_lora_weights",
        "layers_to_transform",
        "loftq_config",
        "lora_alpha",
        "lora_bias",
        "lora_dropout",
        "lora_ga_config",
        "megatron_core",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "r",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)


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

    @classmethod
    def from_peft(cls, config: object) -> LoraSpec:
        """Read a PEFT ``LoraConfig``, or the mapping that an ``adapter_config.json`` holds.

        Raises
        ------
        InvalidInput
            Not a LoRA, or one with a feature that changes the arithmetic; the message names it.
        """
        to_dict = getattr(config, "to_dict", None)
        fields = dict(to_dict()) if callable(to_dict) else config
        if not isinstance(fields, Mapping):
            raise InvalidInput(f"lora: cannot read an adapter from {type(config).__name__}")
        kind = str(getattr(fields.get("peft_type"), "value", fields.get("peft_type")))
        if kind != "LORA":
            raise InvalidInput(f"lora.peft_type: {kind} is not LORA; only plain LoRA can be counted")
        for field, value in fields.items():
            if value and field not in _HARMLESS:
                raise InvalidInput(f"lora.{field}: is set; only plain LoRA can be counted")
        rank, targets = fields.get("r", 0), fields.get("target_modules")
        if isinstance(targets, str):
            if targets.lower() != "all-linear":
                raise InvalidInput(f"lora.target_modules: {targets!r} is a pattern; list the names instead")
            names, layers = None, None
        else:
            names, layers = _names_and_layers(_tuple("lora.target_modules", targets or ()))
        chosen = fields.get("layers_to_transform")
        if chosen is not None:
            layers = (chosen,) if isinstance(chosen, int) else _tuple("lora.layers_to_transform", chosen)
        return cls(rank, "all-linear" if names is None else names, layers)

    def on_layer(self, index: int) -> bool:
        """Whether decoder layer ``index`` carries adapters."""
        return self.layers is None or index in self.layers


def _names_and_layers(modules: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """``self_attn.q_proj`` -> ``q_proj`` everywhere; ``model.layers.3.mlp.up_proj`` -> ``up_proj`` in layer 3."""
    places = set()
    for module in modules:
        path = str(module).split(".")
        places.add((path[-1], next((int(part) for part in path if part.isdigit()), None)))
    names, layers = {name for name, _ in places}, {layer for _, layer in places}
    if layers <= {None}:
        return tuple(names), None
    indices = tuple(layer for layer in layers if layer is not None)
    if len(indices) < len(layers) or len(places) != len(names) * len(layers):
        raise InvalidInput(
            "lora.target_modules: layers differ in what is adapted; only one set for all can be counted"
        )
    return tuple(names), indices


def _tuple(field: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list, set, frozenset)):
        raise InvalidInput(f"{field}: {value!r} is not a list")
    return tuple(value)


def check_lora(lora: object) -> LoraSpec | None:
    """A ``LoraSpec`` or ``None``; anything else (a PEFT config, a name) is ``InvalidInput``."""
    if lora is not None and not isinstance(lora, LoraSpec):
        raise InvalidInput(f"lora: {lora!r} is not a LoraSpec or None")
    return lora
