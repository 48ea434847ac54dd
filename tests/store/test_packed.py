"""Packed studies: exact, the same bytes each time, checked when read, and nothing in them about a machine."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from race.errors import CannotDo, InvalidInput
from race.ladders import ladder
from race.packed import pack, packaged, packaged_study, portable, read_pack
from race.records import Health, PilotRecord, PilotSpec
from race.simulator.worlds import world
from race.store import Store

RUNGS = ladder("nano")


def record(seed: int = 0, **changes: Any) -> PilotRecord:
    spec = PilotSpec("nano-s", RUNGS["nano-s"].params, RUNGS.recipe("prm"), 0.5, 10**11, seed=seed)
    return replace(world("own-0")(spec), id=f"run-{seed}", **changes)


def about_a_machine() -> PilotRecord:
    executor = {"host": "node-17", "seconds": 3.5, "name": "local", "attempts": 1}
    told = {"executor": executor, "log": ["/home/me/runs/a.log", "https://example.org/a/b"], "mix": "train/test"}
    return record(
        3, provenance=told, seconds={"search": 1.25}, health=Health("failed", "no /scratch/me/job7/record.json there")
    )


def test_what_comes_back_is_what_went_in_but_for_the_machine(tmp_path: Path) -> None:
    records = [record(seed) for seed in (5, 1, 2)]
    store = Store(tmp_path / "store", create=True)
    store.add_all(records)
    (tmp_path / "a.jsonl.gz").write_bytes(pack(store.records().records, name="mine", rates={"nano-s": {}}))
    found = read_pack(tmp_path / "a.jsonl.gz")
    assert (found.name, found.rates) == ("mine", {"nano-s": {}})
    assert [r.to_dict() for r in found.records] == [
        {**r.to_dict(), "seconds": {}} for r in sorted(records, key=lambda r: r.id)
    ]


def test_nothing_says_where_a_run_was_made() -> None:
    kept = portable(about_a_machine())
    assert kept.seconds == {}
    assert kept.provenance["executor"] == {"name": "local", "attempts": 1}
    assert kept.provenance["log"] == ["a.log", "https://example.org/a/b"]
    assert kept.provenance["mix"] == "train/test"
    assert kept.health.reason == "no record.json there"
    assert portable(kept) == kept
    assert portable(record()).to_dict() == {**record().to_dict(), "seconds": {}}


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(4)))
def test_the_same_records_are_the_same_bytes(order: list[int]) -> None:
    assert pack([record(i) for i in order], name="x") == pack([record(i) for i in range(4)], name="x")


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no records"):
        pack([], name="x")
    with pytest.raises(InvalidInput, match="twice"):
        pack([record(), record()], name="x")
    with pytest.raises(InvalidInput, match=r"pack\.name"):
        pack([record()], name="../x")
    with pytest.raises(InvalidInput, match="NaN"):
        pack([record(provenance={"loss": float("nan")})], name="x")


def _another_value(lines: list[Any]) -> None:
    lines[1]["curves"]["native"]["value"][-1] = 0.123


def _one_fewer(lines: list[Any]) -> None:
    del lines[2]


def _another_sum(lines: list[Any]) -> None:
    lines[0]["flops"]["search"] += 1


def _another_schema(lines: list[Any]) -> None:
    lines[0]["schema"] = "race.pack/9"


def _a_field(lines: list[Any]) -> None:
    lines[0]["more"] = 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_another_value, "checksum"),
        (_one_fewer, "checksum"),
        (_another_sum, "checksum"),
        (_another_schema, "race.pack/9"),
        (_a_field, "unknown field 'more'"),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, change: Callable[[list[Any]], None], said: str) -> None:
    lines = [json.loads(line) for line in gzip.decompress(pack([record(i) for i in range(3)], name="x")).splitlines()]
    change(lines)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()))
    with pytest.raises(InvalidInput, match=said):
        read_pack(path)


def test_records_are_checked_as_a_store_checks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a file with a right checksum, as another program may write it."""
    monkeypatch.setattr(PilotRecord, "to_dict", _too_good)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(pack([record()], name="x"))
    with pytest.raises(InvalidInput, match=r"line 2.*curves\[native\].*1\.5|curve\.value: found 1\.5"):
        read_pack(path)


_plain = PilotRecord.to_dict


def _too_good(self: PilotRecord) -> dict[str, Any]:
    data = _plain(self)
    data["curves"]["native"]["value"][-1] = 1.5
    return data


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", gzip.compress(b""), gzip.compress(b"[]"), gzip.compress(b"{}")[:12]],
    # gzip writes down the time: in the names of tests it would differ between processes that collect them.
    ids=["empty", "JSON", "gzip of nothing", "gzip of a list", "gzip cut short"],
)
def test_what_is_no_pack_is_said_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"^pack: .*x\.jsonl\.gz"):
        read_pack(path)
    with pytest.raises(CannotDo, match=r"cannot be read"):
        read_pack(tmp_path / "none.jsonl.gz")


def test_the_nano_study_ships_and_is_real() -> None:
    assert "nano-study" in packaged()
    found = packaged_study("nano-study")
    assert {r.evidence for r in found.records} == {"real"}
    assert {r.spec.model for r in found.records} == {"nano-s", "nano-m", "nano-l"}
    assert all(r.flops.total <= r.spec.budget for r in found.records)
    assert all(portable(r) == r for r in found.records)
    assert found.path.stat().st_size < 4e6
    tuning = packaged_study("nano-study-tuning")
    assert {tuple(r.provenance["stages"]) for r in tuning.records} == {("tuning",)}
    assert not {r.spec.seed for r in tuning.records} & {r.spec.seed for r in found.records}
    assert tuning.rates == found.rates
    with pytest.raises(InvalidInput, match="allowed are nano-study, nano-study-tuning"):
        packaged_study("nano-studio")


@pytest.mark.slow
def test_a_built_wheel_holds_the_study_and_its_fit(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    source = tmp_path / "source"
    for name in ("race", "surrogate", "planner", "real_runs"):
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    build = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    shipped = packaged_study("nano-study")
    for path in (shipped.path, *shipped.fitted.iterdir()):
        assert path.relative_to(root).as_posix() in inside
