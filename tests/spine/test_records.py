from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spine_strategies import curves, json_values, records, specs

from race.allocation import Allocation
from race.errors import InvalidInput
from race.recipe import Recipe
from race.records import SCHEMA, Curve, Health, PilotRecord, PilotSpec

Path = tuple[str | int, ...]


def record() -> PilotRecord:
    spec = PilotSpec("nano-s", 10**5, Recipe("sparse"), rho=0.5, budget=10**12, targets=("native", "pass@1"))
    curve = Curve((0, 10), (0, 5e11), (0.1, 0.4), (0.01, 0.02))
    return PilotRecord(
        spec,
        Allocation(3 * 10**11, 5 * 10**11, 0),
        {"native": curve, "pass@1": curve},
        evidence="simulated",
        steps=10,
        seconds={"search": 1.5},
        provenance={"source": "a test", "versions": {"race": "0.1.0"}},
        id="abc",
    )


def as_json(value: PilotRecord | PilotSpec) -> Any:
    return json.loads(json.dumps(value.to_dict(), allow_nan=False))


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """Every place in a JSON value."""
    yield here
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from paths(child, (*here, key))


def replaced(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    data = copy.deepcopy(data)
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return data


@given(records())
def test_a_record_survives_json(record: PilotRecord) -> None:
    assert PilotRecord.from_dict(as_json(record)) == record


@given(specs())
def test_a_spec_survives_json(spec: PilotSpec) -> None:
    assert PilotSpec.from_dict(as_json(spec)) == spec
    assert spec.reward == spec.recipe.reward


@given(curves())
def test_a_curve_survives_json(curve: Curve) -> None:
    data = {name: list(getattr(curve, name)) for name in ("step", "flops", "value", "se")}
    assert Curve.from_dict(json.loads(json.dumps(data)), where="curve") == curve
    assert len(curve) == len(curve.step)


def test_the_json_keys_that_stay() -> None:
    data = as_json(record())
    assert list(data) == [
        "schema", "id", "evidence", "spec", "steps", "flops", "curves", "health", "seconds", "provenance",
    ]  # fmt: skip
    assert data["schema"] == SCHEMA == "race.pilot/1"
    assert data["flops"] == {
        "search": 3 * 10**11, "learning": 5 * 10**11, "reward": 0, "total": 8 * 10**11, "eval": 0,
    }  # fmt: skip
    assert set(data["spec"]) == {"model", "params", "recipe", "rho", "budget", "seed", "targets"}
    assert set(data["curves"]["native"]) == {"step", "flops", "value", "se"}


def test_exact_flops_stay_exact_ints() -> None:
    data = as_json(record())
    data["flops"] = {"search": 10**24 + 1, "learning": 1, "reward": 0}
    read = PilotRecord.from_dict(data)
    assert read.flops.search == 10**24 + 1
    assert type(read.flops.total) is int


RECORD = as_json(record())
hostile = json_values | st.sampled_from(
    [10**400, -1, 1e308, float("inf"), float("nan"), "", "nan", [[]], [{}], {"": 1}, True]
)


@given(st.sampled_from(list(paths(RECORD))), hostile)
def test_any_json_in_any_place_is_a_record_or_invalid_input(path: Path, value: Any) -> None:
    try:
        read = PilotRecord.from_dict(replaced(RECORD, path, value))
    except InvalidInput:
        return
    # What was accepted must be writable and mean the same when read again (provenance is free-form).
    if path[:1] != ("provenance",):
        assert PilotRecord.from_dict(as_json(read)) == read


@given(st.sampled_from([p for p in paths(RECORD) if p and isinstance(p[-1], str) and p[0] != "provenance"]))
def test_any_missing_key_is_a_default_or_named(path: Path) -> None:
    data = copy.deepcopy(RECORD)
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    try:
        PilotRecord.from_dict(data)
        message = ""
    except InvalidInput as error:
        message = str(error)
    assert not message or str(path[-1]) in message


@given(
    st.sampled_from([p for p in paths(RECORD) if p[:1] not in (("provenance",), ("seconds",), ("curves",))])
)
def test_an_unknown_key_is_named(path: Path) -> None:
    data = copy.deepcopy(RECORD)
    parent = data
    for key in path:
        parent = parent[key]
    if not isinstance(parent, dict):
        return
    parent["colour"] = "red"
    with pytest.raises(InvalidInput, match=r"unknown field 'colour'; allowed are "):
        PilotRecord.from_dict(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), "race.pilot/2", r"^record\.schema: found 'race\.pilot/2'; allowed is 'race\.pilot/1'"),
        (("schema",), None, r"^record\.schema: found None"),
        (("id",), "a/b", r"^id: found 'a/b'"),
        (("id",), "..", r"^id: found"),
        (("id",), "", r"^id: found"),
        (("id",), "é", r"^id: found"),
        (("id",), "x" * 129, r"^id: found"),
        (("id",), 5, r"^id: found 5"),
        (("evidence",), "guessed", r"^evidence: found 'guessed'; allowed are real, imported, simulated"),
        (("steps",), -1, r"^steps: found -1"),
        (("steps",), 1.5, r"^steps: found 1\.5; allowed is a whole number"),
        (("flops", "total"), 1, r"^record\.flops\.total: found 1, but the phases add up to 8"),
        (("flops", "total"), "8e11", r"^record\.flops\.total: found '8e11'"),
        (("flops", "search"), -1, r"^record\.flops\.search"),
        (("flops", "eval"), float("nan"), r"^eval_flops"),
        (("curves",), {}, r"^curves: found none in a run that is ok"),
        (("curves",), {"pass@8": RECORD["curves"]["native"]}, r"^target: found 'pass@8'"),
        (("curves", "native", "value"), [0.1, 1.5], r"^curve\.value: found 1\.5; allowed is a number from 0 to 1"),
        (("curves", "native", "value"), [0.1], r"^curve: found 2 steps, 2 flops, 1 values and 2 standard errors"),
        (("curves", "native", "value"), "ab", r"^record\.curves\[native\]\.value: found str; allowed is a list"),
        (("curves", "native", "step"), [10, 0], r"^curve\.step: found steps that do not increase"),
        (("curves", "native", "step"), [0, 0], r"^curve\.step"),
        (("curves", "native", "step"), [0, 1.0], r"^curve\.step: found 1\.0; allowed is a whole number"),
        (("curves", "native", "flops"), [5, 4], r"^curve\.flops: found a decrease"),
        (("curves", "native", "se"), [0, -0.1], r"^curve\.se: found -0\.1"),
        (("health", "status"), "great", r"^health\.status: found 'great'; allowed are ok, collapsed"),
        (("health", "status"), "failed", r"^health\.reason: missing; a run that is failed says why"),
        (("health", "flags"), "kl", r"^record\.health\.flags: found str"),
        (("seconds", "search"), "fast", r"^seconds\.search: found 'fast'"),
        (("provenance",), [], r"^record\.provenance: allowed is an object"),
        (("spec", "model"), " ", r"^spec\.model: found"),
        (("spec", "params"), 1.5e9, r"^spec\.params: found 1500000000\.0; allowed is a whole number"),
        (("spec", "rho"), 1.01, r"^spec\.rho: found 1\.01"),
        (("spec", "budget"), 0, r"^spec\.budget: found 0"),
        (("spec", "budget"), 10**31, r"^spec\.budget"),
        (("spec", "seed"), -1, r"^spec\.seed: found -1"),
        (("spec", "targets"), "native", r"^record\.spec\.targets: found str; allowed is a list"),
        (("spec", "recipe", "group_size"), 1, r"^group_size: found 1"),
        ((), [], r"^record: found list; allowed is a JSON object"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line_by_field(path: Path, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        PilotRecord.from_dict(replaced(RECORD, path, value))
    assert "\n" not in str(caught.value)


def test_a_failed_run_without_curves_is_a_record() -> None:
    data = {
        **RECORD,
        "curves": {},
        "health": {"status": "failed", "reason": "out of memory", "flags": ["oom"]},
    }
    read = PilotRecord.from_dict(data)
    assert read.health == Health("failed", "out of memory", ("oom",))
    assert not read.curves


def test_ids_are_unique_by_default() -> None:
    base = record()
    assert len({PilotRecord(base.spec, base.flops, base.curves, "real").id for _ in range(100)}) == 100
