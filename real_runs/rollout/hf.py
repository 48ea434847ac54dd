"""Rollouts from the training model itself: an own batched sampling loop around any transformers causal LM.

What `generate` does and this loop leaves out: beams, stopping strings, logits processors, cache classes to choose
from. What it adds: log-probs of the sampled tokens, a group's prompt is read once, finished rows leave the batch, and
every matmul is tallied. Prompts of different lengths are padded on the left; equal lengths need no mask at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from race.flops import cost_functions
from real_runs.grpo.pricing import Tally
from real_runs.policy import Policy
from real_runs.rollout._base import Rollouts, Sample, Sampling
from real_runs.rollout.sampling import draw, uniforms


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
    ) -> Rollouts:
        """See `RolloutBackend.generate`."""
        draws = uniforms(len(prompts) * group_size, sampling.max_tokens, seed)
        tally = Tally(self._costs)
        groups: list[list[Sample]] = []
        chunk = max(1, self._max_sequences // group_size)
        with torch.inference_mode():
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
        if not share_prefill:
            prompts = [p for p in prompts for _ in range(group_size)]
        ids, mask = left_pad(prompts, device)
        cache = DynamicCache(config=self._policy.causal_lm.config)
        logits, positions = self._prefill(ids, mask, cache, tally)
        if share_prefill:
            cache.batch_repeat_interleave(group_size)
            logits = logits.repeat_interleave(group_size, 0)
            positions = positions.repeat_interleave(group_size, 0)
            mask = None if mask is None else mask.repeat_interleave(group_size, 0)
        running = torch.arange(rows, device=device)
        tokens = torch.zeros(rows, sampling.max_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(rows, sampling.max_tokens, device=device)
        lengths = torch.full((rows,), sampling.max_tokens, device=device)
        finished = torch.zeros(rows, dtype=torch.bool, device=device)
        draws = draws.to(device)
        width = ids.shape[1]
        for t in range(sampling.max_tokens):
            token, logprob = draw(logits, draws[running, t], sampling)
            tokens[running, t] = token
            logprobs[running, t] = logprob
            ended = token == sampling.eos_id
            lengths[running[ended]] = t + 1
            finished[running[ended]] = True
            if t + 1 == sampling.max_tokens:
                break
            if bool(ended.any()):
                keep = (~ended).nonzero()[:, 0]
                if not len(keep):
                    break
                running, token, positions = running[keep], token[keep], positions[keep]
                cache.batch_select_indices(keep)
                mask = None if mask is None else mask[keep]
            positions = positions + 1
            width += 1
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(running), 1)], 1)
            output = self._policy.hidden(
                token[:, None],
                attention_mask=mask,
                position_ids=positions[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            logits = self._policy.head(output.last_hidden_state[:, 0])
            tally.add(rows=len(running), new=1, seen=width, logits=len(running))
        return _samples(prompts if share_prefill else prompts[::group_size], group_size, tokens, logprobs,
                        lengths, finished)

    def _prefill(
        self, ids: Tensor, mask: Tensor | None, cache: DynamicCache, tally: Tally
    ) -> tuple[Tensor, Tensor]:
        rows, width = ids.shape
        if mask is None:
            positions = torch.arange(width, device=ids.device).expand(rows, -1)
        else:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
        output = self._policy.hidden(
            ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        tally.add(rows=rows, new=width, seen=width, logits=rows)
        return self._policy.head(output.last_hidden_state[:, -1]), positions[:, -1]


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
    prompts: Sequence[tuple[int, ...]],
    group_size: int,
    tokens: Tensor,
    logprobs: Tensor,
    lengths: Tensor,
    finished: Tensor,
) -> list[list[Sample]]:
    all_tokens, all_logprobs = tokens.tolist(), logprobs.float().cpu().numpy()
    all_lengths, all_finished = lengths.tolist(), finished.tolist()
    groups = []
    for index, prompt in enumerate(prompts):
        group = []
        for row in range(index * group_size, (index + 1) * group_size):
            n = all_lengths[row]
            group.append(
                Sample(prompt, tuple(all_tokens[row][:n]), np.array(all_logprobs[row, :n]), all_finished[row])
            )
        groups.append(group)
    return groups
