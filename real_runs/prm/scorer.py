"""From solutions to step scores: encode, cut, have the engine read, check. `TorchPrm` is the engine in torch.

An engine only answers one question: P(correct) at given positions of given token ids. ``vllm`` is the other one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from race.errors import InvalidInput
from race.flops import Architecture, cost_functions
from real_runs.prm._base import Solution, StepScores, check_counts
from real_runs.prm.formats import Encoded, StepFormat

Logits = Callable[[Tensor, Tensor], Tensor]


class StepPrm(ABC):
    """A `ProcessRewardModel`, but for its engine.

    Parameters
    ----------
    name
        As users spell it.
    step_format
        Text to tokens and positions.
    architecture
        What FLOPs are counted from; with the head.
    max_tokens
        Longest input the model was trained for.
    """

    def __init__(self, name: str, step_format: StepFormat, architecture: Architecture, *, max_tokens: int) -> None:
        if max_tokens <= step_format.overhead_tokens:
            raise InvalidInput(
                f"prm: max_tokens is {max_tokens}, the format's own marks need {step_format.overhead_tokens}; allowed "
                "is a longer context"
            )
        self.name = name
        self.max_tokens = max_tokens
        self.overhead_tokens = step_format.overhead_tokens
        self.architecture = architecture
        self._format = step_format
        self._cost = cost_functions(architecture, lora=None).forward

    def flops(self, tokens: int) -> int:
        """One forward over ``tokens`` tokens with the head at every position; 0 tokens are not read."""
        return self._cost(tokens, tokens) if tokens else 0

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """One probability per step; steps that do not fit score 0. FLOPs are those of the true lengths.

        Raises
        ------
        CannotDo
            Separators and steps do not match, or the model's output is no probability.
        """
        read = [k for k, solution in enumerate(solutions) if solution.steps]
        encoded: dict[int, Encoded] = {}
        for k, whole in zip(read, self._format.encode([solutions[k] for k in read]), strict=True):
            encoded[k] = whole.cut(min(self.max_tokens, solutions[k].max_tokens or self.max_tokens))
        found = self._probabilities({k: e for k, e in encoded.items() if e.ids})
        out = []
        for k, solution in enumerate(solutions):
            if k not in encoded:
                out.append(StepScores((), 0, ()))
                continue
            scored = found.get(k, ())
            cut = len(solution.steps) - len(encoded[k].positions)
            out.append(
                StepScores(
                    (*scored, *(0.0 for _ in range(cut))),
                    len(encoded[k].ids),
                    encoded[k].step_tokens,
                    cut,
                    encoded[k].forged,
                )
            )
        check_counts(solutions, out)
        return out

    @abstractmethod
    def _probabilities(self, encoded: dict[int, Encoded]) -> dict[int, tuple[float, ...]]:
        """P(correct) at each scored position, by solution; what an engine implements."""


class TorchPrm(StepPrm):
    """Scores through a torch module.

    Parameters
    ----------
    model
        A module with its weights on one device; kept in eval mode.
    logits
        ``(input_ids, attention_mask) -> (batch, length, labels)``.
    pad_id
        Any valid token: padding is on the right of a causal model and masked.
    batch_tokens
        Most padded tokens in one forward.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        logits: Logits,
        step_format: StepFormat,
        architecture: Architecture,
        *,
        max_tokens: int,
        pad_id: int = 0,
        batch_tokens: int = 16_384,
    ) -> None:
        super().__init__(name, step_format, architecture, max_tokens=max_tokens)
        if batch_tokens < 1:
            raise InvalidInput(f"batch_tokens: found {batch_tokens!r}; allowed is a whole number >= 1")
        self._model = model.eval()
        self._logits = logits
        self._pad_id = pad_id
        self._batch_tokens = batch_tokens

    @torch.inference_mode()
    def _probabilities(self, encoded: dict[int, Encoded]) -> dict[int, tuple[float, ...]]:
        """P(correct) at each scored position, by solution."""
        found: dict[int, tuple[float, ...]] = {}
        device = next(self._model.parameters()).device
        for batch in self._batches(encoded):
            width = len(encoded[batch[0]].ids)
            ids = torch.full((len(batch), width), self._pad_id)
            mask = torch.zeros((len(batch), width), dtype=torch.long)
            for row, k in enumerate(batch):
                length = len(encoded[k].ids)
                ids[row, :length] = torch.tensor(encoded[k].ids)
                mask[row, :length] = 1
            logits = self._logits(ids.to(device), mask.to(device)).float()
            correct = torch.softmax(logits, dim=-1)[..., 1].cpu()
            for row, k in enumerate(batch):
                found[k] = tuple(float(correct[row, p]) for p in encoded[k].positions)
        return found

    def _batches(self, encoded: dict[int, Encoded]) -> list[list[int]]:
        """Solutions of like length together, the longest first, within the token limit."""
        order = sorted(encoded, key=lambda k: -len(encoded[k].ids))
        batches: list[list[int]] = []
        for k in order:
            if batches and len(encoded[batches[-1][0]].ids) * (len(batches[-1]) + 1) <= self._batch_tokens:
                batches[-1].append(k)
            else:
                batches.append([k])
        return batches
