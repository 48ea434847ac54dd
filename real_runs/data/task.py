"""A text task: prompts from data, answers checked by the grader; implements `real_runs.contracts.Task`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from race.errors import CannotDo, InvalidInput
from real_runs.contracts import Completion, Problem
from real_runs.data.chat import Chat
from real_runs.data.rows import Row, Rows
from real_runs.grading import Grader, validate_golds

HELDOUT_FRACTION = 0.05
_BATCH = 512


@dataclass(frozen=True)
class DataReport:
    """What went into a task and what did not.

    Attributes
    ----------
    train, heldout
        Problems in use.
    dropped
        How many were left out, by reason.
    notes
        Decisions worth telling once.
    """

    train: int
    heldout: int
    dropped: dict[str, int]
    notes: tuple[str, ...]

    def summary(self) -> str:
        """One line for a log."""
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.dropped.items()))
        used = f"{self.train} training and {self.heldout} held-out problems"
        return used + (f"; left out: {reasons}" if reasons else "")


class TextTask:
    """Problems in words, with a reference answer each.

    Parameters
    ----------
    chat
        Renders and tokenises.
    grader
        Validates the answers now and grades completions later.
    train
        Where training problems come from; ``None`` makes a benchmark, which is only evaluated on.
    heldout
        A held-out set of its own; ``None`` splits one off ``train`` by a hash of each prompt, so the split does not
        depend on row order, machine or seed. Training prompts that are also held out are left out.
    max_prompt_tokens, max_completion_tokens
        Longer prompts are left out and counted; completions are cut by the run.
    context
        Tokens the model can attend to, when known.
    heldout_fraction
        Share of ``train`` that is split off.

    Raises
    ------
    InvalidInput
        Lengths that do not fit the context, or nothing left after filtering.
    """

    def __init__(
        self,
        chat: Chat,
        grader: Grader,
        *,
        train: Rows | None,
        heldout: Rows | None = None,
        name: str | None = None,
        max_prompt_tokens: int = 1024,
        max_completion_tokens: int = 2048,
        context: int | None = None,
        heldout_fraction: float = HELDOUT_FRACTION,
    ) -> None:
        source = train if train is not None else heldout
        if source is None:
            raise InvalidInput("data: found neither training nor held-out problems; allowed is at least one of them")
        _check_lengths(max_prompt_tokens, max_completion_tokens, context)
        if not 0 < heldout_fraction < 1:
            raise InvalidInput(f"heldout_fraction: found {heldout_fraction!r}; allowed is a number between 0 and 1")
        self.name = name or source.name
        self.chat = chat
        self.grader = grader
        self.eos_id, self.pad_id = chat.eos_id, chat.pad_id
        self.max_prompt_tokens, self.max_completion_tokens = max_prompt_tokens, max_completion_tokens
        dropped: Counter[str] = Counter()
        for rows in (train, heldout):
            dropped.update(rows.dropped if rows is not None else {})
        train_rows, heldout_rows = _split(train, heldout, heldout_fraction, dropped)
        self._train = self._prepare(train_rows, dropped)
        self._heldout = self._prepare(heldout_rows, dropped)
        self.report = DataReport(len(self._train), len(self._heldout), dict(dropped), chat.notes)
        if train is not None and not self._train:
            raise InvalidInput(f"data: no training problem of {self.name!r} is left ({self.report.summary()})")
        if not self._heldout:
            raise InvalidInput(
                f"data: no held-out problem of {self.name!r} is left ({self.report.summary()}); give a held-out "
                "file or more rows"
            )

    def train_problems(self, *, seed: int, step: int, count: int) -> list[Problem]:
        """The ``count`` problems of a step: consecutive places in an endless, seeded reshuffling of the data.

        With the same ``count`` every step, each problem is met once per epoch. Nothing is remembered between calls.
        """
        if seed < 0 or step < 0 or count < 1:
            raise InvalidInput(
                f"train_problems: found seed {seed}, step {step}, count {count}; allowed are seed and step >= 0 and "
                "count >= 1"
            )
        if not self._train:
            raise CannotDo(f"data: {self.name!r} is a benchmark and has no training problems; give training data")
        size = len(self._train)
        places = range(step * count, (step + 1) * count)
        orders = {e: np.random.default_rng([seed, e]).permutation(size) for e in {p // size for p in places}}
        return [self._train[int(orders[p // size][p % size])] for p in places]

    def heldout_problems(self, *, count: int) -> list[Problem]:
        """The first ``count`` held-out problems, or all of them when there are fewer."""
        return self._heldout[:count]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled tokens, special tokens dropped."""
        return self.chat.decode(token_ids)

    def correct(self, completions: Sequence[Completion]) -> npt.NDArray[np.float64]:
        """1.0 where the final answer is right, shape (n,)."""
        return grade_completions(self.grader, completions)

    def _prepare(self, rows: Sequence[Row], dropped: Counter[str]) -> list[Problem]:
        if not rows:
            return []
        golds = validate_golds([row.gold for row in rows], self.grader)
        dropped.update({f"answer: {reason}": n for reason, n in golds.counts.items()})
        problems: list[Problem] = []
        for first in range(0, len(golds.kept), _BATCH):
            batch = golds.kept[first : first + _BATCH]
            texts = [self.chat.render(rows[index]) for index, _ in batch]
            for (index, gold), text, ids in zip(batch, texts, self.chat.encode(texts), strict=True):
                if not ids:
                    dropped["empty prompt"] += 1
                elif len(ids) > self.max_prompt_tokens:
                    dropped[f"prompt over {self.max_prompt_tokens} tokens"] += 1
                else:
                    problems.append(_problem(rows[index], gold, text, ids))
        return problems


