"""The learning phase of one step: reference and old log-probs where they are needed, then the passes.

One optimiser step per pass. The first pass needs no old log-probs, since the policy is still the one that sampled;
samples that come again get one old-log-prob forward before anything moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from race.flops import CostFunctions
from real_runs.config import RunOptions
from real_runs.grpo.batch import collate, micro_batches
from real_runs.grpo.lanes import Lanes
from real_runs.grpo.logprobs import token_logprobs
from real_runs.grpo.loss import LossSpec, grpo_loss
from real_runs.grpo.pricing import Tally
from real_runs.grpo.ranks import ALONE, Ranks
from real_runs.policy import Policy
from real_runs.rollout._base import Sample, Sampling

Row = npt.NDArray[np.float32]
R = TypeVar("R")


@dataclass
class Learner:
    """What the learning phase works with; one per run.

    Attributes
    ----------
    costs
        Attention ``full``: for the executed count.
    lanes, ranks
        Micro-batches that run side by side, in threads of this process and in processes.
    """

    policy: Policy
    optimizer: torch.optim.Optimizer
    options: RunOptions
    sampling: Sampling
    costs: CostFunctions
    kl: bool
    lanes: Lanes = field(default_factory=lambda: Lanes(1))
    ranks: Ranks = ALONE

    def chunks(self, samples: Sequence[Sample], indices: Sequence[int]) -> list[list[int]]:
        """Micro-batches of ``indices``: within the limit, and at least one for each lane of each process."""
        lanes = self.lanes.count * self.ranks.count
        limit = self.options.micro_batch_tokens // self.lanes.count
        if lanes == 1:
            return list(micro_batches(samples, indices, limit))
        lengths = [len(samples[i].prompt_ids) + len(samples[i].token_ids) for i in indices]
        even = -(-sum(lengths) // lanes)
        # An even share, or as little above it as makes the micro-batches come out in full rounds.
        for slack in (0, max(lengths) // 2, max(lengths), 2 * max(lengths)):
            chunks = list(micro_batches(samples, indices, min(limit, even + slack)))
            if len(chunks) % lanes == 0:
                break
        return chunks

    def spread(self, work: Callable[[list[int]], R], chunks: list[list[int]]) -> list[R]:
        """``work`` on every micro-batch, each in one of the processes; results in order, everywhere."""
        _, mine = self.ranks.part(chunks)
        return [result for part in self.ranks.gathered(self.lanes.map(work, mine)) for result in part]

    def logprobs(
        self, samples: Sequence[Sample], indices: Sequence[int], tally: Tally, *, adapter: bool
    ) -> dict[int, Row]:
        """Log-probs of the tokens of ``samples[i]``, without gradients, for each i of ``indices``."""
        chunks = self.chunks(samples, indices)

        def work(chunk: list[int]) -> tuple[Row, int, int]:
            batch = collate([samples[i] for i in chunk], self.policy.device)
            with torch.inference_mode():
                rows = token_logprobs(self.policy, batch, self.sampling).logp.cpu().numpy()
            return rows, batch.width, len(batch.rows)

        found: dict[int, Row] = {}
        kind = "forward" if adapter else "forward_base"
        with self.policy.adapter(adapter):
            results = self.spread(work, chunks)
        for chunk, (rows, width, logits) in zip(chunks, results, strict=True):
            for i, row in zip(chunk, rows, strict=True):
                found[i] = row[: len(samples[i].token_ids)]
            tally.add_pass(rows=len(chunk), width=width, logits=logits, kind=kind)
        return found


@dataclass
class PassReport:
    """What the passes of one step did.

    Attributes
    ----------
    stable
        False when a loss or gradient was not finite; that pass took no optimiser step.
    metrics
        Averages per token or per pass, for logging.
    """

    stable: bool = True
    metrics: dict[str, float] = field(default_factory=dict)


def run_passes(
    learner: Learner,
    samples: Sequence[Sample],
    advantages: npt.NDArray[np.float64],
    passes: Sequence[npt.NDArray[np.int64]],
    *,
    old: dict[int, Row],
    reference: dict[int, Row],
    compare_first: bool,
    tally: Tally,
    rate: float,
) -> PassReport:
    """Take one optimiser step per pass, at learning rate ``rate``.

    ``old`` and ``reference`` hold log-probs by sample. The first pass is the old policy itself, so it uses ``old`` only
    when ``compare_first`` asks for it.
    """
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    report = PassReport()
    sums = {"clip_fraction": 0.0, "kl": 0.0, "ratio_drift": 0.0}
    tokens_seen = 0
    parameters = list(learner.policy.parameters.values())
    for number, indices in enumerate(passes):
        spec = _spec(learner, samples, indices)
        share = _Share(
            learner, samples, advantages, spec, parameters,
            old=old if number or compare_first else None, reference=reference if learner.kl else None,
        )
        chunks = learner.chunks(samples, [int(i) for i in indices])
        _, mine = learner.ranks.part(chunks)
        local = learner.lanes.map(share, mine)
        gradients = _added([g for g, _ in local]) if local else [torch.zeros_like(p) for p in parameters]
        learner.ranks.add(gradients)
        done = [result for part in learner.ranks.gathered([r for _, r in local]) for result in part]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for chunk, result in zip(chunks, done, strict=True):
            tally.add_pass(rows=len(chunk), width=result.width, logits=result.logits, kind="update")
            for name in sums:
                sums[name] += result.metrics[name]
        loss = sum(result.metrics["loss"] for result in done)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, learner.options.grad_clip))
        tokens_seen += spec.tokens
        if number == 0:
            report.metrics |= {
                "loss": loss,
                "entropy": sum(result.metrics["entropy"] for result in done) / spec.tokens,
                "grad_norm": norm,
                "logprob_mismatch": max(result.metrics["mismatch"] for result in done),
            }
        stable = math.isfinite(loss) and math.isfinite(norm)
        if stable:
            learner.optimizer.step()
        learner.optimizer.zero_grad(set_to_none=True)
        if not stable:
            report.stable = False
            break
    report.metrics |= {name: value / max(tokens_seen, 1) for name, value in sums.items()}
    if learner.policy.device.type == "cuda":
        # The phase is timed by whoever called: let the last optimiser step end first.
        torch.cuda.synchronize(learner.policy.device)
    return report


@dataclass(frozen=True)
class _Result:
    """One micro-batch: sums over its tokens, and its padded shape."""

    metrics: dict[str, float]
    width: int
    logits: int


@dataclass(frozen=True)
class _Share:
    """A micro-batch's share of one pass."""

    learner: Learner
    samples: Sequence[Sample]
    advantages: npt.NDArray[np.float64]
    spec: LossSpec
    parameters: list[torch.nn.Parameter]
    old: dict[int, Row] | None
    reference: dict[int, Row] | None

    def __call__(self, chunk: list[int]) -> tuple[list[Tensor], _Result]:
        """Forward and backward of the samples ``chunk``; gradients in the order of the parameters."""
        batch = collate([self.samples[i] for i in chunk], self.learner.policy.device)
        found = token_logprobs(self.learner.policy, batch, self.learner.sampling)
        sampled = batch.pad([self.samples[i].logprobs for i in chunk])
        behind = None if self.old is None else batch.pad([self.old[i] for i in chunk])
        present = found.logp.detach()
        parts = grpo_loss(
            found.logp,
            batch.mask,
            torch.tensor(self.advantages[chunk], dtype=found.logp.dtype, device=batch.mask.device),
            self.spec,
            old=behind,
            reference=None if self.reference is None else batch.pad([self.reference[i] for i in chunk]),
            weights=_weights(self.learner.options, present if behind is None else behind, sampled),
        )
        gradients = self._gradients(parts.total)
        metrics = {
            "loss": float(parts.total.detach()),
            "entropy": float(found.entropy),
            "clip_fraction": float(parts.clipped),
            "kl": float(parts.kl),
            "ratio_drift": float(parts.ratio_drift),
            "mismatch": float(((present - sampled).abs() * batch.mask).max()),
        }
        return gradients, _Result(metrics, batch.width, len(batch.rows))

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        found: Sequence[Tensor | None]
        if self.learner.policy.gradient_checkpointing:
            # Embeddings require grad there, and `grad` would leave theirs out: less work than every trainer does,
            # and than the recipe is charged for.
            loss.backward()
            found = [p.grad for p in self.parameters]
            for parameter in self.parameters:
                parameter.grad = None
        else:
            # Not `backward`: lanes must not add into the same `.grad`.
            found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found, strict=True)]


def _added(gradients: list[list[Tensor]]) -> list[Tensor]:
    """Gradients summed over micro-batches, first to last."""
    total = gradients[0]
    for more in gradients[1:]:
        torch._foreach_add_(total, more)
    return total


def _spec(learner: Learner, samples: Sequence[Sample], indices: npt.NDArray[np.int64]) -> LossSpec:
    options = learner.options
    return LossSpec(
        loss=options.loss,
        ratio_level=options.ratio_level,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        beta=options.beta if learner.kl else 0.0,
        unbiased_kl=options.unbiased_kl,
        max_completion_tokens=learner.sampling.max_tokens,
        samples=len(indices),
        tokens=sum(len(samples[int(i)].token_ids) for i in indices),
    )


def _weights(options: RunOptions, trained: Tensor, sampled: Tensor) -> Tensor | None:
    """Truncated importance weights of the training policy over the rollout engine, per token."""
    if options.importance_cap is None:
        return None
    return (trained - sampled).exp().clamp(max=options.importance_cap)

