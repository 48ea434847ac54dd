"""The policy that is trained: a transformers causal LM with a LoRA adapter (PEFT), and what the ledger knows of it.

The base stays frozen; "adapter off" is the reference policy. Without a LoRA spec every weight is trained and
there is no reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from race.errors import CannotDo, InvalidInput
from race.flops import Architecture, LoraSpec
from race.recipe import Recipe
from real_runs.config import RunOptions
from real_runs.grpo.seeds import seed_for
from real_runs.lean.cached import LeanCache
from real_runs.lean.decoder import hidden_states
from real_runs.lean.weights import read_decoder, unsupported
from real_runs.rollout.caches import Cache, TransformersCache

# Above this many parameters arithmetic outweighs call overhead, and the lean cache's packed copy of the weights costs
# more than it saves.
LEAN_LIMIT = 200_000_000

PolicyFactory = Callable[[], PreTrainedModel]
"""Builds the base model; called once per process, on the CPU, in any dtype."""


@dataclass
class Policy:
    """A model under training.

    Attributes
    ----------
    model
        PEFT-wrapped, or the bare model when everything is trained.
    causal_lm
        The transformers model inside; its ``model`` gives hidden states, its ``lm_head`` logits.
    architecture, lora
        What costs are counted from.
    parameters
        Trained parameters by name, in a fixed order.
    gradient_checkpointing
        Recompute each decoder layer in the backward pass.
    lean
        Forwards go through `real_runs.lean`.
    """

    model: nn.Module
    causal_lm: PreTrainedModel
    architecture: Architecture
    lora: LoraSpec | None
    lora_alpha: float
    device: torch.device
    parameters: dict[str, nn.Parameter]
    gradient_checkpointing: bool
    lean: bool

    def __post_init__(self) -> None:
        # Looked up once: transformers searches for it, which costs more than a nano head's arithmetic.
        self.lm_head: nn.Module = self.causal_lm.get_output_embeddings()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Where gradients are computed: gradient checkpointing is on inside, and off for everything else."""
        if not self.gradient_checkpointing:
            yield
            return
        # transformers recomputes in training mode only. Nothing else depends on the mode: dropout is 0.
        self.causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if not getattr(self.causal_lm, "_require_grads_hooks", None):
            # Enabling may have done this already; a second set of hooks could not be removed again.
            self.causal_lm.enable_input_require_grads()
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()
            self.causal_lm.disable_input_require_grads()
            self.causal_lm.gradient_checkpointing_disable()

    @contextmanager
    def adapter(self, on: bool) -> Iterator[None]:
        """The adapter on (the policy) or off (its reference)."""
        if on:
            yield
            return
        if not isinstance(self.model, PeftModel):
            raise CannotDo("kl: full fine-tuning keeps no reference policy; use a LoRA adapter or kl = false")
        with self.model.disable_adapter():
            yield

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Hidden states (B, L, H) of token ids (B, L) padded on the right.

        Differentiable; adapters are on unless `adapter` says otherwise.
        """
        if self.lean:
            return hidden_states(read_decoder(self.causal_lm), input_ids)
        output: Tensor = self.causal_lm.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
        return output

    def cache(self, capacity: int) -> Cache:
        """An empty key/value cache for sampling sequences of up to ``capacity`` tokens."""
        if self.lean:
            return LeanCache(read_decoder(self.causal_lm), capacity)
        return TransformersCache(self.causal_lm)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, including whatever scaling the model applies to them."""
        logits: Tensor = self.lm_head(hidden)
        softcap = getattr(self.causal_lm.config, "final_logit_softcapping", None)
        if softcap:
            logits = torch.tanh(logits / softcap) * softcap
        return logits

    def state(self) -> dict[str, Tensor]:
        """A copy of the trained weights by name, on the CPU."""
        return {name: p.detach().to("cpu", copy=True).contiguous() for name, p in self.parameters.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Overwrite the trained weights; names and shapes must be this policy's."""
        if set(state) != set(self.parameters):
            odd = sorted(set(state) ^ set(self.parameters))[0]
            raise InvalidInput(f"adapter: weight {odd!r} is not in both the file and the policy; use the same recipe")
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if parameter.shape != state[name].shape:
                    raise InvalidInput(
                        f"adapter: weight {name!r} has shape {tuple(state[name].shape)}, the policy has "
                        f"{tuple(parameter.shape)}; use the same recipe"
                    )
                parameter.copy_(state[name])


def build_policy(factory: PolicyFactory, recipe: Recipe, options: RunOptions, *, seed: int) -> Policy:
    """Build the base, attach the adapter (initialised from ``seed``) and put it on the device.

    Raises
    ------
    InvalidInput
        A LoRA target that the model does not have, or an unknown architecture.
    CannotDo
        The device is not there.
    """
    device = pick_device(options.device)
    base = factory()
    architecture = Architecture.from_config(base.config)
    nn.Module.to(base, dtype=getattr(torch, options.dtype))
    base.requires_grad_(recipe.lora is None)
    model: nn.Module = base
    if recipe.lora is not None:
        # Raises for targets the arithmetic does not know before PEFT silently adapts something else.
        targets = adapter_targets(architecture, recipe.lora)
        cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(seed_for(seed, 0, "adapter"))
            model = get_peft_model(
                base,
                LoraConfig(
                    r=recipe.lora.rank,
                    lora_alpha=options.lora_alpha,  # type: ignore[arg-type]  # PEFT divides; a float is fine
                    target_modules=targets,
                    layers_to_transform=list(recipe.lora.layers) if recipe.lora.layers is not None else None,
                    lora_dropout=0.0,
                    bias="none",
                    task_type="CAUSAL_LM",
                ),
            )
    model = model.to(device)
    # Dropout off for good: rollout and training log-probs of the same tokens must agree.
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    policy = Policy(
        model, base, architecture, recipe.lora, options.lora_alpha, device, parameters, recipe.gradient_checkpointing,
        use_lean(base, recipe, options, device),
    )
    planned = architecture.count_params(recipe.lora).trainable
    found = sum(p.numel() for p in parameters.values())
    if found != planned:
        raise CannotDo(
            f"policy: {found} parameters would be trained, the recipe's accounting says {planned}; "
            "the model has layers its config does not describe"
        )
    return policy


def use_lean(base: PreTrainedModel, recipe: Recipe, options: RunOptions, device: torch.device) -> bool:
    """Whether forwards go through `real_runs.lean`; asking for it where it cannot run is `InvalidInput`."""
    reason = unsupported(base)
    if not reason and options.forward == "auto" and base.num_parameters() > LEAN_LIMIT:
        reason = "it is large enough for transformers' own forward"
    if recipe.lora is None:
        reason = "it gives gradients to adapters only, and everything is trained"
    elif recipe.gradient_checkpointing:
        reason = "it does not recompute (gradient_checkpointing)"
    if options.forward == "lean" and reason:
        raise InvalidInput(f"forward: found 'lean', which cannot run this model: {reason}; use auto")
    return options.forward == "lean" or (options.forward == "auto" and not reason and device.type == "cpu")


def adapter_targets(architecture: Architecture, lora: LoraSpec) -> str | list[str]:
    """PEFT ``target_modules``; raises `InvalidInput` for a projection the model lacks."""
    from race.flops import cost_functions

    cost_functions(architecture, lora=lora)
    return lora.targets if isinstance(lora.targets, str) else list(lora.targets)


def pick_device(name: str) -> torch.device:
    """The torch device called ``name``; ``auto`` is cuda when there is one, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInput(f"device: found {name!r}; allowed are auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CannotDo(f"device: found {name!r}, but no GPU is visible here; use device = cpu")
    return device


