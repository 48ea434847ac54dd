"""Data sets by name: the training prompts and benchmarks of the paper, and any other id on the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from real_runs.data.rows import SUFFIXES, Rows, read_rows, rows_of


@dataclass(frozen=True)
class HubSet:
    """Where a named data set is and how it is laid out."""

    repository: str
    config: str | None
    split: str
    prompt: str
    answer: str


NAMED: dict[str, HubSet] = {
    "polaris-53k": HubSet("POLARIS-Project/Polaris-Dataset-53K", None, "train", "problem", "answer"),
    "gsm8k": HubSet("openai/gsm8k", "main", "test", "question", "answer"),
    "gsm8k-train": HubSet("openai/gsm8k", "main", "train", "question", "answer"),
    "math500": HubSet("HuggingFaceH4/MATH-500", None, "test", "problem", "answer"),
}


def load_rows(
    source: str | Path,
    *,
    split: str | None = None,
    prompt_column: str | None = None,
    answer_column: str | None = None,
) -> Rows:
    """Read a data set: a local file, a name (``polaris-53k``, ``gsm8k``, ``math500``), or a hub id.

    Parameters
    ----------
    source
        ``owner/name`` or ``owner/name:config`` for the hub.
    split
        Of a hub data set; defaults to the named set's own, else ``train``.

    Raises
    ------
    InvalidInput
        A name that is none of these, or data without prompts or answers.
    CannotDo
        The hub cannot be reached, or has no such data set.
    """
    text = str(source)
    if Path(text).suffix.lower() in SUFFIXES or Path(text).is_file():
        return read_rows(text, prompt_column=prompt_column, answer_column=answer_column)
    named = NAMED.get(text.lower())
    if named is None:
        repository, _, config = text.partition(":")
        if repository.count("/") != 1 or repository.startswith((".", "/")):
            raise InvalidInput(
                f"data: found {text!r}; allowed are {', '.join(NAMED)}, a hub id owner/name[:config], or a "
                f"{', '.join(SUFFIXES)} file"
            )
        named = HubSet(repository, config or None, "train", "", "")
    records = _fetch(named.repository, named.config, split or named.split)
    return rows_of(
        records,
        name=text.rsplit("/", 1)[-1],
        prompt_column=prompt_column or named.prompt or None,
        answer_column=answer_column or named.answer or None,
    )


def _fetch(repository: str, config: str | None, split: str) -> list[dict[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise CannotDo("data: hub data sets need datasets; install it with: pip install 'race-rl[runs]'") from None
    try:
        table = datasets.load_dataset(repository, config, split=split)
    except Exception as error:  # noqa: BLE001  the hub client raises dozens of kinds, all meaning "not available"
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise CannotDo(
            f"data: {repository!r} (split {split!r}) cannot be fetched here ({type(error).__name__}: {first}); check "
            "the name and the connection, or give a local parquet, JSONL or CSV file"
        ) from None
    return [dict(record) for record in table]
