"""What one pass through one model costs, as the forward hooks see it: rows, tokens, cached tokens, head positions.

The arithmetic is `race.flops`; here it is only taken apart into the body (embedding to last hidden state) and the
head, because trainers run them apart: TRL's fused head scores other positions than the model's own would, and
multiplies once more in its backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from race.flops import Architecture, CostFunctions, LoraSpec, cost_functions
from race.integrations.tally import ATTENTIONS, Attention, Price

#: ``(tokens, head positions)`` of one sequence.
Length = tuple[int, int]

_REMEMBERED = 2**16


@dataclass(frozen=True)
class Mode:
    """How a model is set while a pass runs.

    Attributes
    ----------
    lora
        The active adapter; ``None`` when there is none or it is switched off.
    trained
        Whether the pass is followed by a backward. Full fine-tuning is ``trained`` without ``lora``.
    checkpointing, reentrant, inputs_require_grad
        As in `race.flops.update_flops`; they matter when ``trained``.
    """

    lora: LoraSpec | None = None
    trained: bool = False
    checkpointing: bool = False
    reentrant: bool = False
    inputs_require_grad: bool = False


class ModelPrices:
    """Prices of one model's passes; both attention conventions at once."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        # Sequence- and token-classification heads run at every position, an LM head where it is asked to.
        self.head_everywhere = architecture.head not in ("lm", "none")
        self._costs: dict[tuple[Mode, Attention], CostFunctions] = {}
        # Decoding asks for the same few thousand prices at every step.
        self._bodies: dict[tuple[Mode, int, int], Price] = {}
        self._heads: dict[tuple[Mode, bool], Price] = {}

    def _of(self, mode: Mode, attention: Attention) -> CostFunctions:
        key = (mode, attention)
        if key not in self._costs:
            self._costs[key] = cost_functions(
                self.architecture,
                lora=mode.lora,
                attention=attention,
                gradient_checkpointing=mode.checkpointing,
                use_reentrant=mode.reentrant,
                input_require_grads=mode.inputs_require_grad,
            )
        return self._costs[key]

    def sequence(self, mode: Mode, lengths: Sequence[Length]) -> Price:
        """Whole sequences at their own lengths, head included."""
        return {a: sum(self._whole(mode, a, n, k) for n, k in lengths) for a in ATTENTIONS}

    def _whole(self, mode: Mode, attention: Attention, tokens: int, positions: int) -> int:
        costs = self._of(mode, attention)
        return (costs.update if mode.trained else costs.forward)(tokens, positions)

    def body(self, mode: Mode, tokens: int, past: int = 0) -> Price:
        """One row of ``tokens`` new tokens on top of ``past`` cached ones, without the head."""
        key = (mode, tokens, past)
        if key not in self._bodies:
            if len(self._bodies) >= _REMEMBERED:
                self._bodies.clear()
            self._bodies[key] = {a: self._body(mode, a, tokens, past) for a in ATTENTIONS}
        return self._bodies[key]

    def _body(self, mode: Mode, attention: Attention, tokens: int, past: int) -> int:
        costs = self._of(mode, attention)
        if past == 0:
            return self._whole(mode, attention, tokens, 0)
        if tokens == 1:
            return costs.decode(past, 2) - self._head(mode, attention)
        if attention == "causal":
            return costs.forward(past + tokens) - costs.forward(past)
        pair = (costs.forward(2) - 2 * costs.forward(1)) // 2
        return costs.forward(tokens) + pair * tokens * past

    def head(self, mode: Mode, *, recomputed: bool = False) -> Price:
        """The head at one position; ``recomputed``: its logits are multiplied again in the backward."""
        key = (mode, recomputed)
        if key not in self._heads:
            again = {a: self._forward_head(mode, a) if recomputed else 0 for a in ATTENTIONS}
            self._heads[key] = {a: self._head(mode, a) + again[a] for a in ATTENTIONS}
        return self._heads[key]

    def _head(self, mode: Mode, attention: Attention) -> int:
        return self._whole(mode, attention, 1, 1) - self._whole(mode, attention, 1, 0)

    def _forward_head(self, mode: Mode, attention: Attention) -> int:
        costs = self._of(mode, attention)
        return costs.forward(1, 1) - costs.forward(1, 0)

    def rollout(self, mode: Mode, samples: Sequence[tuple[int, int]], prefills: Sequence[int]) -> Price:
        """Prompts read (``prefills``: their lengths) and ``(prompt, completion)`` samples decoded."""
        total: dict[Attention, int] = {}
        for attention in ATTENTIONS:
            costs = self._of(mode, attention)
            decoded = sum(costs.decode(p, c) for p, c in samples if c)
            total[attention] = decoded + sum(costs.prefill(p) for p in prefills)
        return total
