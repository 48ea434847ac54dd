from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spine_strategies import records as any_record
from store_records import record

from race.errors import CannotDo, InvalidInput
from race.records import PilotRecord
from race.store import MARKER, RECORDS, STORE_SCHEMA, UNFINISHED_AFTER_S, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with records a, b and c."""
    made = Store(tmp_path / "store", create=True)
    made.add_all([record("b"), record("a"), record("c")])
    return made


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` with what is in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_is_added_comes_back_ordered_by_id(store: Store) -> None:
    loaded = store.records()
    assert [r.id for r in loaded.records] == ["a", "b", "c"]
    assert loaded.records == (record("a"), record("b"), record("c"))
    assert loaded.problems == ()
    assert len(loaded) == 3
    assert loaded.require() == loaded.records
    assert "a" in store
    assert "d" not in store
    assert 3 not in store


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batch=st.lists(any_record(), max_size=4, unique_by=lambda r: r.id.lower()))
def test_any_records_survive_the_disk_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, batch: list[PilotRecord]
) -> None:
    folder = tmp_path_factory.mktemp("s")
    for r in batch:
        Store(folder, create=True).add(r)
    if batch:
        assert Store(folder).records().records == tuple(sorted(batch, key=lambda r: r.id))


def test_order_is_by_id_even_where_file_names_sort_otherwise(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", create=True)
    store.add_all([record("a-b"), record("a"), record("A"), record("a1")])
    assert [r.id for r in store.records().records] == ["A", "a", "a-b", "a1"]


def test_one_file_per_record_and_nothing_else(store: Store) -> None:
    assert sorted(everything(store.path)) == [MARKER, *(f"{RECORDS}/{n}.json" for n in "abc")]
    assert json.loads((store.path / MARKER).read_text())["schema"] == STORE_SCHEMA
    assert json.loads((store.path / RECORDS / "a.json").read_text()) == json.loads(
        json.dumps(record("a").to_dict())
    )


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(CannotDo):
            Store(path, create=True).records()
    assert list(tmp_path.iterdir()) == []


def test_a_second_store_object_and_an_open_one_see_new_records(store: Store) -> None:
    store.records()
    Store(store.path).add(record("d"))
    assert [r.id for r in store.records().records] == ["a", "b", "c", "d"]
    (store.path / RECORDS / "b.json").unlink()  # someone tidied up by hand
    assert [r.id for r in store.records().records] == ["a", "c", "d"]


# --- adding -------------------------------------------------------------------------------------------------


def test_a_duplicate_id_is_refused_and_nothing_changes(store: Store) -> None:
    before = everything(store.path)
    with pytest.raises(InvalidInput, match=r"^id: found 'b', which is already in .*allowed is a new id"):
        store.add(record("b", points=3))
    assert everything(store.path) == before


def test_a_batch_is_checked_before_its_first_record_is_written(store: Store) -> None:
    before = everything(store.path)
    with pytest.raises(InvalidInput, match=r"^id: found 'c', which is already"):
        store.add_all([record("d"), record("c")])
    with pytest.raises(InvalidInput, match=r"^id: found 'd' twice"):
        store.add_all([record("d"), record("d")])
    with pytest.raises(InvalidInput, match=r"^record e: "):
        store.add_all([record("d"), record("e", bad={1, 2})])
    assert everything(store.path) == before


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1}, object(), b"bytes", {(1, 2): 3}])
def test_what_json_cannot_carry_is_refused_before_writing(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"^record a: .*allowed are numbers \(no NaN\), text, lists and objects"
    ):
        Store(tmp_path / "s", create=True).add(record("a", bad=bad))
    assert list(tmp_path.iterdir()) == []


def test_without_create_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(
        CannotDo, match=r"^store: there is nothing at .*race import, race simulate or race run"
    ):
        Store(tmp_path / "s").add(record("a"))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_becomes_a_store_and_parents_are_made(tmp_path: Path) -> None:
    Store(tmp_path / "deep" / "er", create=True).add(record("a"))
    (tmp_path / "empty").mkdir()
    Store(tmp_path / "empty", create=True).add(record("a"))
    assert Store(tmp_path / "deep" / "er").records().records == Store(tmp_path / "empty").records().records


# --- folders that are not stores ----------------------------------------------------------------------------


def foreign(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def newer(path: Path) -> None:
    path.mkdir()
    (path / MARKER).write_text('{"schema": "race.store/9"}')


def broken(path: Path) -> None:
    path.mkdir()
    (path / MARKER).write_text('{"schema"')


def deep(path: Path) -> None:
    path.mkdir()
    (path / MARKER).write_text("[" * 4000)


def a_list(path: Path) -> None:
    path.mkdir()
    (path / MARKER).write_text("[]")


def file(path: Path) -> None:
    path.write_text("not a folder")


def folder_as_marker(path: Path) -> None:
    (path / MARKER).mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (foreign, InvalidInput, r"holds other files \(thesis\.tex, \.\.\.\) and no race-store\.json"),
        (newer, InvalidInput, r"has schema 'race\.store/9'; allowed is 'race\.store/1'"),
        (broken, InvalidInput, r"is not readable JSON"),
        (deep, InvalidInput, r"is not readable JSON"),
        (a_list, InvalidInput, r"has schema None"),
        (file, InvalidInput, r"is a file; allowed is a folder"),
        (folder_as_marker, CannotDo, r"cannot read .*Is a directory"),
    ],
)
def test_what_is_not_a_store_is_neither_read_nor_written(
    tmp_path: Path, make: Callable[[Path], None], error: type[Exception], message: str
) -> None:
    path = tmp_path / "s"
    make(path)
    before = everything(tmp_path)
    for use in (lambda: Store(path).records(), lambda: Store(path, create=True).add(record("a"))):
        with pytest.raises(error, match=r"^store: .*" + message) as caught:
            use()
        assert "\n" not in str(caught.value)
    assert everything(tmp_path) == before


def test_empty_stores_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CannotDo, match=r"^store: .*empty is an empty folder, with no record in it yet"):
        Store(tmp_path / "empty").records()
    store = Store(tmp_path / "s", create=True)
    store.add(record("a"))
    (store.path / RECORDS / "a.json").write_text("{")
    with pytest.raises(
        CannotDo, match=r"^store: .* holds no readable record \(1 skipped; first a\.json: is not whole"
    ):
        store.records().require()
    (store.path / RECORDS / "a.json").unlink()
    assert store.records().records == ()
    with pytest.raises(CannotDo, match=r"holds no readable record; add some with race import"):
        store.records().require()
    (store.path / RECORDS).rmdir()
    assert len(store.records()) == 0


# --- files that are not records -----------------------------------------------------------------------------


def text_of(record_id: str) -> str:
    return json.dumps(record(record_id).to_dict())


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "torn.json": (text_of("torn").encode()[:700], r"is not whole JSON: .* at line 1 column \d+"),
    "empty.json": (b"", r"is empty"),
    "zeros.json": (b"\0" * 512, r"is not whole JSON"),
    "binary.json": (bytes(range(256)), r"is not (UTF-8 text|whole JSON)"),
    "list.json": (b"[]", r"found list; allowed is a JSON object"),
    "null.json": (b"null", r"found NoneType"),
    "other.json": (
        b'{"name": "package", "version": "1.0"}',
        r"record\.schema: found None; allowed is 'race\.pilot/1'",
    ),
    "newer.json": (
        text_of("newer").replace("race.pilot/1", "race.pilot/2").encode(),
        r"schema: found 'race\.pilot/2'",
    ),
    "nan.json": (
        text_of("nan").replace("0.01", "NaN").encode(),
        r"is not JSON that a record may hold: found NaN",
    ),
    "deep.json": (b"[" * 100_000, r"is not JSON that a record may hold|is not whole JSON"),
    "digits.json": (b'{"schema": ' + b"9" * 5000 + b"}", r"is not JSON that a record may hold"),
    "range.json": (text_of("range").replace('"rho": 0.5', '"rho": 5').encode(), r"spec\.rho: found 5"),
    "copy.json": (text_of("a").encode(), r"holds the record 'a': a renamed or copied file"),
    "notes.txt": (b"remember", r"is not a record: its name does not end in \.json"),
    "trailing.json": ((text_of("trailing") + text_of("trailing")).encode(), r"is not whole JSON: Extra data"),
}


def test_every_bad_file_is_named_with_its_reason_and_the_rest_is_loaded(store: Store) -> None:
    for name, (data, _) in BAD_FILES.items():
        (store.path / RECORDS / name).write_bytes(data)
    loaded = store.records()
    assert [r.id for r in loaded.records] == ["a", "b", "c"]
    reasons = {p.file: p.reason for p in loaded.problems}
    assert sorted(reasons) == sorted(BAD_FILES)
    for name, (_, reason) in BAD_FILES.items():
        assert re.search(reason, reasons[name]), (name, reasons[name])
    assert [p.file for p in loaded.problems] == sorted(BAD_FILES)
    assert all("\n" not in str(p) for p in loaded.problems)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10**6), flip=st.integers(0, 255))
def test_a_record_cut_or_flipped_anywhere_is_never_fatal(store: Store, cut: int, flip: int) -> None:
    data = text_of("d").encode()
    at = cut % len(data)
    target = store.path / RECORDS / "d.json"
    for damaged in (data[:at], data[:at] + bytes([flip]) + data[at + 1 :]):
        target.write_bytes(damaged)
        loaded = Store(store.path).records()
        assert {"a", "b", "c"} <= {r.id for r in loaded.records}
        # Every file is accounted for: a record or a problem. (A flipped bit may still be a valid record.)
        assert len(loaded.records) + len(loaded.problems) == 4
        if damaged == data[:at]:
            assert [p.file for p in loaded.problems] == ["d.json"]


def test_folders_links_and_pipes_are_not_opened(store: Store, tmp_path: Path) -> None:
    folder = store.path / RECORDS
    (folder / "sub.json").mkdir()
    (tmp_path / "outside.json").write_text(text_of("outside"))
    (folder / "outside.json").symlink_to(tmp_path / "outside.json")
    os.mkfifo(folder / "pipe.json")  # opening it would hang for ever
    assert {p.file: p.reason for p in store.records().problems} == dict.fromkeys(
        ("outside.json", "pipe.json", "sub.json"), "is not a regular file"
    )


def test_names_that_are_not_text_do_not_break_the_message(store: Store) -> None:
    folder = os.fsencode(store.path / RECORDS)
    for name in (b"new\nline.json", b"latin-\xe9.json"):
        with open(os.path.join(folder, name), "wb") as f:  # noqa: PTH118, PTH123
            f.write(b"{}")
    for problem in store.records().problems:
        assert str(problem).isprintable()
        str(problem).encode()


@contextmanager
def as_ordinary_user() -> Iterator[Path]:
    """A folder of an ordinary user's own, as that user: permissions mean nothing to root."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        if root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


