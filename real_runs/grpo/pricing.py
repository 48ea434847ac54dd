"""FLOPs of each phase: what is charged, and what the matmuls really did.

charged   true lengths, no padding, attention over unmasked pairs only (``causal``). Budgets and records use this one:
          it does not depend on how a batch happened to be laid out.
executed  the same matmuls as they ran: padding included, attention over full score matrices. With eager attention it
          equals ``torch.utils.flop_counter`` to the integer, which is how the arithmetic is kept honest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from race.flops import Architecture, CostFunctions, cost_functions
from race.flops.work import Work, total
from race.recipe import Recipe

PHASES = ("search", "reward", "old_logprobs", "reference", "update")
LEARNING = ("old_logprobs", "reference", "update")


class Tally:
    """Adds up the executed FLOPs of forwards and updates (``costs`` with attention ``full``)."""

    def __init__(self, costs: CostFunctions) -> None:
        self._costs = costs
        self.flops = 0

    def add(self, *, rows: int, new: int, seen: int, logits: int) -> None:
        """A forward of ``rows`` x ``new`` tokens against ``seen`` keys, with the head at ``logits`` positions."""
        forward = self._costs.forward
        pairs = {w: 2 * rows * new * (seen if w is None else min(seen, w)) for w in forward.windows}
        self.flops += total(forward.rates, Work(rows * new, logits, pairs))

    def add_pass(self, *, rows: int, width: int, logits: int, kind: str) -> None:
        """A whole-sequence pass (``update``, ``forward`` or ``forward_base``) over a padded micro-batch."""
        cost = getattr(self._costs, kind)
        head = cost(1, 1) - cost(1, 0)
        self.flops += rows * cost(width, 0) + logits * head


@dataclass(frozen=True)
class Prices:
    """What is charged, on true lengths.

    Attributes
    ----------
    costs
        With attention ``causal``.
    share_prefill
        A group's prompt is read once.
    kl
        Reference log-probs are needed.
    recompute_old_logprobs
        Every trained sample gets old log-probs of its own, not only those that are used again.
    """

    costs: CostFunctions
    share_prefill: bool
    kl: bool
    recompute_old_logprobs: bool

    @classmethod
    def of(cls, architecture: Architecture, recipe: Recipe) -> Prices:
        """Prices of ``recipe`` on ``architecture``."""
        costs = cost_functions(
            architecture, lora=recipe.lora, attention="causal",
            gradient_checkpointing=recipe.gradient_checkpointing,
        )
        return cls(costs, recipe.prefix_caching, recipe.kl, recipe.recompute_old_logprobs)

    def search(self, prompt: int, completions: Sequence[int]) -> int:
        """One group: its prefill(s) and the decoding of every completion."""
        prefills = 1 if self.share_prefill else len(completions)
        return prefills * self.costs.prefill(prompt) + sum(self.costs.decode(prompt, c) for c in completions)

    def old_logprobs(self, prompt: int, completion: int) -> int:
        """One adapter-on forward, for a sample that is trained on again."""
        return self.costs.forward(prompt + completion, completion)

    def reference(self, prompt: int, completion: int) -> int:
        """One adapter-off forward, for a distinct trained sample; 0 without a KL penalty."""
        return self.costs.forward_base(prompt + completion, completion) if self.kl else 0

    def update(self, prompt: int, completion: int) -> int:
        """Forward, backward and recomputation of one trained sample."""
        return self.costs.update(prompt + completion, completion)

    def trained(self, prompt: int, completion: int, *, times: int) -> int:
        """Training on a sample once more, after ``times`` times before in this step: the update and what it needs."""
        cost = self.update(prompt, completion)
        if times == 0:
            cost += self.reference(prompt, completion)
        if times == (0 if self.recompute_old_logprobs else 1):
            cost += self.old_logprobs(prompt, completion)
        return cost
