"""FLOPs of a logged run, row by row and by phase, under one complete set of values.

Per row of the log (arrays have shape (n,), n rows)

    g     generation batches in the steps that the row covers
    S     completions of a batch that are trained on; x S are generated (x > 1 when some are thrown away)
    T     samples trained on in these steps, passes counted: covered steps x S x passes / period
    p, c  mean prompt and completion length

    search    = g x S (prefill(p) [/ G with prefix caching] + decode(p, c))
    learning  = T update(p + c) + g S (old log-probs + reference log-probs)
    reward    = g x S scorer(p + c)

Attention is quadratic, so the mean of a cost is not the cost of the mean: lengths are split into two equally
weighted values around their mean with the assumed variance, which is exact for a quadratic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from race.allocation import Allocation, Attention
from race.cards.runlog import FloatArray, RunLog
from race.errors import InvalidInput
from race.flops import Architecture, CostFunctions, LoraSpec, cost_functions
from race.flops.costs import SequenceCost


@dataclass(frozen=True)
class Work:
    """What was done in each row, arrays of shape (n,); names as in the module's description."""

    prompt: FloatArray
    completion: FloatArray
    batches: FloatArray
    samples: FloatArray
    generated: FloatArray
    trained: FloatArray

    @property
    def kept(self) -> FloatArray:
        """g S: distinct completions that are trained on."""
        return self.batches * self.samples


@dataclass(frozen=True)
class Spent:
    """FLOPs by part and row, each of shape (n,)."""

    prefill: FloatArray
    decode: FloatArray
    update: FloatArray
    old_logprobs: FloatArray
    reference: FloatArray
    reward: FloatArray
    redone: float = 0.0

    @property
    def search(self) -> FloatArray:
        """Prefill and decoding."""
        return self.prefill + self.decode

    @property
    def learning(self) -> FloatArray:
        """Update, old and reference log-probs."""
        return self.update + self.old_logprobs + self.reference

    @property
    def total(self) -> FloatArray:
        """All phases, by row."""
        return self.search + self.learning + self.reward

    @property
    def allocation(self) -> Allocation:
        """The whole run, with the steps that were done twice."""
        times = 1 + self.redone
        return Allocation(
            float(self.search.sum()) * times,
            float(self.learning.sum()) * times,
            float(self.reward.sum()) * times,
        )


def work_of(log: RunLog, values: Mapping[str, Any]) -> Work:
    """How much was generated and trained on in each row.

    Raises
    ------
    InvalidInput
        The stated number of samples cannot be: their completions alone have more tokens than were logged.
    """
    n = len(log.steps)
    batches = _batches(log, values["period"])
    stated, c, p = (values.get(name) for name in ("samples", "completion_tokens", "prompt_tokens"))
    samples = (
        _logged_samples(log) if stated is None else np.full(n, 1.0 if isinstance(stated, str) else stated)
    )
    completion = np.full(n, float(c)) if c is not None else _completion(log, values, batches, samples)
    if stated == "from tokens" and p is not None:
        samples = _tokens_per_batch(log, batches) / (completion + p)
    prompt = np.full(n, float(p)) if p is not None else _prompt(log, values, batches, samples, completion)
    completion = np.maximum(completion * values.get("between", 1.0), 1.0)
    kept = batches * samples
    return Work(
        prompt=np.maximum(prompt, 1.0),
        completion=completion,
        batches=batches,
        samples=samples,
        generated=kept * _made_per_kept(log, values),
        trained=log.covered * samples * values["passes"] / values["period"],
    )


def _made_per_kept(log: RunLog, values: Mapping[str, Any]) -> FloatArray | float:
    """Completions generated for each that is trained on (dynamic sampling)."""
    if log.has("kept_share"):
        rejected: FloatArray = 1 / np.clip(log.filled("kept_share"), 1e-3, 1.0)
        return rejected
    if log.has("generation_batches"):
        batches: FloatArray = np.maximum(log.filled("generation_batches") * values.get("generated", 1.0), 1.0)
        return batches
    return 1.0


def _batches(log: RunLog, period: float) -> FloatArray:
    """Generation batches in each row: step k begins batch ceil(k / period)."""
    ends = log.steps.astype(np.float64)
    starts = ends - log.covered
    found: FloatArray = np.ceil(ends / period - 1e-9) - np.ceil(starts / period - 1e-9)
    return found


def _logged_samples(log: RunLog) -> FloatArray:
    return log.filled("samples_step" if log.has("samples_step") else "samples_trained")


def _completion(
    log: RunLog, values: Mapping[str, Any], batches: FloatArray, samples: FloatArray
) -> FloatArray:
    if log.has("completion_mean"):
        return log.filled("completion_mean")
    if values.get("completion_share") is not None:
        whole = _tokens_per_batch(log, batches)
        found: FloatArray = np.maximum(whole / np.maximum(samples, 1e-9) * values["completion_share"], 1.0)
        return found
    per_sample: FloatArray = log.filled("tokens_completion_step") / np.maximum(samples, 1e-9)
    return per_sample


