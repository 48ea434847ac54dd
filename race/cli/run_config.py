"""What ``race run`` is told, from a TOML file and from flags; flags win.

    model = "nano-s"              and the other names of `SCALARS`
    [recipe]                      fields of `race.recipe.Recipe`
    [options]                     fields of `real_runs.config.RunOptions`
    [data]                        train, heldout, benchmarks, prompt_column, ...: `real_runs.assemble.DATA_FIELDS`
    [prm]                         how process reward models are read: aggregation, engine, dtype, ...

``--set learning_rate=1e-3`` sets an option, ``--set prm.engine=vllm`` a name in another table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from race.errors import InvalidInput

TABLES = ("recipe", "options", "data", "prm")
SCALARS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "reward": (str,),
    "reward_model": (str,),
    "judge_model": (str,),
    "budget": (str, int, float),
    "rho": (int, float),
    "seed": (int,),
    "targets": (str, list),
    "out": (str,),
    "store": (str,),
    "monitor": (str, list),
}


def read_config(path: Path | None) -> dict[str, Any]:
    """The file's values by name; an empty config without a file.

    Raises
    ------
    InvalidInput
        The file cannot be read, is not TOML, or has a name or type that is not known.
    """
    if path is None:
        return {}
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"config: {path} is not TOML: {error}") from None
    for name, value in data.items():
        if name in TABLES:
            if not isinstance(value, dict):
                raise InvalidInput(f"config.{name}: found {value!r}; allowed is a table [{name}]")
        elif name not in SCALARS:
            raise InvalidInput(f"config: unknown name {name!r}; allowed are {', '.join((*SCALARS, *TABLES))}")
        elif isinstance(value, bool) or not isinstance(value, SCALARS[name]):
            kinds = " or ".join(_kind(k) for k in SCALARS[name] if k is not int or float not in SCALARS[name])
            raise InvalidInput(f"config.{name}: found {value!r}; allowed is {kinds}")
    return data


def _kind(kind: type) -> str:
    return {"str": "text", "list": "a list", "int": "a whole number"}.get(kind.__name__, "a number")


def merged(config: Mapping[str, Any], flags: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """``config`` with the flags that were given (not None) and ``--set`` values on top; tables are merged by name."""
    result: dict[str, Any] = {**config, **{table: dict(config.get(table, {})) for table in TABLES}}
    for name, value in flags.items():
        if name in TABLES:
            result[name] |= {key: item for key, item in value.items() if item is not None}
        elif value is not None:
            result[name] = value
    for text in settings:
        table, name, value = parse_setting(text)
        result[table][name] = value
    return result


def parse_setting(text: str) -> tuple[str, str, Any]:
    """``[table.]name=value`` as (table, name, value); the value is TOML, or a word without quotes."""
    left, equals, right = text.partition("=")
    table, dot, name = left.strip().rpartition(".")
    if not dot:
        table = "options"
    if not equals or not name or table not in TABLES:
        others = ", ".join(f"{other}.name=value" for other in TABLES)
        raise InvalidInput(f"set: found {text!r}; allowed is name=value for an option, or {others}")
    right = right.strip()
    try:
        value = tomllib.loads(f"value = {right}")["value"]
    except tomllib.TOMLDecodeError:
        value = right
    return table, name, value


def words(value: str | list[Any] | None, field: str) -> list[str] | None:
    """``a,b`` or a list of texts as a list; anything else is `InvalidInput`."""
    if value is None:
        return None
    items = value.split(",") if isinstance(value, str) else value
    if not all(isinstance(item, str) for item in items):
        raise InvalidInput(f"{field}: found {value!r}; allowed are words")
    return [item.strip() for item in items]