def test_unreadable_files_are_problems_and_unreadable_folders_errors() -> None:
    with as_ordinary_user() as home:
        store = Store(home / "store", create=True)
        store.add_all([record("a"), record("b")])
        (store.path / RECORDS / "b.json").chmod(0)
        loaded = Store(store.path).records()
        assert [r.id for r in loaded.records] == ["a"]
        assert [str(p) for p in loaded.problems] == ["b.json: cannot be read: Permission denied"]
        (store.path / RECORDS).chmod(0)
        with pytest.raises(CannotDo, match=r"^store: cannot list .*records: Permission denied$"):
            store.records()
        store.path.chmod(0)
        with pytest.raises(CannotDo, match=r"^store: cannot read .*race-store\.json: Permission denied$"):
            store.records()
        with pytest.raises(CannotDo, match=r"^store: cannot "):
            Store(store.path, create=True).add(record("d"))
        store.path.chmod(0o755)
        (store.path / RECORDS).chmod(0o755)


def test_an_unfinished_write_is_reported_once_its_writer_must_be_dead(store: Store) -> None:
    part = store.path / RECORDS / ".0123.d.json.part"
    part.write_bytes(text_of("d").encode()[:100])
    assert store.records().problems == ()  # a writer may still be at it
    old = time.time() - UNFINISHED_AFTER_S - 1
    os.utime(part, (old, old))
    assert [str(p) for p in store.records().problems] == [
        ".0123.d.json.part: is an unfinished write, left by a process that died; nothing refers to it"
    ]
    store.add(record("d"))  # and it is in nobody's way
    assert "d" in {r.id for r in store.records().records}