def grade_completions(grader: Grader, completions: Sequence[Completion]) -> npt.NDArray[np.float64]:
    """1.0 where the final answer is right, shape (n,).

    A completion that was cut off only counts when it marked its answer before: its last number is not one.
    """
    verdicts = grader.grade([(c.problem.gold, c.text) for c in completions])
    return np.array(
        [v.score if c.finished or _marked(c.text) else 0.0 for c, v in zip(completions, verdicts, strict=True)]
    )


def _marked(text: str) -> bool:
    return "\\boxed" in text or "####" in text


def _problem(row: Row, gold: str, text: str, ids: Sequence[int]) -> Problem:
    meta: dict[str, Any] = {"question": row.question}
    return Problem(row.id, tuple(ids), text, gold, row.level, meta)


def _split(
    train: Rows | None, heldout: Rows | None, fraction: float, dropped: Counter[str]
) -> tuple[list[Row], list[Row]]:
    if train is None:
        return [], list(heldout.rows) if heldout is not None else []
    if heldout is not None:
        held = {row.id for row in heldout.rows} | {_words(row) for row in heldout.rows}
        kept = [row for row in train.rows if row.id not in held and _words(row) not in held]
        if len(kept) < len(train.rows):
            dropped["also held out"] += len(train.rows) - len(kept)
        return kept, list(heldout.rows)
    inside = [_bucket(row) < fraction for row in train.rows]
    return (
        [row for row, held in zip(train.rows, inside, strict=True) if not held],
        [row for row, held in zip(train.rows, inside, strict=True) if held],
    )


def _words(row: Row) -> str:
    """The question up to spacing and case: the same problem from two sources is the same problem."""
    return " ".join(row.question.lower().split())


def _bucket(row: Row) -> float:
    """A number in [0, 1) that depends on the question alone."""
    return int(hashlib.sha256(_words(row).encode()).hexdigest()[:13], 16) / 16**13


def _check_lengths(prompt: int, completion: int, context: int | None) -> None:
    for name, value in (("max_prompt_tokens", prompt), ("max_completion_tokens", completion)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(f"{name}: found {value!r}; allowed is a whole number >= 1")
    if context is not None and prompt + completion > context:
        raise InvalidInput(
            f"max_prompt_tokens: found {prompt}, with max_completion_tokens {completion} more than the model's context "
            f"of {context}; allowed is a sum of at most {context}"
        )
