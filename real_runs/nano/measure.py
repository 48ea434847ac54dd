"""What the nano models can do, in numbers: pass@1 per level for policies, accuracy for reward models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache, PreTrainedModel

from real_runs.contracts import Completion, Problem
from real_runs.nano.alphabet import EOS_ID, decode
from real_runs.nano.corpora import labelled
from real_runs.nano.models import REWARD_MODELS, load_policy, load_prm
from real_runs.nano.prm import step_ends, step_minima, token_probabilities
from real_runs.nano.rules import StepJudge
from real_runs.nano.task import HELDOUT_LEVELS, NanoTask
from real_runs.rollout.caches import cache_argument

PROBLEMS_PER_LEVEL = 400


@torch.inference_mode()
def complete(
    model: PreTrainedModel, problems: Sequence[Problem], *, max_tokens: int, greedy: bool = False, seed: int = 0
) -> list[Completion]:
    """One completion for each of ``problems``, which are of one level (prompts of one length)."""
    generator = torch.Generator().manual_seed(seed)
    cached = {cache_argument(model): DynamicCache(config=model.config)}
    inputs = torch.tensor([p.prompt_ids for p in problems])
    sampled = torch.full((len(problems), max_tokens), EOS_ID)
    running = torch.ones(len(problems), dtype=torch.bool)
    for place in range(max_tokens):
        logits = model(input_ids=inputs, use_cache=True, logits_to_keep=1, **cached).logits[:, -1]
        token = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
        sampled[:, place] = torch.where(running, token, EOS_ID)
        running &= token != EOS_ID
        if not running.any():
            break
        inputs = token[:, None]
    completions = []
    for problem, row in zip(problems, sampled.tolist(), strict=True):
        finished = EOS_ID in row
        tokens = row[: row.index(EOS_ID) + 1] if finished else row
        completions.append(Completion(problem, tuple(tokens), decode(tokens), finished))
    return completions


def pass_rates(model: PreTrainedModel, *, per_level: int, greedy: bool) -> tuple[dict[str, float], float, float]:
    """pass@1 by level over the first held-out problems, their mean judge score, and their mean completion length."""
    task = NanoTask()
    problems = task.heldout_problems(count=per_level * len(HELDOUT_LEVELS))
    rates: dict[str, float] = {}
    judged: list[float] = []
    lengths: list[int] = []
    for level in HELDOUT_LEVELS:
        chosen = [p for p in problems if p.level == str(level)]
        found = complete(model, chosen, max_tokens=task.max_completion_tokens, greedy=greedy, seed=level)
        rates[str(level)] = float(task.correct(found).mean())
        judged += StepJudge().score(found).values.tolist()
        lengths += [len(c.token_ids) for c in found]
    return rates, float(np.mean(judged)), float(np.mean(lengths))


def policy_report(name: str) -> list[str]:
    """Lines that say what a base policy can do."""
    model = load_policy(name)
    lines = [f"{sum(p.numel() for p in model.parameters())} parameters"]
    for greedy in (False, True):
        rates, judge, length = pass_rates(model, per_level=PROBLEMS_PER_LEVEL, greedy=greedy)
        by_level = "  ".join(f"{level}: {rate:.3f}" for level, rate in rates.items())
        lines.append(
            f"{'greedy ' if greedy else 'sampled'} pass@1 {np.mean(list(rates.values())):.3f} ({by_level}), "
            f"judge {judge:.3f}, {length:.1f} tokens"
        )
    return lines


def ranking(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    """Chance that a positive scores above a negative (area under the ROC curve; ties count half)."""
    order = np.unique(scores, return_inverse=True)[1]
    counts = np.bincount(order)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[order]
    n, m = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def prm_accuracy(kind: str, *, per_level: int) -> dict[str, float]:
    """How good a reward model is on held-out problems with completions of mixed quality.

    ``step``: mean of its accuracy on correct and on wrong steps; ``step_auc``: how well steps are ranked;
    ``whole_auc``: how well completions without any wrong step are told from the rest by their lowest step.
    """
    model = load_prm(kind)
    steps: list[npt.NDArray[np.float64]] = []
    truths: list[npt.NDArray[np.bool_]] = []
    lowest: list[float] = []
    flawless: list[bool] = []
    rng = np.random.default_rng([7, per_level])
    for level in HELDOUT_LEVELS:
        batch = labelled(rng, per_level, level, heldout=True)
        probabilities = token_probabilities(model, torch.from_numpy(batch.token_ids))
        for row, (prompt, text) in enumerate(zip(batch.prompts, batch.texts, strict=True)):
            found = step_minima(probabilities[row, len(prompt) :], step_ends(text))
            verdicts = batch.labels[row][batch.labels[row] >= 0] == 1
            steps.append(np.array(found))
            truths.append(verdicts)
            lowest.append(min(found, default=0.0))
            flawless.append(bool(verdicts.all()))
    step, truth = np.concatenate(steps), np.concatenate(truths)
    said = step > 0.5
    return {
        "step": float((said[truth].mean() + (~said[~truth]).mean()) / 2),
        "step_auc": ranking(step, truth),
        "whole_auc": ranking(np.array(lowest), np.array(flawless)),
        "correct_steps": float(truth.mean()),
    }


def prm_report(name: str) -> list[str]:
    """Lines that say how good a reward model is."""
    kind = next(kind for kind, model in REWARD_MODELS.items() if model == name)
    model = load_prm(kind)
    found = prm_accuracy(kind, per_level=PROBLEMS_PER_LEVEL)
    return [
        f"{sum(p.numel() for p in model.parameters())} parameters",
        "  ".join(f"{key} {value:.3f}" for key, value in found.items()),
    ]
