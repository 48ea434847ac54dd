"""Several writers at once, killed without warning; and how fast a large store loads."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from store_records import record

from race.errors import InvalidInput
from race.store import RECORDS, Store

WRITER = Path(__file__).with_name("writer.py")


def start(
    folder: Path, name: str, count: int, *, stdout: int | IO[str] = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(folder), name, str(count)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def wait_for_a_line(path: Path) -> None:
    """Return once the writer that says its ids into ``path`` has said one."""
    deadline = time.monotonic() + 60
    while b"\n" not in path.read_bytes():
        assert time.monotonic() < deadline, "a writer did not start"
        time.sleep(0.01)


def test_writers_killed_at_random_moments_lose_nothing_they_said_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    rng = random.Random(7)
    said: set[str] = set()
    killed = 0
    for wave in range(3):
        # Into files, not pipes: what a writer said before the kill is then all there.
        logs = [tmp_path / f"said-{wave}-{i}" for i in range(4)]
        writers = []
        for i, log in enumerate(logs):
            with log.open("w") as out:
                writers.append(start(folder, f"w{wave}{i}", 1000, stdout=out))
        for log in logs:
            wait_for_a_line(log)
        time.sleep(rng.uniform(0.05, 0.4))
        for writer in writers:
            time.sleep(rng.uniform(0, 0.1))
            writer.kill()
        for writer, log in zip(writers, logs, strict=True):
            assert writer.communicate()[1] == ""
            assert writer.returncode == -9
            killed += 1
            said.update(log.read_text().split("\n")[:-1])  # a line cut by the kill was not said
        loaded = Store(folder).records()
        assert loaded.problems == ()  # leftovers are too young to be called dead, and no record is torn
        there = {r.id for r in loaded.records}
        assert said <= there
        assert len(there - said) <= killed  # at most the record each writer was at when it died
    survivor = start(folder, "survivor", 3)
    out, err = survivor.communicate(timeout=60)
    assert (out.split(), err, survivor.returncode) == (["survivor-0", "survivor-1", "survivor-2"], "", 0)
    assert said | set(out.split()) <= {r.id for r in Store(folder).records().records}


def test_two_processes_that_want_the_same_id_get_one_record(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    writers = [start(folder, "same", 1) for _ in range(4)]
    results = [(w.communicate(timeout=60), w.returncode) for w in writers]
    assert sorted(code for _, code in results) == [0, 1, 1, 1]
    for (_, err), code in results:
        assert code == 0 or "InvalidInput: id: found 'same-0', which is already in" in err
    assert [r.id for r in Store(folder).records().records] == ["same-0"]
    assert Store(folder).records().problems == ()


def test_threads_racing_for_one_id_and_a_reader_that_only_sees_whole_records(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", create=True)
    store.add(record("first"))
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            loaded = Store(store.path).records()
            assert loaded.problems == ()
            seen.append(len(loaded))

    def add(number: int) -> bool:
        try:
            Store(store.path).add(record(f"r{number % 25}"))
        except InvalidInput:
            return False
        return True

    with ThreadPoolExecutor(5) as pool:
        reader = pool.submit(read)
        won = list(pool.map(add, range(100)))
        stop.set()
        reader.result()
    assert sum(won) == 25
    assert len(store.records()) == 26
    assert seen == sorted(seen)  # append-only: no reader ever saw fewer than before


def test_five_thousand_records_load_in_seconds(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", create=True)
    store.add(record("r0"))
    text = (store.path / RECORDS / "r0.json").read_text()
    for i in range(1, 5000):  # without a flush each, which would take most of the test's time
        (store.path / RECORDS / f"r{i}.json").write_text(text.replace('"r0"', f'"r{i}"'))
    began = time.process_time()
    assert len(Store(store.path).records()) == 5000
    cold = time.process_time() - began
    store.records()
    began = time.process_time()
    assert len(store.records()) == 5000
    again = time.process_time() - began
    assert cold < 15
    assert again < cold / 4
