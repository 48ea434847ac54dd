"""How a solution becomes tokens, and where its steps are scored.

    SeparatorFormat   Qwen2.5-Math-PRM: chat template; every step is followed by one special token, ``<extra_0>``,
                      at which the step is scored.
    TokenLabelFormat  TRL's ``PRMTrainer``: the prompt, then every step followed by a separator text; a step is scored
                      at the last token of its separator.

A policy writes what it likes, the models' own special tokens included. They are taken out of questions and steps
before tokenisation (and counted): otherwise a policy could forge a step, or end the conversation early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from race.errors import CannotDo, InvalidInput
from real_runs.prm._base import Solution

SEPARATOR = "<extra_0>"
SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Encoded:
    """Token ids of one solution and the position at which each step is scored."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    step_tokens: tuple[int, ...]
    forged: int

    def cut(self, limit: int) -> Encoded:
        """The longest beginning of whole steps within ``limit`` tokens; a causal model scores it the same."""
        if len(self.ids) <= limit:
            return self
        kept = [p for p in self.positions if p < limit]
        end = kept[-1] + 1 if kept else 0
        return Encoded(self.ids[:end], tuple(kept), self.step_tokens, self.forged)


class StepFormat(Protocol):
    """Turns solutions into tokens."""

    overhead_tokens: int

    def encode(self, solutions: Sequence[Solution]) -> list[Encoded]:
        """Tokens and scored positions, one position per step."""
        ...


class SeparatorFormat:
    """Qwen2.5-Math-PRM's format.

    Parameters
    ----------
    tokenizer
        Of the checkpoint; must have the separator as one token, and a chat template.
    separator, system
        The step mark, and the system message the model was trained with.

    Raises
    ------
    InvalidInput
        The separator is no single token of this tokenizer, or there is no chat template.
    """

    def __init__(self, tokenizer: Any, *, separator: str = SEPARATOR, system: str = SYSTEM) -> None:
        self.tokenizer, self.separator, self.system = tokenizer, separator, system
        ids = tokenizer(separator, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            raise InvalidInput(
                f"separator: {separator!r} is not one token of this PRM's tokenizer (it gives {len(ids)}); allowed is "
                "its step token: check that checkpoint and tokenizer belong together, or name it with separator"
            )
        if not getattr(tokenizer, "chat_template", None):
            raise InvalidInput(
                "prm: the tokenizer has no chat template, which the step-separator format needs; use the tokenizer "
                "that came with the checkpoint"
            )
        self.separator_id = int(ids[0])
        self._special = special_pattern(tokenizer, separator)
        self.overhead_tokens = len(self.encode([Solution("", ("x",))])[0].ids) + 1

    def encode(self, solutions: Sequence[Solution]) -> list[Encoded]:
        """See `StepFormat`."""
        texts, forged, firsts = [], [], []
        for solution in solutions:
            question, steps, found = defused(self._special, solution)
            messages = [
                {"role": "system", "content": self.system},
                {"role": "user", "content": question},
                {"role": "assistant", "content": "".join(step + self.separator for step in steps)},
            ]
            texts.append(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False))
            forged.append(found)
            firsts.append(steps[0] if steps else "")
        if not texts:
            return []
        out = []
        whole = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        heads = self.tokenizer(firsts, add_special_tokens=False)["input_ids"]
        for ids, head, found, solution in zip(whole, heads, forged, solutions, strict=True):
            positions = tuple(k for k, token in enumerate(ids) if token == self.separator_id)
            if len(positions) != len(solution.steps):
                raise CannotDo(
                    f"prm: {len(positions)} separators for {len(solution.steps)} steps; the chat template or tokenizer "
                    f"drops or adds {self.separator!r}"
                )
            out.append(Encoded(tuple(ids), positions, _lengths(positions, len(head)), found))
        return out


class TokenLabelFormat:
    """The format TRL's ``PRMTrainer`` trains on.

    Parameters
    ----------
    tokenizer
        Of the checkpoint.
    separator
        The text between steps that the model was trained with (TRL's ``step_separator``).

    Raises
    ------
    InvalidInput
        The separator has no token.
    """

    def __init__(self, tokenizer: Any, *, separator: str = "\n") -> None:
        self.tokenizer, self.separator = tokenizer, separator
        self._separator_ids = tuple(tokenizer(separator, add_special_tokens=False)["input_ids"])
        if not self._separator_ids:
            raise InvalidInput(
                f"separator: {separator!r} gives no token with this PRM's tokenizer; allowed is the step separator it "
                "was trained with"
            )
        self._special = special_pattern(tokenizer)
        self._bos = () if tokenizer.bos_token_id is None else (int(tokenizer.bos_token_id),)
        self.overhead_tokens = len(self._bos) + len(self._separator_ids) + 1

    def encode(self, solutions: Sequence[Solution]) -> list[Encoded]:
        """See `StepFormat`."""
        out = []
        for solution in solutions:
            question, steps, forged = defused(self._special, solution)
            ids = [*self._bos, *self._tokens(question)]
            positions, lengths = [], []
            for step in steps:
                tokens = self._tokens(step)
                ids += [*tokens, *self._separator_ids]
                positions.append(len(ids) - 1)
                lengths.append(len(tokens))
            out.append(Encoded(tuple(ids), tuple(positions), tuple(lengths), forged))
        return out

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def special_pattern(tokenizer: Any, *more: str) -> re.Pattern[str]:
    """Matches the text of any special token, longest first."""
    added = [str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special]
    names = {*added, *tokenizer.all_special_tokens, *more} - {""}
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)")


def defused(special: re.Pattern[str], solution: Solution) -> tuple[str, list[str], int]:
    """Question and steps with special tokens blanked out, and how many the steps held."""
    forged = 0
    steps = []
    for step in solution.steps:
        text, found = special.subn(" ", encodable(step))
        forged += found
        steps.append(text)
    # A blank, not nothing: removing a mark must not join its surroundings into another one.
    return special.sub(" ", encodable(solution.question)), steps, forged


def encodable(text: str) -> str:
    """``text`` without the lone surrogates that no tokenizer accepts."""
    return text.encode("utf-8", "replace").decode()


def _lengths(positions: Sequence[int], first: int) -> tuple[int, ...]:
    """Tokens of each step: between one mark and the next; ``first`` is the first step's own count."""
    return (first, *(b - a - 1 for a, b in pairwise(positions))) if positions else ()
