"""Forward hooks that see what a model really runs.

A hook on the body sees every forward with its shapes, whoever calls it: generation token by token, the old-log-prob
and reference passes, the update. So the meter needs to know nothing of how a trainer is written, and cannot forget
a pass. Three hooks per model:

body    rows, new tokens, cached tokens                                          -> executed
head    how many positions the LM head is called at                              -> executed
model   attention mask and completion positions of each row (its own length)     -> needed

Shapes are read, and once per batch the mask's row sums; no tensor is kept. Hooks do not fire again when a layer is
recomputed under gradient checkpointing: `race.flops` prices the recomputation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from race.flops import Architecture, LoraSpec
from race.flops.targets import linear_names
from race.integrations.pricing import Length, Mode, ModelPrices
from race.integrations.tally import Pass, Tally

Role = Literal["policy", "reference", "reward"]


@dataclass
class Scene:
    """What the trainer is doing right now, for passes that do not show it by themselves.

    Attributes
    ----------
    is_training
        Asks the policy whether it is in training mode: evaluation is not.
    tally
        Where passes are booked; replaced at every hand-over.
    evaluating
        Fixed while a batch is being generated and scored, ``None`` otherwise.
    generating
        Inside ``generate``.
    unseen
        Generation happens where shapes mean something else (a paged cache), so its passes are not booked.
    generated
        Whether a generation pass was booked since this was last reset.
    longest_reward_row
        Most tokens a reward model has read in one row, for forecasts.
    """

    is_training: Callable[[], bool]
    tally: Tally
    evaluating: bool | None = None
    generating: bool = False
    unseen: bool = False
    generated: bool = False
    longest_reward_row: int = 0

    def in_evaluation(self) -> bool:
        """Whether what runs now belongs to an evaluation."""
        return not self.is_training() if self.evaluating is None else self.evaluating


class ModelMeter:
    """Books every forward of ``model`` in ``scene.tally`` from `attach` to `detach`."""

    def __init__(self, model: Any, role: Role, scene: Scene) -> None:
        self.model, self.role, self.scene = model, role, scene
        self.inner = model.get_base_model() if hasattr(model, "peft_config") else model
        self.body = self.inner.base_model
        self.prices = ModelPrices(Architecture.from_config(self.inner.config))
        self.adapters = {
            name: _named(LoraSpec.from_peft(config), self.prices.architecture)
            for name, config in getattr(model, "peft_config", {}).items()
        }
        # Adapters are switched all at once, so one adapted layer says whether and which are on.
        self._adapted = next(
            (m for m in self.inner.modules() if hasattr(m, "lora_A") and hasattr(m, "disable_adapters")), None
        )
        self._inputs_require_grad = False
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Register the hooks."""
        self._handles = [
            self.inner.get_input_embeddings().register_forward_hook(self._on_embeddings),
            self.body.register_forward_hook(self._on_body, with_kwargs=True),
            self.model.register_forward_pre_hook(self._on_model, with_kwargs=True),
        ]
        head = self.inner.get_output_embeddings()
        if self.prices.architecture.head == "lm" and head is not None:
            self._handles.append(head.register_forward_pre_hook(self._on_head))

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def active_lora(self) -> tuple[str, LoraSpec] | None:
        """Name and shape of the adapter that is on now."""
        layer = self._adapted
        if layer is None or layer.disable_adapters or layer.merged:
            return None
        return next(((name, self.adapters[name]) for name in layer.active_adapters), None)

    def mode(self) -> Mode:
        """How the model is set now."""
        import torch

        active = self.active_lora()
        lora = active[1] if active is not None else None
        if self.role != "policy" or not torch.is_grad_enabled():
            return Mode(lora)
        reentrant = self._checkpointing()
        return Mode(
            lora,
            trained=True,
            checkpointing=reentrant is not None,
            reentrant=bool(reentrant),
            inputs_require_grad=self._inputs_require_grad,
        )

    def _checkpointing(self) -> bool | None:
        """``use_reentrant`` of active gradient checkpointing; ``None`` when there is none."""
        if not self.body.training:
            return None
        for module in self.body.modules():
            if getattr(module, "gradient_checkpointing", False):
                settings = getattr(module._gradient_checkpointing_func, "keywords", {})
                return bool(settings.get("use_reentrant", True))  # torch's own default
        return None

    def _pass(self, mode: Mode) -> Pass:
        if self.scene.in_evaluation():
            return "eval"
        if self.role == "reward":
            return "reward"
        if self.role == "reference":
            return "reference"
        if self.scene.generating:
            return "search"
        if mode.trained:
            return "update"
        active = self.active_lora()
        # TRL's reference is the adapter switched off, or the copy "ref" of an adapter that is trained further.
        is_reference = bool(self.adapters) and (active is None or active[0] == "ref")
        return "reference" if is_reference else "old_logprobs"

    def _on_embeddings(self, module: Any, args: Any, output: Any) -> None:
        self._inputs_require_grad = bool(output.requires_grad)

    def _on_body(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if self.scene.generating and self.scene.unseen:
            return
        ids = kwargs.get("input_ids")
        if ids is None:
            ids = args[0] if args else kwargs["inputs_embeds"]
        rows, tokens = int(ids.shape[0]), int(ids.shape[1])
        cache = _cache(kwargs)
        past = int(cache.get_seq_length()) - tokens if hasattr(cache, "get_seq_length") else 0
        mode = self.mode()
        what = self._pass(mode)
        price = self.prices.body(mode, tokens, max(past, 0))
        if self.prices.head_everywhere:
            head = self.prices.head(mode)
            price = {a: price[a] + tokens * head[a] for a in price}
        self.scene.tally.book("executed", what, price, rows)
        if self.scene.generating and self.role == "policy":
            self.scene.generated = True
        if cache is not None and self.role == "reward":
            # A judge that writes: its rows are not the trainer's samples, so what it ran is what it needed.
            self.scene.tally.book("needed", what, price, rows)
        if what == "reward":
            self.scene.longest_reward_row = max(self.scene.longest_reward_row, tokens + max(past, 0))

    def _on_head(self, module: Any, args: Any) -> None:
        if self.scene.generating and self.scene.unseen:
            return
        mode = self.mode()
        positions = int(args[0].numel() // args[0].shape[-1])
        self.scene.tally.book("executed", self._pass(mode), self.prices.head(mode), positions)
        if self.role == "reward":
            self.scene.tally.book("needed", self._pass(mode), self.prices.head(mode), positions)

    def _on_model(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if (self.scene.generating and self.role == "policy") or _cache(kwargs) is not None:
            return
        mode = self.mode()
        # Whether the embedding output requires grad shows only once it has run.
        if mode.trained:
            mode = Mode(mode.lora, True, mode.checkpointing, mode.reentrant, self._will_require_grad())
        what = self._pass(mode)
        ids = kwargs.get("input_ids")
        if ids is None:
            ids = args[0] if args else kwargs["inputs_embeds"]
        if kwargs.get("fused_lm_head"):
            head = self.prices.head(mode, recomputed=mode.trained)
            self.scene.tally.book("executed", what, head, _fused_positions(ids, kwargs["labels"]))
        lengths = _own_lengths(ids, kwargs)
        if self.prices.head_everywhere:
            lengths = [(n, n) for n, _ in lengths]
        elif self.role == "reward":
            lengths = [(n, 0) for n, _ in lengths]  # its LM head is booked where it is called
        self.scene.tally.book("needed", what, self.prices.sequence(mode, lengths))

    def _will_require_grad(self) -> bool:
        if self.inner.get_input_embeddings().weight.requires_grad:
            return True
        return getattr(self.inner, "_require_grads_hook", None) is not None


def _cache(kwargs: dict[str, Any]) -> Any:
    """The key-value cache of a forward: transformers renamed ``past_key_values`` to ``cache`` in 5.24."""
    return next((kwargs[name] for name in ("cache", "past_key_values") if kwargs.get(name) is not None), None)


def _named(lora: LoraSpec, architecture: Architecture) -> LoraSpec:
    """The spec as a user would write it: PEFT spells ``all-linear`` out, layer by layer."""
    layers = None if lora.layers == tuple(range(architecture.layers)) else lora.layers
    every = {name for name in linear_names(architecture) if name != "lm_head"}
    targets = "all-linear" if layers is None and set(lora.targets) == every else lora.targets
    return LoraSpec(lora.rank, targets, layers)


def _fused_positions(ids: Any, labels: Any) -> int:
    """Positions that TRL's fused head scores: those with a label where Triton runs it, all but the last elsewhere."""
    from transformers.utils import is_triton_available

    if ids.device.type in ("cuda", "xpu") and is_triton_available():
        return int((labels[:, 1:] != -100).sum())
    return int(ids.shape[0]) * (int(ids.shape[1]) - 1)


def _own_lengths(ids: Any, kwargs: dict[str, Any]) -> list[Length]:
    """``(tokens, completion tokens)`` of each row without its padding.

    The completion is where labels are, or within the last positions kept (``logits_to_keep`` is one more than the
    completion, for the token that predicts its first); a caller who says neither gets the head everywhere.
    """
    rows, width = int(ids.shape[0]), int(ids.shape[1])
    mask: Any = kwargs.get("attention_mask")
    two_dimensional = mask is not None and getattr(mask, "ndim", 0) == 2
    tokens = mask.sum(1).tolist() if two_dimensional else [width] * rows
    labels, keep = kwargs.get("labels"), kwargs.get("logits_to_keep")
    if labels is not None:
        scored = (labels[:, 1:] != -100).sum(1).tolist()
    elif isinstance(keep, int) and keep > 1:
        scored = mask[:, 1 - keep :].sum(1).tolist() if two_dimensional else [keep - 1] * rows
    else:
        scored = tokens
    return [(max(int(n), 1), min(int(k), max(int(n), 1))) for n, k in zip(tokens, scored, strict=True)]