def _prompt(
    log: RunLog, values: Mapping[str, Any], batches: FloatArray, samples: FloatArray, completion: FloatArray
) -> FloatArray:
    """Mean prompt length: logged, or what the tokens leave beside the completions."""
    if log.has("prompt_mean"):
        return log.filled("prompt_mean")
    if log.has("tokens_prompt_step"):
        return np.asarray(log.filled("tokens_prompt_step") / np.maximum(samples, 1e-9), dtype=np.float64)
    if log.has("total_mean"):
        return np.asarray(log.filled("total_mean") - completion, dtype=np.float64)
    tokens = _tokens_per_batch(log, batches)
    prompt: FloatArray = tokens / np.maximum(samples, 1e-9) - completion
    mean = float(np.average(prompt, weights=np.maximum(batches, 1e-9)))
    if mean < 1 and values.get("completion_share") is None:
        raise InvalidInput(
            f"{log.file}: {samples[0]:g} completions of {completion.mean():.1f} tokens a batch are more than the "
            f"{tokens.mean():,.0f} tokens that {log.keys['tokens_total']} counts; allowed are fewer samples: check the "
            "group size, the batch size and the number of processes"
        )
    # Batches differ, and means over several steps are rounded: no single row may fall below one token.
    return prompt


def _tokens_per_batch(log: RunLog, batches: FloatArray) -> FloatArray:
    """Tokens of one generation batch, from the running count of tokens."""
    count = log.series["tokens_total"]
    at = np.flatnonzero(np.isfinite(count))
    done = np.cumsum(batches)
    tokens, per = np.diff(count[at], prepend=0.0), np.diff(done[at], prepend=0.0)
    # The counter starts again with some resumed runs; what it shows then is what was counted since.
    tokens = np.where(tokens < 0, count[at], tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(per > 0, tokens / per, np.nan)
    if int(log.steps[0]) > int(log.covered[0]) and len(each) > 1:
        each[0] = np.nan  # the log starts in the middle of the run: what came before is in the first count
    good = np.isfinite(each)
    if not good.any():
        raise InvalidInput(
            f"{log.file}: {log.keys['tokens_total']}: found no two counts to compare; allowed are at least 2"
        )
    where = np.clip(np.searchsorted(at[good], np.arange(len(count)), side="right") - 1, 0, None)
    found: FloatArray = each[good][where]
    return found


@lru_cache(maxsize=256)
def costs_of(
    arch: Architecture, lora: LoraSpec | None, attention: Attention, checkpointing: bool
) -> CostFunctions:
    """`race.flops.cost_functions`, remembered."""
    return cost_functions(arch, lora=lora, attention=attention, gradient_checkpointing=checkpointing)


def spent(
    log: RunLog, policy: Architecture, values: Mapping[str, Any], *, attention: Attention = "causal"
) -> Spent:
    """FLOPs that the samples needed, each at its own length."""
    work = work_of(log, values)
    costs = costs_of(policy, values["lora"], attention, values["checkpointing"])
    p, c = work.prompt, work.completion
    var_c, var_p = _variances(log, work, values)
    n, var_n = p + c, var_c + var_p
    zeros = np.zeros_like(p)
    scorer = values["reward_model"]
    reward = zeros
    if scorer is not None:
        price = costs_of(scorer, None, attention, False).forward
        read = n - _unread_ends(log)
        reward = work.generated * (_mean(price, read, var_n) + _head(price) * read)
    prefills = work.generated / (values["group_size"] if values["prefix_caching"] else 1)
    kept = work.kept
    return Spent(
        prefill=prefills * (_mean(costs.prefill.sequence, p, var_p) + _head(costs.prefill.sequence)),
        decode=work.generated * _decode(costs, p, c, var_c),
        update=_update(log, work, values, costs, var_n),
        old_logprobs=kept * (_mean(costs.forward, n, var_n) + _head(costs.forward) * c)
        if values["old_logprobs"]
        else zeros,
        reference=kept * (_mean(costs.forward_base, n, var_n) + _head(costs.forward_base) * c)
        if values["reference"]
        else zeros,
        reward=reward,
        redone=log.redone / max(log.total_steps, 1),
    )


def _update(
    log: RunLog, work: Work, values: Mapping[str, Any], costs: CostFunctions, variance: FloatArray
) -> FloatArray:
    """Updates; with masked truncation a cut completion teaches nothing, and only its prompt is read."""
    p, c = work.prompt, work.completion
    n = p + c
    share = values.get("masked", 0.0)
    if share == 0:
        whole: FloatArray = work.trained * (_mean(costs.update, n, variance) + _head(costs.update) * c)
        return whole
    cut = np.clip(log.filled("truncated_share"), 0, 1) if share is None else np.full_like(p, share)
    ended = np.maximum(log.filled("completion_ended"), 1.0) if log.has("completion_ended") else c
    each = (1 - cut) * (_mean(costs.update, p + ended, np.zeros_like(p)) + _head(costs.update) * ended)
    found: FloatArray = work.trained * (each + cut * _mean(costs.update, p, np.zeros_like(p)))
    return found


def _unread_ends(log: RunLog) -> FloatArray | float:
    """Tokens of a completion that a scorer does not read: TRL hands it text, without the end-of-sequence token."""
    if log.trainer != "trl":
        return 0.0
    return 1 - np.clip(log.filled("truncated_share"), 0, 1) if log.has("truncated_share") else 1.0


def _variances(log: RunLog, work: Work, values: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Variance of completion and prompt lengths.

    With bounds a <= x <= b the variance is at most (b - mean)(mean - a) (Bhatia and Davis 2000). Where a log has no
    bounds, completions are taken to reach 4 times their mean, and prompts to vary by at most their mean.
    """
    share = values.get("spread", 0.0)
    c, p = work.completion, work.prompt
    high = np.maximum(log.filled("completion_max"), c) if _usable(log, values, "completion_max") else 4 * c
    low = (
        np.clip(log.filled("completion_min"), 0, c)
        if _usable(log, values, "completion_min")
        else np.minimum(1.0, c)
    )
    var_c = share * (high - c) * (c - low)
    if log.has("prompt_max") and values.get("prompt_tokens") is None:
        floor = np.clip(log.filled("prompt_min"), 0, p) if log.has("prompt_min") else np.minimum(1.0, p)
        return var_c, share * np.maximum(log.filled("prompt_max") - p, 0) * (p - floor)
    return var_c, (share * p) ** 2


def _usable(log: RunLog, values: Mapping[str, Any], name: str) -> bool:
    """Logged bounds belong to logged means."""
    return log.has(name) and values.get("completion_tokens") is None


def _two_points(
    mean: FloatArray, variance: FloatArray, least: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values below and above ``mean`` with this variance, the lower at least ``least``; weight of the lower."""
    sd = np.sqrt(np.maximum(variance, 0.0))
    room = np.maximum(mean - least, 0.0)
    tilt = np.ones_like(sd)  # 1: symmetric
    np.divide(room, sd, out=tilt, where=sd > room)
    tilt = np.maximum(tilt, 1e-3)
    below, above = np.maximum(mean - sd * tilt, least), mean + sd / tilt
    weight = 1 / (1 + tilt**2)
    return below, above, weight


def _mean(cost: SequenceCost, n: FloatArray, variance: FloatArray) -> FloatArray:
    """Mean cost of sequences of this mean length and variance, without the head."""
    below, above, weight = _two_points(n, variance, 1.0)
    found: FloatArray = weight * cost(below) + (1 - weight) * cost(above)
    return found


def _decode(costs: CostFunctions, p: FloatArray, c: FloatArray, variance: FloatArray) -> FloatArray:
    below, above, weight = _two_points(c, variance, 1.0)
    found: FloatArray = weight * costs.decode(p, below) + (1 - weight) * costs.decode(p, above)
    return found


def _head(cost: SequenceCost) -> int:
    """The head at one position."""
    return cost(1, 1) - cost(1, 0)


def executed(
    log: RunLog, policy: Architecture, values: Mapping[str, Any], *, attention: Attention = "full"
) -> Spent:
    """FLOPs of the padded batches that `transformers` generation and training execute for these samples.

    Every row of a batch is as long as its longest prompt plus its longest completion: a finished row is decoded on
    until the last one is done.
    """
    work = work_of(log, values)
    costs = costs_of(policy, values["lora"], attention, values["checkpointing"])
    p = work.prompt * values["padded_prompt"]
    c = np.maximum(log.filled("completion_max"), work.completion)
    n = p + c
    head = costs.forward
    zeros = np.zeros_like(p)
    scorer = values["reward_model"]
    reward = zeros
    if scorer is not None:
        price = costs_of(scorer, None, attention, False).forward
        read = n - _unread_ends(log)
        reward = work.generated * (price(read) + _head(price) * read)
    recomputed = _head(costs.forward) if values["fused_head"] else 0
    positions = work.completion if values["fused_head"] else c + 1
    kept = work.kept
    return Spent(
        prefill=work.generated * costs.prefill(p),
        decode=work.generated * costs.decode(p, c),
        update=work.trained * (costs.update(n) + (_head(costs.update) + recomputed) * positions),
        old_logprobs=kept * (head(n) + _head(head) * positions) if values["old_logprobs"] else zeros,
        reference=kept * (costs.forward_base(n) + _head(costs.forward_base) * positions)
        if values["reference"]
        else zeros,
        reward=reward,
        redone=log.redone / max(log.total_steps, 1),
    )
