"""Put the facts about a log together from a TOML file and from options; options win.

target = "pass@1:gsm8k"
eval_size = 1319                # optional for GSM8K, MATH-500, AIME and native
source = "https://..."
allow_gaps = true               # empty cells were not evaluated
native_range = [0.0, 2.0]       # trainers' logs: smallest and largest possible training reward
config = "training_args.json"   # trainers' logs: the run's own config
run = 2                         # which run, in a log of several
assumptions = ["completion length: our estimate from ..."]

[series]                        # trainers' logs: target = logged key
"pass@1:gsm8k" = "val-core/openai/gsm8k/reward/mean@1"

[models]                        # column of the CSV file = model
small = "Qwen2.5-1.5B-Instruct"
large = {name = "my-7b", config = "path/to/config.json", seed = 1}

[recipe]
reward = "sparse"
prompts_per_step = 512
group_size = 8
prompt_tokens = 105
completion_tokens = 250
lora_rank = 16                  # 0 for full fine-tuning
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from race.importers._base import ModelRef, RunFacts

_TOP = (
    "target",
    "eval_size",
    "seed",
    "step_column",
    "source",
    "allow_gaps",
    "assumptions",
    "models",
    "recipe",
    "series",
    "native_range",
    "config",
    "run",
    "salvage",
)
_MODEL = ("name", "config", "seed")
MAX_BYTES = 2**20


def facts_of(about: Path | None, given: Mapping[str, Any]) -> RunFacts:
    """Facts from the TOML file ``about`` (if any) with ``given`` on top.

    ``models`` and ``recipe`` are merged entry by entry; a value of ``None`` in ``given`` means not given.

    Raises
    ------
    InvalidInput
        Unreadable or malformed TOML, an unknown key, or a value of the wrong kind; named.
    """
    values: dict[str, Any] = {} if about is None else _read_toml(about)
    tables = {name: _table(name, values.pop(name, {}), about) for name in ("models", "recipe", "series")}
    for name in tables:
        tables[name] |= _table(name, given.get(name) or {}, None)
    values |= {k: v for k, v in given.items() if k not in tables and v is not None}
    assumptions = values.pop("assumptions", [])
    if not isinstance(assumptions, (list, tuple)):
        raise InvalidInput(f"assumptions: found {assumptions!r}; allowed is a list of sentences")
    folder = about.parent if about is not None else Path()
    if isinstance(ends := values.get("native_range"), list):
        values["native_range"] = tuple(ends)
    if isinstance(values.get("config"), str):
        values["config"] = (about.parent if about is not None else Path()) / values["config"]
    models = {str(column): _model(str(column), value, folder) for column, value in tables["models"].items()}
    return RunFacts(
        **values,
        assumptions=tuple(assumptions),
        models=models,
        recipe=tables["recipe"],
        series=tables["series"],
    )


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "there is no such file"
        raise InvalidInput(f"about: {path}: {what}; allowed is a TOML file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CannotDo(f"about: {path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"about: {path}: is larger than {MAX_BYTES >> 20} MiB; allowed is a short TOML file"
        )
    try:
        values = tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"about: {path}: is not TOML: {' '.join(str(error).split())}") from None
    for name in values:
        if name not in _TOP:
            raise InvalidInput(f"about: {path}: unknown key {name!r}; allowed are {', '.join(_TOP)}")
    return values


def _table(name: str, value: Any, about: Path | None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        where = f"about: {about}: {name}" if about is not None else name
        raise InvalidInput(f"{where}: found {value!r}; allowed is a table")
    return dict(value)


def _model(column: str, value: Any, folder: Path) -> ModelRef:
    where = f"models[{column}]"
    if isinstance(value, ModelRef):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping) or "name" not in value or not set(value) <= set(_MODEL):
        raise InvalidInput(
            f"{where}: found {value!r}; allowed is a model name, or a table of name, config and seed"
        )
    name, config, seed = (value.get(key) for key in _MODEL)
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"{where}.name: found {name!r}; allowed is a model name")
    if config is not None and not isinstance(config, str):
        raise InvalidInput(f"{where}.config: found {config!r}; allowed is a path or a hub id")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise InvalidInput(f"{where}.seed: found {seed!r}; allowed is a whole number >= 0")
    # A path beside the TOML file is what its author means; anything else is a hub id.
    if config is not None and (folder / config).exists():
        config = str(folder / config)
    return ModelRef(name.strip(), config, seed)
