"""An executor from what a user wrote: a few words, or a table in a TOML file.

local   local:2                     real runs in processes of this machine
simulator:own-3                     a named world
ray   ray://host:10001   ray:HOST:PORT       a Ray cluster; plain ``ray`` starts one here
command:python train.py {spec}      any command line
executor.toml                       a file with a table [executor]

[executor]
kind = "command"
command = "srun --ntasks=1 --gres=gpu:1 python train.py {spec} {record}"
slots = 8
timeout = "4h"
retries = 2
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from race.errors import InvalidInput
from real_runs.executors._base import Executor
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.local import LocalExecutor
from real_runs.executors.simulated import SimulatorExecutor

KINDS = ("local", "simulator", "command", "ray")
_LIMITS = tuple(field.name for field in fields(Limits))
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
# What a table may say, beside `Limits`; the constructors check the values.
_LISTS = {"local": ("gpus", "arguments"), "ray": ("arguments",), "command": ("warm",), "simulator": ()}
_FLAGS = {"local": ("warm",), "ray": ("warm",)}


def build_executor(
    told: str | Mapping[str, Any], *, config: Path | Mapping[str, Any] | None = None, slots: int | None = None
) -> Executor:
    """The executor that ``told`` describes; enter it to start it.

    Parameters
    ----------
    told
        Text or a table, as in the module's text.
    config
        What ``race run --config`` takes, for executors that run our own trainer (``local`` and ``ray``) and are not
        told another one themselves.
    slots
        How many jobs at once, where ``told`` does not say.

    Raises
    ------
    InvalidInput
        An unknown kind or option, or a value that is not allowed.
    """
    options = _read(told) if isinstance(told, str) else dict(told)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise InvalidInput(f"executor: found {kind!r}; allowed are {', '.join(KINDS)}, or a TOML file")
    if slots is not None:
        options.setdefault("slots", slots)
    if config is not None and kind in ("local", "ray") and "command" not in options:
        options.setdefault("config", config)
    make = _maker(kind)
    allowed = [name for name, p in signature(make).parameters.items() if p.kind is not Parameter.VAR_KEYWORD]
    named = [name for name in allowed if name not in ("limits", "name", "per_slot", "ours")]
    if "limits" in allowed:
        named += _LIMITS
    unknown = sorted(set(options) - set(named))
    if unknown:
        raise InvalidInput(
            f"executor: unknown option {unknown[0]!r} of {kind}; allowed are {', '.join(named)}"
        )
    for name in ("command", "world"):
        parameter = signature(make).parameters.get(name)
        if parameter is not None and parameter.default is Parameter.empty and name not in options:
            raise InvalidInput(f"executor.{name}: missing; {kind} needs it")
    if "limits" in allowed:
        default = Limits(retries=1 if kind == "command" else 2)
        given = {name: options.pop(name) for name in _LIMITS if name in options}
        options["limits"] = Limits(**{**default.__dict__, **{k: _seconds(k, v) for k, v in given.items()}})
    _check_types(kind, options)
    executor: Executor = make(**options)
    return executor


def executor_options(text: str) -> dict[str, Any]:
    """What a user wrote as a table, for callers that change it before they build it.

    Raises
    ------
    InvalidInput
        As `build_executor`.
    """
    return _read(text)


def _maker(kind: str) -> Callable[..., Any]:
    if kind == "ray":
        from real_runs.executors.cluster import RayExecutor

        return RayExecutor
    makers: dict[str, Callable[..., Any]] = {
        "local": LocalExecutor, "simulator": SimulatorExecutor, "command": CommandExecutor,
    }  # fmt: skip
    return makers[kind]


def _read(text: str) -> dict[str, Any]:
    if text.endswith(".toml"):
        return _read_file(Path(text))
    kind, colon, rest = text.strip().partition(":")
    if kind == "local":
        return {"kind": kind, **({"slots": _count(text, rest)} if colon else {})}
    if kind == "simulator":
        if not rest:
            raise InvalidInput(
                f"executor: found {text!r}; allowed is simulator:<world>, such as simulator:own-3"
            )
        return {"kind": kind, "world": rest}
    if kind == "command":
        return {"kind": kind, "command": rest}
    if kind == "ray":
        address = text.strip() if rest.startswith("//") else rest
        if re.fullmatch(r"\d+", rest):
            return {"kind": kind, "slots": _count(text, rest)}
        return {"kind": kind, **({"address": address} if colon else {})}
    raise InvalidInput(
        f"executor: found {text!r}; allowed are local:N, simulator:<world>, command:<command line>, ray, "
        "ray://host:port, or a TOML file"
    )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"executor: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"executor: {path} is not TOML: {error}") from None
    table = data.get("executor", data)
    if not isinstance(table, dict):
        raise InvalidInput(f"executor: found {table!r} in {path}; allowed is a table [executor]")
    table = dict(table)
    # A path in a file is meant from where the file is, as its author sees it.
    for name in ("config", "cwd"):
        if isinstance(table.get(name), str):
            table[name] = str(path.parent.absolute() / table[name])
    return table


def _count(text: str, number: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", number) or int(number) == 0:
        raise InvalidInput(f"executor: found {text!r}; allowed is a number of processes, such as local:2")
    return int(number)


def _seconds(name: str, value: Any) -> Any:
    """``"4h"``, ``"90 min"`` or a number of seconds; `Limits` checks the rest."""
    if name == "retries" or not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)?\s*", value)
    if match is None:
        raise InvalidInput(f"{name}: found {value!r}; allowed is a number of seconds, or 90s, 30m, 4h, 2d")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def _check_types(kind: str, options: dict[str, Any]) -> None:
    """What a TOML file can get wrong and a constructor would take for something else."""
    for names, allowed, what in (
        (_LISTS.get(kind, ()), (list, tuple), "a list"),
        (_FLAGS.get(kind, ()), (bool,), "true or false"),
    ):
        for name in names:
            if name in options and not isinstance(options[name], allowed):
                raise InvalidInput(f"executor.{name}: found {options[name]!r}; allowed is {what}")
    for name in ("env", "resources"):
        table = options.get(name, {})
        if not isinstance(table, Mapping):
            raise InvalidInput(f"executor.{name}: found {table!r}; allowed is a table")
    options.update(
        {name: Path(options[name]) for name in ("config", "cwd") if isinstance(options.get(name), str)}
    )
    if "env" in options:
        options["env"] = {str(key): str(value) for key, value in options["env"].items()}
