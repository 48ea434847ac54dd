"""What a run is made of, by name: values of another type or place are refused before anything is read."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from race.errors import InvalidInput
from real_runs.assemble import _PRM_KINDS, DATA_FIELDS, Setup
from real_runs.data import text_task
from real_runs.prm.load import load_prm


def made(table: str, value: Any) -> Setup:
    return Setup("some/model", data=value) if table == "data" else Setup("some/model", prm=value)


def test_every_parameter_has_a_kind() -> None:
    assert set(_PRM_KINDS) == {"aggregation", *inspect.signature(load_prm).parameters} - {"path"}
    known = {"train", "heldout", "benchmarks", *inspect.signature(text_task).parameters}
    assert set(DATA_FIELDS) <= known


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("prm", "trust_remote_code", "no"),
        ("prm", "trust_remote_code", "False"),
        ("prm", "trust_remote_code", 1),
        ("prm", "dtype", 7),
        ("prm", "max_tokens", 0),
        ("prm", "batch_tokens", True),
        ("prm", "memory", "half"),
        ("data", "train", 5),
        ("data", "benchmarks", 5),
        ("data", "benchmarks", {"a": 1}),
        ("data", "heldout_fraction", "abc"),
        ("data", "heldout_fraction", True),
        ("data", "system", 5),
        ("data", "instruction", ["a"]),
        ("data", "template_options", "thinking"),
    ],
)
def test_values_of_another_type(table: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"{table}\.{name}: found .*; allowed is "):
        made(table, {name: value})


@pytest.mark.parametrize("table", ["data", "prm"])
def test_tables_that_are_none(table: str) -> None:
    with pytest.raises(InvalidInput, match=f"{table}: found 5; allowed is a table"):
        made(table, 5)
    with pytest.raises(InvalidInput, match=f"{table}: unknown name 'nosuch'"):
        made(table, {"nosuch": 1})


def test_what_a_nano_model_brings_itself_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prm: given with nano-s"):
        Setup("nano-s", prm={"aggregation": "mean"})


def test_digests_of_every_local_file(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text("{}")
    setup = Setup("some/model", data={"train": str(path), "benchmarks": {"b": str(path), "c": "gsm8k"}})
    assert set(setup.to_dict()["digests"]) == {"train", "benchmarks.b"}
