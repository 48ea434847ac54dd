"""The run's config, beside its log or named: JSON, TOML or YAML, flattened to dotted names and read by the key table.

Only plain data is read. A ``training_args.bin`` is a pickle and stays closed.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from race.cards.runlog import Known
from race.errors import CannotDo, InvalidInput
from race.importers._keys import KeyTable

MAX_BYTES = 4 * 2**20


def config_beside(log: Path, table: KeyTable, given: Path | None) -> dict[str, Known]:
    """Facts about the run from the files of ``table.beside`` next to ``log``, or one folder up, and from ``given``.

    Besides the names of the table's ``config`` entries: ``adapter`` (a PEFT config), ``architecture`` (path of a
    model's ``config.json``) and ``pickled`` (name of a pickle that was not opened).

    Raises
    ------
    InvalidInput
        ``given`` is not a readable config; or one beside the log is damaged.
    """
    facts: dict[str, Known] = {}
    folders = [log if log.is_dir() else log.parent]
    if folders[0].name.startswith("checkpoint-"):
        folders.append(folders[0].parent)
    for folder in folders:
        for name in table.beside:
            if (folder / name).is_file():
                _take(folder / name, table, facts)
        if (folder / "training_args.bin").is_file():
            facts.setdefault("pickled", Known("training_args.bin", "training_args.bin"))
        if table.trainer == "trl" and any(folder.glob("model*.safetensors")) and "adapter" not in facts:
            # A checkpoint with the model's own weights and no adapter was trained in full.
            facts.setdefault("full_weights", Known(True, "the model's weights beside the log"))
    if given is not None:
        if given.is_dir():
            there = [given / name for name in table.beside if (given / name).is_file()]
            if not there:
                raise InvalidInput(
                    f"config: {given}: found none of {', '.join(table.beside)}; allowed is one of them"
                )
        else:
            there = [given]
        found: dict[str, Known] = {}
        for file in there:
            _take(file, table, found)
        facts |= found
    return facts


def _take(file: Path, table: KeyTable, facts: dict[str, Known]) -> None:
    data = {name: _unwrapped(value) for name, value in read_config(file).items()}
    if "peft_type" in data:
        facts.setdefault("adapter", Known(data, file.name))
        if isinstance(base := data.get("base_model_name_or_path"), str) and base:
            facts.setdefault("model", Known(base, file.name))
        return
    if "model_type" in data and "num_hidden_layers" in data:
        # Weights & Biases keeps the model's config and the training arguments in one file.
        whole = file.suffix != ".json"
        facts.setdefault("architecture", Known(data if whole else str(file), file.name))
        if isinstance(name := data.get("_name_or_path"), str) and name:
            facts.setdefault("model", Known(name, file.name))
        if not whole:
            return
    flat = flatten(data)
    for field, paths in table.config:
        for path in paths:
            value = flat.get(path)
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                facts.setdefault(field, Known(value, f"{file.name}: {path}"))
                break


def read_config(file: Path) -> dict[str, Any]:
    """A JSON, TOML or YAML file as a mapping; by suffix, then by trying JSON."""
    if file.suffix in (".bin", ".pt", ".pth", ".pkl"):
        raise InvalidInput(f"config: {file}: is a pickle and is never opened; allowed is JSON, TOML or YAML")
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"config: {file}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"config: {file}: is larger than {MAX_BYTES >> 20} MiB; allowed is a run's config")
    try:
        text = data.decode("utf-8-sig")
        if file.suffix == ".toml":
            value: Any = tomllib.loads(text)
        elif file.suffix in (".yaml", ".yml"):
            value = _yaml(text)
        else:
            value = json.loads(text)
    except (ValueError, RecursionError) as error:  # all three decoders raise kinds of ValueError
        message = " ".join(str(error).split())[:200]
        raise InvalidInput(
            f"config: {file}: is not readable: {message}; allowed is JSON, TOML or YAML"
        ) from None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"config: {file}: found {type(value).__name__}; allowed is an object")
    return dict(value)


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise CannotDo("config: YAML needs PyYAML; pip install pyyaml, or give the config as JSON") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _unwrapped(value: Any) -> Any:
    """What Weights & Biases puts into ``{"value": x, "desc": ...}``."""
    wrapped = isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}
    return value["value"] if wrapped else value


def flatten(value: Mapping[str, Any]) -> dict[str, Any]:
    """Nested names joined by dots."""
    flat: dict[str, Any] = {}
    # Depth-first on a stack: a YAML file with anchors may be deep, and must not recurse.
    stack: list[tuple[str, Any]] = [(str(k), v) for k, v in value.items()]
    seen = 0
    while stack and seen < 200_000:
        name, item = stack.pop()
        seen += 1
        if isinstance(item, Mapping):
            stack += [(f"{name}.{k}", _unwrapped(v)) for k, v in item.items()]
        else:
            flat[name] = item
    return flat
