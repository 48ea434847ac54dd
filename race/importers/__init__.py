"""Other people's logs as records: one file per format, one contract, one registry.

To add a format, write a class that fulfils `Importer`, add an instance to `IMPORTERS`, and give
``tests/importers/test_contract.py`` a sample of it; every importer passes the same contract tests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from race.errors import InvalidInput
from race.importers._base import Importer, ModelRef, RunFacts
from race.importers._facts import facts_of
from race.importers._keys import key_tables
from race.importers.curves import CurvesImporter
from race.importers.trainers import choose_run, read_runs, trainer_importers
from race.recipe import Recipe
from race.records import PilotRecord

__all__ = [
    "IMPORTERS",
    "Importer",
    "ModelRef",
    "RunFacts",
    "choose_run",
    "facts_of",
    "import_curves",
    "import_log",
    "importer_for",
    "key_tables",
    "read_runs",
]

# Trainers first: a Weights & Biases export is a CSV file with a step column, too.
_READERS: tuple[Importer, ...] = (*trainer_importers(), CurvesImporter())
IMPORTERS: dict[str, Importer] = {importer.name: importer for importer in _READERS}

_RECIPE_WORDS = {f.name for f in fields(Recipe)} | {"lora_rank", "lora_targets"}


def importer_for(path: str | os.PathLike[str], format: str = "auto") -> Importer:
    """The importer called ``format``, or with ``auto`` the first one that recognises ``path``.

    Raises
    ------
    InvalidInput
        No such format, or nothing recognises the file; both list the formats.
    """
    known = ", ".join(f"{name} ({importer.summary})" for name, importer in IMPORTERS.items())
    if format != "auto":
        if format not in IMPORTERS:
            raise InvalidInput(f"format: found {format!r}; allowed are auto, {known}")
        return IMPORTERS[format]
    for importer in IMPORTERS.values():
        if importer.recognises(Path(path)):
            return importer
    if Path(path).suffix.lower() == ".csv":
        return IMPORTERS["csv"]  # the reader of tables says best what is wrong with one
    read_runs(Path(path))  # says what is wrong with a file that looks like a log
    raise InvalidInput(f"{path}: is in no format known here; name it with format; allowed are {known}")


def import_log(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    about: str | os.PathLike[str] | None = None,
    reward: str | None = None,
    target: str | None = None,
    models: Mapping[str, str | Mapping[str, Any] | ModelRef] | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    eval_size: int | None = None,
    seed: int | None = None,
    step_column: str | None = None,
    source: str | None = None,
    allow_gaps: bool | None = None,
    series: Mapping[str, str] | None = None,
    native_range: tuple[float, float] | None = None,
    config: str | os.PathLike[str] | None = None,
    run: int | None = None,
    salvage: bool | None = None,
    **recipe_fields: Any,
) -> list[PilotRecord]:
    """Read every run in a log as records with evidence ``imported``; all of them, or an error.

    Parameters
    ----------
    path
        The log.
    format
        One of `IMPORTERS`, or ``auto``.
    about
        TOML file with what the log does not say (`race.importers._facts` shows one); arguments here win.
    reward, recipe, **recipe_fields
        The recipe, whole or field by field (``prompts_per_step=512, lora_rank=0, ...``); ``reward``,
        ``prompts_per_step``, ``group_size``, ``prompt_tokens``, ``completion_tokens`` and the adapter must be
        given one way or another, because FLOPs are rebuilt from them.
    target
        What the values measure, ``pass@1:gsm8k`` for instance.
    models
        Column or run in the log to the model it trained; by default the log's own names are model names.
    eval_size
        Questions behind each value, for standard errors; known for GSM8K, MATH-500 and AIME.
    seed, step_column, source, allow_gaps, series, native_range, config, run, salvage
        See `RunFacts`.

    Raises
    ------
    InvalidInput
        Bad file or facts: one line that names the file, line and column, or the field, and what is allowed.
    CannotDo
        The file cannot be read, or a model's config cannot be fetched.
    """
    for name in recipe_fields:
        if name not in _RECIPE_WORDS:
            raise InvalidInput(
                f"recipe: unknown field {name!r}; allowed are {', '.join(sorted(_RECIPE_WORDS))}"
            )
    whole = recipe.to_dict() if isinstance(recipe, Recipe) else dict(recipe or {})
    parts = {k: v for k, v in {"reward": reward, **recipe_fields}.items() if v is not None}
    facts = facts_of(
        None if about is None else Path(about),
        {
            "target": target,
            "models": models,
            "recipe": {**whole, **parts},
            "eval_size": eval_size,
            "seed": seed,
            "step_column": step_column,
            "source": source,
            "allow_gaps": allow_gaps,
            "series": series,
            "native_range": native_range,
            "config": None if config is None else Path(config),
            "run": run,
            "salvage": salvage,
        },
    )
    return importer_for(path, format).read(Path(path), facts)


def import_curves(path: str | os.PathLike[str], **facts: Any) -> list[PilotRecord]:
    """`import_log` of learning curves in CSV: a step column and one column of values per model.

    Examples
    --------
    >>> records = import_curves("examples/learning_curve.csv", about="examples/learning_curve.toml")
    >>> [record.spec.model for record in records]
    ['Qwen2.5-1.5B-Instruct', 'Qwen2.5-3B-Instruct', 'Qwen2.5-7B-Instruct']
    """
    return import_log(path, format="csv", **facts)