# --- disks that refuse --------------------------------------------------------------------------------------


def test_an_unwritable_folder() -> None:
    with as_ordinary_user() as home:
        home.chmod(0o555)
        with pytest.raises(CannotDo, match=r"^store: cannot write .*store.*: Permission denied$"):
            Store(home / "store", create=True).add(record("a"))
        assert list(home.iterdir()) == []
        home.chmod(0o755)
        store = Store(home / "store", create=True)
        store.add(record("a"))
        (store.path / RECORDS).chmod(0o555)
        with pytest.raises(CannotDo, match=r"^store: cannot write .*d\.json: Permission denied$"):
            store.add(record("d"))
        (store.path / RECORDS).chmod(0o755)
        assert [r.id for r in store.records().records] == ["a"]
        assert store.records().problems == ()


@pytest.mark.parametrize("step", ["write", "fsync", "link", "open"])
def test_a_full_disk_at_any_step_leaves_no_trace(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = everything(store.path)
    real = getattr(os, step)
    calls = 0

    def full(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if step == "write":
            real(args[0], bytes(args[1][:10]))  # some of it lands, as on a real full disk
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(
        CannotDo, match=r"^store: cannot write .*d\.json: No space left on device; 0 of 2 records were"
    ):
        store.add_all([record("d"), record("e")])
    monkeypatch.setattr(os, step, real)
    assert calls == 1
    assert everything(store.path) == before


def test_a_disk_that_fills_up_half_way_says_how_far_it_got(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.link, 0

    def second_fails(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args)

    monkeypatch.setattr(os, "link", second_fails)
    with pytest.raises(CannotDo, match=r"e\.json: No space left on device; 1 of 3 records were written$"):
        store.add_all([record("d"), record("e"), record("f")])
    assert [r.id for r in store.records().records] == ["a", "b", "c", "d"]
    assert store.records().problems == ()


def test_a_short_write_is_carried_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:97])))
    store.add(record("d"))
    assert [r for r in store.records().records if r.id == "d"] == [record("d")]
