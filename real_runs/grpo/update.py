"""The learning phase of one step: reference and old log-probs where they are needed, then the passes.

One optimiser step per pass. The first pass needs no old log-probs, since the policy is still the one that sampled;
samples that come again get one old-log-prob forward before anything moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from race.flops import CostFunctions
from real_runs.config import RunOptions
from real_runs.grpo.batch import collate, micro_batches
from real_runs.grpo.logprobs import token_logprobs
from real_runs.grpo.loss import LossSpec, grpo_loss
from real_runs.grpo.pricing import Tally
from real_runs.policy import Policy
from real_runs.rollout._base import Sample, Sampling

Row = npt.NDArray[np.float32]


@dataclass
class Learner:
    """What the learning phase works with; one per run.

    Attributes
    ----------
    costs
        Attention ``full``: for the executed count.
    """

    policy: Policy
    optimizer: torch.optim.Optimizer
    options: RunOptions
    sampling: Sampling
    costs: CostFunctions
    kl: bool

    def logprobs(self, samples: Sequence[Sample], indices: Sequence[int], tally: Tally, *, adapter: bool
                 ) -> dict[int, Row]:
        """Log-probs of the tokens of ``samples[i]``, without gradients, for each i of ``indices``."""
        found: dict[int, Row] = {}
        with torch.inference_mode():
            for chunk in micro_batches(samples, indices, self.options.micro_batch_tokens):
                batch = collate([samples[i] for i in chunk], self.policy.device)
                rows = token_logprobs(self.policy, batch, self.sampling, adapter=adapter).logp.cpu().numpy()
                for i, row in zip(chunk, rows, strict=True):
                    found[i] = row[: len(samples[i].token_ids)]
                tally.add_pass(rows=len(chunk), width=batch.width, logits=len(batch.rows),
                               kind="forward" if adapter else "forward_base")
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
    for number, indices in enumerate(passes):
        spec = _spec(learner, samples, indices)
        learner.optimizer.zero_grad(set_to_none=True)
        loss_sum, entropy, mismatch = 0.0, 0.0, 0.0
        for chunk in micro_batches(samples, [int(i) for i in indices], learner.options.micro_batch_tokens):
            batch = collate([samples[i] for i in chunk], learner.policy.device)
            found = token_logprobs(learner.policy, batch, learner.sampling)
            sampled = batch.pad([samples[i].logprobs for i in chunk])
            behind = batch.pad([old[i] for i in chunk]) if number or compare_first else None
            parts = grpo_loss(
                found.logp,
                batch.mask,
                torch.tensor(advantages[chunk], dtype=found.logp.dtype, device=batch.mask.device),
                spec,
                old=behind,
                reference=batch.pad([reference[i] for i in chunk]) if learner.kl else None,
                weights=_weights(learner.options, found.logp.detach() if behind is None else behind, sampled),
            )
            parts.total.backward()
            loss_sum += float(parts.total.detach())
            entropy += float(found.entropy)
            sums["clip_fraction"] += float(parts.clipped)
            sums["kl"] += float(parts.kl)
            sums["ratio_drift"] += float(parts.ratio_drift)
            if number == 0:
                mismatch = max(mismatch, float(((found.logp.detach() - sampled).abs() * batch.mask).max()))
            tally.add_pass(rows=len(chunk), width=batch.width, logits=len(batch.rows), kind="update")
        parameters = list(learner.policy.parameters.values())
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, learner.options.grad_clip))
        tokens_seen += spec.tokens
        if number == 0:
            report.metrics |= {"loss": loss_sum, "entropy": entropy / spec.tokens, "grad_norm": norm,
                               "logprob_mismatch": mismatch}
        if not (math.isfinite(loss_sum) and math.isfinite(norm)):
            learner.optimizer.zero_grad(set_to_none=True)
            report.stable = False
            break
        learner.optimizer.step()
    report.metrics |= {name: value / max(tokens_seen, 1) for name, value in sums.items()}
    return report


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

