"""A text task from what a user names: a model, a data set, perhaps a held-out set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from race.errors import CannotDo
from real_runs.data.chat import INSTRUCTION, Chat
from real_runs.data.hub import load_rows
from real_runs.data.task import HELDOUT_FRACTION, TextTask
from real_runs.grading import Grader


def text_task(
    model: str,
    grader: Grader,
    *,
    data: str | Path | None,
    heldout: str | Path | None = None,
    name: str | None = None,
    max_prompt_tokens: int = 1024,
    max_completion_tokens: int = 2048,
    heldout_fraction: float = HELDOUT_FRACTION,
    instruction: str | None = INSTRUCTION,
    system: str | None = None,
    template_options: Mapping[str, Any] | None = None,
    prompt_column: str | None = None,
    answer_column: str | None = None,
) -> TextTask:
    """Build a task for the policy ``model`` (a folder or hub id, for its tokenizer and context).

    Parameters
    ----------
    data
        Training problems: a file, a named set or a hub id; ``None`` makes a benchmark of ``heldout``.
    heldout
        Held-out problems; ``None`` splits them off ``data``.
    prompt_column, answer_column
        Of ``data``, where its columns have unusual names.

    Raises
    ------
    InvalidInput
        Data or lengths that cannot be used; see `TextTask`.
    CannotDo
        Tokenizer or data cannot be read or fetched here.
    """
    tokenizer, context = _tokenizer(model)
    train = None
    if data is not None:
        train = load_rows(data, prompt_column=prompt_column, answer_column=answer_column)
    return TextTask(
        Chat.of(tokenizer, instruction=instruction, system=system, template_options=template_options),
        grader,
        train=train,
        heldout=load_rows(heldout) if heldout is not None else None,
        name=name,
        max_prompt_tokens=max_prompt_tokens,
        max_completion_tokens=max_completion_tokens,
        context=context,
        heldout_fraction=heldout_fraction,
    )


def _tokenizer(model: str) -> tuple[Any, int | None]:
    """The model's tokenizer, and its context where the config tells."""
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError:
        raise CannotDo("data: tokenizers need transformers; install it with: pip install 'race-rl[runs]'") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        config = AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise CannotDo(
            f"model: the tokenizer of {model!r} cannot be read or fetched here ({first}); give a folder with its files"
        ) from None
    context = getattr(config, "max_position_embeddings", None)
    return tokenizer, int(context) if context else None
