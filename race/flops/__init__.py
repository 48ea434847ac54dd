"""Exact FLOP accounting for transformers under LoRA or full fine-tuning.

``Architecture`` says what the model is, ``LoraSpec`` what is trained; ``forward_flops``,
``update_flops`` and ``generate_flops`` count real (ragged) lengths exactly, ``cost_functions`` gives the
same numbers in closed form for planners. Nothing here imports torch.
"""

from race.flops.architecture import Architecture, MoE, ParameterCount
from race.flops.conventions import FORMULAS, Formula, formula
from race.flops.costs import CostFunctions, cost_functions
from race.flops.count import Convention, FlopCount
from race.flops.lora import LoraSpec
from race.flops.models import builtin_names
from race.flops.passes import forward_flops, generate_flops, logprob_flops, update_flops

__all__ = [
    "FORMULAS",
    "Architecture",
    "Convention",
    "CostFunctions",
    "FlopCount",
    "Formula",
    "LoraSpec",
    "MoE",
    "ParameterCount",
    "builtin_names",
    "cost_functions",
    "formula",
    "forward_flops",
    "generate_flops",
    "logprob_flops",
    "update_flops",
]
