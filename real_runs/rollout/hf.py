"""Rollouts from the training model itself: an own batched sampling loop around any transformers causal LM.

What `generate` does and this loop leaves out: beams, stopping strings, logits processors, cache classes to choose
from. What it adds: log-probs of the sampled tokens, a group's prompt is read once, finished rows leave the batch, and
every matmul is tallied. Prompts of different lengths are padded on the left; equal lengths need no mask at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from race.flops import cost_functions
from real_runs.grpo.lanes import single_threaded_kernels
from real_runs.grpo.pricing import Tally
from real_runs.policy import Policy
from real_runs.rollout._base import Rollouts, Sample, Sampling
from real_runs.rollout.sampling import draw, uniforms

# Up to this many numbers per one-token forward, one thread works alone. A kernel is over soon after a second thread has
# woken up, so two idle cores gain little (75 ms a batch of 64 x 112 instead of 85), and where something else wants a
# core the barriers cost everything (seconds instead of 110 ms, beside six busy processes).
SMALL_FORWARD = 16_384
# Dropping rows copies the cache, so ended rows wait until they are an eighth of the batch.
LEAVE_SHARE = 0.125


class HFRollouts:
    """`RolloutBackend` on the policy's own weights: there is nothing to synchronise."""

    name = "hf"

    def __init__(self, policy: Policy, *, max_sequences: int) -> None:
        self._policy = policy
        self._max_sequences = max_sequences
        self._costs = cost_functions(policy.architecture, lora=policy.lora, attention="full")

    def refresh(self, step: int) -> None:
        """Nothing to do: these are the trained weights."""

    def close(self) -> None:
        """Nothing is held."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        share_prefill: bool = True,
        first: int = 0,
    ) -> Rollouts:
        """See `RolloutBackend.generate`."""
        draws = uniforms(range(first, first + len(prompts)), group_size, sampling.max_tokens, seed)
        tally = Tally(self._costs)
        groups: list[list[Sample]] = []
        chunk = max(1, self._max_sequences // group_size)
        hidden = self._policy.architecture.hidden
        small = self._policy.device.type == "cpu" and min(chunk, len(prompts)) * group_size * hidden <= SMALL_FORWARD
        with torch.inference_mode(), single_threaded_kernels() if small else nullcontext():
            for start in range(0, len(prompts), chunk):
                part = [tuple(p) for p in prompts[start : start + chunk]]
                rows = draws[start * group_size : (start + len(part)) * group_size]
                groups += self._batch(part, group_size, sampling, rows, share_prefill, tally)
        return Rollouts(groups, tally.flops)

    def _batch(
        self,
        prompts: list[tuple[int, ...]],
        group_size: int,
        sampling: Sampling,
        draws: Tensor,
        share_prefill: bool,
        tally: Tally,
    ) -> list[list[Sample]]:
        device = self._policy.device
        rows = len(prompts) * group_size
        read = prompts if share_prefill else [p for p in prompts for _ in range(group_size)]
        ids, mask = left_pad(read, device)
        width = ids.shape[1]
        cache = self._policy.cache(width + sampling.max_tokens)
        positions = torch.arange(width, device=device).expand(len(read), -1)
        if mask is not None:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self._policy.head(cache.forward(ids, positions, mask))
        tally.add(rows=len(read), new=width, seen=width, logits=len(read))
        position = positions[:, -1]
        if share_prefill:
            cache.repeat(group_size)
            logits = logits.repeat_interleave(group_size, 0)
            position = position.repeat_interleave(group_size, 0)
            mask = None if mask is None else mask.repeat_interleave(group_size, 0)

        tokens = torch.zeros(rows, sampling.max_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(rows, sampling.max_tokens, device=device)
        draws = draws.to(device)
        running = torch.arange(rows, device=device)
        # Rows still in the batch that have ended: they leave it together, once there are enough of them.
        ended = torch.zeros(rows, dtype=torch.bool, device=device)
        for t in range(sampling.max_tokens):
            token, logprob = draw(logits, draws[:, t] if len(running) == rows else draws[running, t], sampling)
            if len(running) == rows:
                tokens[:, t], logprobs[:, t] = token, logprob
            else:
                tokens[running, t], logprobs[running, t] = token, logprob
            if t + 1 == sampling.max_tokens:
                break
            ended = ended | (token == sampling.eos_id)
            gone = int(ended.sum())
            if gone == len(ended):
                break
            if gone >= LEAVE_SHARE * len(ended):
                keep = (~ended).nonzero()[:, 0]
                running, token, position, ended = running[keep], token[keep], position[keep], ended[keep]
                cache.select(keep)
                mask = None if mask is None else mask[keep]
            position = position + 1
            width += 1
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(running), 1)], 1)
            logits = self._policy.head(cache.forward(token[:, None], position[:, None], mask))
            tally.add(rows=len(running), new=1, seen=width, logits=len(running))
        return _samples(prompts, group_size, tokens, logprobs, sampling.eos_id)


def left_pad(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Token ids (B, longest) padded on the left with 0, and their mask; no mask when nothing is padded."""
    width = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    padded = bool((mask == 0).any())
    return ids.to(device), mask.to(device) if padded else None


def _samples(
    prompts: Sequence[tuple[int, ...]], group_size: int, tokens: Tensor, logprobs: Tensor, eos_id: int
) -> list[list[Sample]]:
    """Cut rows after their first EOS and put them back into groups."""
    is_eos = tokens == eos_id
    finished = is_eos.any(-1)
    lengths = torch.where(finished, is_eos.int().argmax(-1) + 1, tokens.shape[1]).tolist()
    all_tokens, all_logprobs, all_finished = tokens.tolist(), logprobs.float().cpu().numpy(), finished.tolist()
    groups = []
    for index, prompt in enumerate(prompts):
        group = []
        for row in range(index * group_size, (index + 1) * group_size):
            n = lengths[row]
            group.append(
                Sample(prompt, tuple(all_tokens[row][:n]), np.array(all_logprobs[row, :n]), all_finished[row])
            )
        groups.append(group)
    return groups
