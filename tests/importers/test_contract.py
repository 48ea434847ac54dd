"""What every importer promises, checked on every importer in the registry."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importer_samples import SAMPLES, Sample

from race.errors import InvalidInput, RaceError
from race.importers import IMPORTERS, Importer, importer_for
from race.store import Store


@pytest.fixture(params=sorted(SAMPLES))
def sample(request: pytest.FixtureRequest) -> Sample:
    return SAMPLES[request.param]


@pytest.fixture
def importer(sample: Sample) -> Importer:
    return IMPORTERS[sample.format]


def test_every_importer_has_a_sample_and_fulfils_the_protocol() -> None:
    assert {sample.format for sample in SAMPLES.values()} == set(IMPORTERS)
    for name, importer in IMPORTERS.items():
        assert isinstance(importer, Importer)
        assert importer.name == name == name.lower().strip()
        assert importer.summary
        assert "\n" not in importer.summary


def test_logs_are_recognised_by_their_own_importer_and_no_other(sample: Sample, tmp_path: Path) -> None:
    path = sample.write(tmp_path)
    assert [name for name, importer in IMPORTERS.items() if importer.recognises(path)] == [sample.format]
    assert importer_for(path).name == sample.format


def test_what_is_no_log_is_recognised_by_none(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "prose.txt").write_text("It was a dark and stormy night.\n")
    os.mkfifo(tmp_path / "pipe")
    for name in ("binary.csv", "empty.json", "prose.txt", "pipe", "missing.csv", "."):
        assert not any(importer.recognises(tmp_path / name) for importer in IMPORTERS.values())


def test_records_are_imported_evidence_that_a_store_takes(
    importer: Importer, sample: Sample, tmp_path: Path
) -> None:
    path = sample.write(tmp_path)
    records = importer.read(path, sample.facts)
    assert len(records) == sample.runs
    for record in records:
        assert record.evidence == "imported"
        assert record.flops.total > 0
        assert record.spec.budget >= record.flops.total
        assert record.spec.rho == pytest.approx(record.flops.rho)
        assert record.provenance["importer"] == importer.name
        assert record.provenance["file"] == path.name
        assert len(record.provenance["sha256"]) == 64
        assert isinstance(record.provenance["assumptions"], list)
        assert str(tmp_path) not in str(record.to_dict())  # records travel; people's folders do not
    Store(tmp_path / "store", create=True).add_all(records)
    loaded = Store(tmp_path / "store").records()
    assert loaded.problems == ()
    assert list(loaded.records) == sorted(records, key=lambda record: record.id)


def test_reading_changes_nothing_and_repeats_itself(
    importer: Importer, sample: Sample, tmp_path: Path
) -> None:
    path = sample.write(tmp_path)
    before = path.read_bytes()
    first = importer.read(path, sample.facts)
    assert importer.read(path, sample.facts) == first
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert len({record.id for record in first}) == len(first)


def test_the_same_run_under_another_name_is_refused_by_a_store(
    importer: Importer, sample: Sample, tmp_path: Path
) -> None:
    path = sample.write(tmp_path)
    store = Store(tmp_path / "store", create=True)
    store.add_all(importer.read(path, sample.facts))
    (tmp_path / "again").mkdir()
    again = Path(shutil.copy(path, tmp_path / "again" / f"renamed{path.suffix}"))
    noted = replace(sample.facts, source="another source", assumptions=("another note",))
    with pytest.raises(InvalidInput, match=r"^id: found 'imported-.*already in"):
        store.add_all(importer.read(again, noted))
    other_seed = importer.read(path, replace(sample.facts, seed=1))
    store.add_all(other_seed)
    assert len(store.records()) == 2 * sample.runs


def test_missing_facts_are_named_not_guessed(importer: Importer, sample: Sample, tmp_path: Path) -> None:
    path = sample.write(tmp_path)
    if sample.format == "csv":  # what a trainer's log measures is its training reward
        with pytest.raises(InvalidInput, match=r"^target: missing; allowed are native"):
            importer.read(path, replace(sample.facts, target=None))
    for field in sample.needed:
        recipe = {k: v for k, v in sample.facts.recipe.items() if k != field}
        named = "lora" if field == "lora_rank" else field
        if field == "group_size" and "prompts_per_step" in recipe and sample.format != "csv":
            with pytest.raises(InvalidInput, match=r"^group_size: missing beside prompts_per_step"):
                importer.read(path, replace(sample.facts, recipe=recipe))
            continue
        with pytest.raises(
            InvalidInput, match=rf"^recipe\.{named}: missing, and FLOPs are rebuilt from it; allowed is "
        ):
            importer.read(path, replace(sample.facts, recipe=recipe))


def test_the_model_is_never_guessed(importer: Importer, sample: Sample, tmp_path: Path) -> None:
    path = sample.write(tmp_path)
    with pytest.raises(InvalidInput, match=r"model"):
        importer.read(path, replace(sample.facts, models={}))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_damaged_log_is_records_or_one_line(
    importer: Importer, sample: Sample, tmp_path_factory: pytest.TempPathFactory, cut: int, byte: int
) -> None:
    path = sample.write(tmp_path_factory.mktemp("log"))
    data = path.read_bytes()
    at = cut % len(data)
    for damaged in (
        data[:at],
        data[:at] + bytes([byte]) + data[at + 1 :],
        data[:at] + bytes([byte]) + data[at:],
    ):
        path.write_bytes(damaged)
        try:
            records = importer.read(path, sample.facts)
        except RaceError as error:
            message = str(error)
        else:
            message = ""
            assert len(records) == sample.runs
        assert "\n" not in message


def test_folders_pipes_and_missing_files_are_one_line(
    importer: Importer, sample: Sample, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, what in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "no", "no such file"),
    ):
        with pytest.raises(InvalidInput, match=what):
            importer.read(path, sample.facts)


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^format: found 'xlsx'; allowed are auto, trl \(logs of TRL"):
        importer_for(tmp_path / "x.csv", "xlsx")
