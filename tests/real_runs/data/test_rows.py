"""Reading data: both layouts, every file kind, and clear words about what is wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from race.errors import CannotDo, InvalidInput
from real_runs.data import load_rows, read_rows, rows_of

PLAIN = [
    {"problem": "What is 1 + 1?", "answer": "2", "difficulty": "1/8"},
    {"problem": "What is 2 + 2?", "answer": "4", "difficulty": "3/8"},
]
VERL = [
    {
        "data_source": "math",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 1?"}],
        "reward_model": {"ground_truth": "2", "style": "rule"},
        "extra_info": {"index": 0, "split": "train", "level": "easy"},
    },
    {
        "data_source": "math",
        "prompt": [{"role": "user", "content": "What is 2 + 2?"}],
        "reward_model": {"ground_truth": "4", "style": "rule"},
        "extra_info": {"index": 1, "split": "train", "level": "hard"},
    },
]


def write_parquet(path: Path, records: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(json.dumps(r) for r in records) + "\n\n")


def write_json(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(records))


def write_csv(path: Path, records: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(records[0]))
        writer.writeheader()
        writer.writerows(records)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    ".parquet": write_parquet,
    ".jsonl": write_jsonl,
    ".json": write_json,
    ".csv": write_csv,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_plain_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"set{suffix}"
    WRITERS[suffix](path, PLAIN)
    rows = load_rows(path)
    assert [(r.question, r.gold, r.level, r.complete) for r in rows.rows] == [
        ("What is 1 + 1?", "2", "1/8", False),
        ("What is 2 + 2?", "4", "3/8", False),
    ]
    assert rows.name == "set"
    assert not rows.dropped


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_verl_layout(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"set{suffix}"
    WRITERS[suffix](path, VERL)
    rows = read_rows(path)
    assert [(r.question, r.gold, r.level, r.complete) for r in rows.rows] == [
        ("What is 1 + 1?", "2", "easy", True),
        ("What is 2 + 2?", "4", "hard", True),
    ]
    assert rows.rows[0].messages[0] == {"role": "system", "content": "Be brief."}


def test_json_lines_under_the_name_json(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    write_jsonl(path, PLAIN)
    assert len(read_rows(path)) == 2


def test_multi_line_csv_cells(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    write_csv(path, [{"question": "line one\nline two, with a comma", "answer": "7"}])
    assert read_rows(path).rows[0].question == "line one\nline two, with a comma"


def test_named_columns_win() -> None:
    records = [{"q": "1 + 1?", "a": 2, "answer": "wrong"}]
    rows = rows_of(records, name="set", prompt_column="q", answer_column="a")
    assert rows.rows[0].gold == "2"


def test_ids_depend_on_content_alone() -> None:
    first = rows_of(PLAIN, name="a").rows
    second = rows_of(list(reversed(PLAIN)), name="b").rows
    assert [r.id for r in first] == [r.id for r in reversed(second)]
    assert first[0].id != first[1].id


def test_unusable_rows_are_counted() -> None:
    records = [*PLAIN, PLAIN[0], {"problem": " ", "answer": "1"}, {"problem": "x?", "answer": None}, {"answer": "3"}]
    rows = rows_of(records, name="set")
    assert len(rows) == 2
    assert rows.dropped == {"repeated prompt": 1, "empty prompt": 2, "no answer": 1}


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([], "holds no rows"),
        ([{"problem": "x?"}], "has no answers: its columns are problem"),
        ([{"answer": "1"}], "has no prompts: its columns are answer"),
        ([{"problem": "x?", "answer": ""}], r"no usable row .*\(1 no answer\)"),
        ([{"problem": "", "answer": "1"}], r"no usable row .*\(1 empty prompt\)"),
        ([{"prompt": 3, "answer": "1"}], "row 0: prompt is int"),
        ([{"prompt": [{"role": "robot", "content": "x"}], "answer": "1"}], "found message"),
        ([{"prompt": [{"role": "user", "content": None}], "answer": "1"}], "found message"),
        (
            [{"prompt": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "answer": "1"}],
            "the last message is the assistant's",
        ),
    ],
)
def test_unusable_data_is_one_clear_line(records: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint) as error:
        rows_of(records, name="set")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("set.parquet", b"not parquet", "no readable parquet"),
        ("set.jsonl", b'{"problem": "x"', "line 1 is no JSON"),
        ("set.jsonl", b'{"problem": "x", "answer": "1"}\n[1]', "line 2 is list"),
        ("set.json", b'{"problem": "x"}', "no list of objects"),
        ("set.csv", b"\xff\xfe\x00", "UTF-8"),
        ("set.txt", b"hello", "allowed are files ending in"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=complaint):
        read_rows(tmp_path / name)


def test_unknown_sources() -> None:
    with pytest.raises(InvalidInput, match="found no file"):
        load_rows("nowhere.parquet")
    with pytest.raises(InvalidInput, match="polaris-53k, gsm8k"):
        load_rows("no such set")
    with pytest.raises(InvalidInput, match="answer_column"):
        rows_of(PLAIN, name="set", answer_column="gold")


HUB = {
    "polaris-53k": ("POLARIS-Project/Polaris-Dataset-53K", None, "train", {"problem": "x?", "answer": "1"}),
    "gsm8k": ("openai/gsm8k", "main", "test", {"question": "x?", "answer": "Think.\n#### 1,234"}),
    "MATH500": ("HuggingFaceH4/MATH-500", None, "test", {"problem": "x?", "solution": "s", "answer": "1", "level": 3}),
    "someone/set:part": ("someone/set", "part", "train", {"prompt": "x?", "answer": "1"}),
}


@pytest.mark.parametrize("source", HUB)
def test_hub_sets_by_name(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """The hub client is called with the published id, configuration and split."""
    import datasets

    repository, config, split, record = HUB[source]
    calls = []

    def load_dataset(*args: object, **options: object) -> object:
        calls.append((*args, options))
        return datasets.Dataset.from_list([record])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows = load_rows(source)
    assert calls == [(repository, config, {"split": split})]
    assert rows.rows[0].question == "x?"
    assert rows.rows[0].gold == record["answer"]


def test_an_unreachable_hub_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def load_dataset(*args: object, **options: object) -> object:
        raise ConnectionError("no route to host\nwith a long\ntraceback")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(CannotDo, match=r"cannot be fetched here \(ConnectionError: no route to host\)") as error:
        load_rows("gsm8k")
    assert "\n" not in str(error.value)


LINE_LIKE = "Wie\u2028viel\u2029ist\x85zwei\x0bmal\x0czwei\x1c?"


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_only_line_feeds_end_a_record(tmp_path: Path, suffix: str) -> None:
    """JSON without escapes and CSV without quotes may hold what str.splitlines() takes for line ends."""
    path = tmp_path / f"set{suffix}"
    in_json = "".join(c for c in LINE_LIKE if ord(c) >= ord(" "))
    record = json.dumps({"question": in_json, "answer": "4"}, ensure_ascii=False)
    lines = [record, record.replace("Wie", "So")] if suffix == ".jsonl" else ["question,answer", f"{LINE_LIKE},4"]
    path.write_text("\r\n".join(lines), encoding="utf-8", newline="")
    rows = read_rows(path).rows
    assert len(rows) == (2 if suffix == ".jsonl" else 1)
    assert "\u2028viel" in rows[0].question
    assert rows[0].gold == "4"


def test_missing_values_of_tables_are_no_answers(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"question": "a", "answer": NaN}\n{"question": "b", "answer": 2.5}\n')
    rows = read_rows(path)
    assert [r.gold for r in rows.rows] == ["2.5"]
    assert rows.dropped == {"no answer": 1}


@pytest.mark.parametrize("name", ["set.json", "set.jsonl"])
@pytest.mark.parametrize("content", ['{"answer": ' + "9" * 5000 + "}", "[" * 100_000])
def test_json_that_python_cannot_hold(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match="no JSON") as error:
        read_rows(tmp_path / name)
    assert "\n" not in str(error.value)
