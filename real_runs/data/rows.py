"""Problems with answers, read from files or the hub into one shape.

Two layouts: plain columns (a prompt and an answer, by their usual names or by the names you give), and verl's
(``prompt`` a list of chat messages, ``reward_model.ground_truth``, ``extra_info``).

Files are read with pyarrow and the standard library, so a local file needs neither the hub nor a cache.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput

PROMPT_COLUMNS = ("prompt", "problem", "question", "query", "instruction", "input")
ANSWER_COLUMNS = ("answer", "ground_truth", "gold", "final_answer", "expected_answer", "target", "solution")
LEVEL_COLUMNS = ("level", "difficulty")
SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
_ROLES = ("system", "user", "assistant")

Message = Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One problem before tokenisation.

    Attributes
    ----------
    messages
        Chat messages, the last one the user's.
    gold
        The reference answer, as the data has it.
    complete
        True when the prompt says how to answer already (verl layout), so that no instruction is added.
    """

    messages: tuple[Message, ...]
    gold: str
    level: str = ""
    complete: bool = False

    @property
    def question(self) -> str:
        """The last user message."""
        return self.messages[-1]["content"]

    @property
    def id(self) -> str:
        """A content hash, stable across machines, files and row orders."""
        text = json.dumps([[m["role"], m["content"]] for m in self.messages])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Rows:
    """What a source held.

    Attributes
    ----------
    name
        The source, shortened for tables.
    rows
        Usable problems, in order.
    dropped
        How many were not, by reason.
    """

    name: str
    rows: tuple[Row, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


def read_rows(
    path: str | Path, *, prompt_column: str | None = None, answer_column: str | None = None
) -> Rows:
    """Read a local parquet, JSON-lines, JSON or CSV file.

    Raises
    ------
    InvalidInput
        No such file, another kind of file, a broken one, or one without prompts or answers.
    """
    path = Path(path)
    if not path.is_file():
        allowed = ", ".join(SUFFIXES)
        raise InvalidInput(f"data: found no file {str(path)!r}; allowed is a {allowed} file or a data set id")
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInput(f"data: found {path.name!r}; allowed are files ending in {', '.join(SUFFIXES)}")
    records = _READERS[path.suffix.lower()](path)
    return rows_of(records, name=path.stem, prompt_column=prompt_column, answer_column=answer_column)


def rows_of(
    records: Iterable[Mapping[str, Any]],
    *,
    name: str,
    prompt_column: str | None = None,
    answer_column: str | None = None,
) -> Rows:
    """Rows of records in either layout; unusable ones are dropped and counted."""
    records = list(records)
    if not records:
        raise InvalidInput(f"data: {name!r} holds no rows; allowed is at least one problem")
    columns = list(dict.fromkeys(key for record in records[:100] for key in record))
    verl = "reward_model" in columns and prompt_column is None and answer_column is None
    prompt = prompt_column or ("prompt" if verl else _find("prompt", PROMPT_COLUMNS, columns, name))
    answer = answer_column or ("reward_model" if verl else _find("answer", ANSWER_COLUMNS, columns, name))
    for field_name, column in (("prompt_column", prompt), ("answer_column", answer)):
        if column not in columns:
            raise InvalidInput(
                f"{field_name}: found {column!r}; allowed are the columns of {name!r}: {', '.join(columns)}"
            )
    rows: list[Row] = []
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    for number, record in enumerate(records):
        row = _row(record, prompt, answer, f"data: {name!r} row {number}")
        if isinstance(row, str):
            dropped[row] += 1
        elif row.id in seen:
            dropped["repeated prompt"] += 1
        else:
            seen.add(row.id)
            rows.append(row)
    if not rows:
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(dropped.items()))
        raise InvalidInput(
            f"data: no usable row in {name!r} ({reasons}); allowed is a prompt in {prompt!r} and an answer in "
            f"{answer!r}"
        )
    return Rows(name, tuple(rows), dict(dropped))


def _find(what: str, known: Sequence[str], columns: Sequence[str], name: str) -> str:
    for column in known:
        if column in columns:
            return column
    raise InvalidInput(
        f"data: {name!r} has no {what}s: its columns are {', '.join(columns) or 'none'}; name one of them with "
        f"{what}_column, or use one of {', '.join(known)}"
    )


def _row(record: Mapping[str, Any], prompt: str, answer: str, where: str) -> Row | str:
    """The row, or why there is none."""
    value = record.get(prompt)
    complete = not isinstance(value, str)
    messages = ({"role": "user", "content": _clean(value)},) if isinstance(value, str) else _messages(value, where)
    if not messages or not messages[-1]["content"].strip():
        return "empty prompt"
    gold = record.get(answer)
    if isinstance(gold, Mapping):
        gold = gold.get("ground_truth")
    if isinstance(gold, (list, tuple)) and len(gold) == 1:  # one accepted answer, in a list
        gold = gold[0]
    if isinstance(gold, float) and math.isnan(gold):  # how tables spell a missing value
        gold = None
    if isinstance(gold, (int, float)) and not isinstance(gold, bool):
        gold = repr(gold)
    if not isinstance(gold, str) or not gold.strip():
        return "no answer"
    extra = record.get("extra_info")
    levels = (record, extra if isinstance(extra, Mapping) else {})
    level = next((str(r[c]) for r in levels for c in LEVEL_COLUMNS if r.get(c) not in (None, "")), "")
    return Row(messages, gold, level, complete)


def _messages(value: Any, where: str) -> tuple[Message, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidInput(f"{where}: prompt is {type(value).__name__}; allowed is text or a list of chat messages")
    out = []
    for message in value:
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role not in _ROLES or not isinstance(content, str):
            raise InvalidInput(
                f"{where}: found message {str(message)[:60]!r}; allowed is a role ({', '.join(_ROLES)}) and "
                "text content"
            )
        out.append({"role": role, "content": _clean(content)})
    if out and out[-1]["role"] != "user":
        raise InvalidInput(f"{where}: the last message is the {out[-1]['role']}'s; allowed is one of the user")
    return tuple(out)


def _clean(text: str) -> str:
    """Without the lone surrogates that JSON allows and no tokenizer accepts."""
    return text.encode("utf-8", "replace").decode()


def _read_parquet(path: Path) -> list[Mapping[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CannotDo("data: parquet files need pyarrow; install it with: pip install 'race-rl[runs]'") from None
    try:
        rows: list[Mapping[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InvalidInput(f"data: {path.name!r} is no readable parquet file ({_first_line(error)})") from None


def _read_jsonl(path: Path) -> list[Mapping[str, Any]]:
    records: list[Mapping[str, Any]] = []
    # Only line feeds end a record: splitlines() would also cut at U+2028 and others that JSON allows inside text.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"data: {path.name!r} line {number} is no JSON ({_json_problem(error)})") from None
        if not isinstance(record, dict):
            raise InvalidInput(f"data: {path.name!r} line {number} is {type(record).__name__}; allowed is an object")
        records.append(record)
    return records


def _read_json(path: Path) -> list[Mapping[str, Any]]:
    try:
        data = json.loads(_text(path))
    except json.JSONDecodeError:
        return _read_jsonl(path)  # JSON lines under the other name, as many data sets ship them
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"data: {path.name!r} is no JSON ({_json_problem(error)})") from None
    if not isinstance(data, list) or not all(isinstance(x, dict) for x in data):
        raise InvalidInput(f"data: {path.name!r} is no list of objects")
    return data


def _read_csv(path: Path) -> list[Mapping[str, Any]]:
    reader = csv.DictReader(io.StringIO(_text(path)))
    try:
        return [{k: v for k, v in record.items() if k is not None} for record in reader]
    except csv.Error as error:
        raise InvalidInput(f"data: {path.name!r} is no readable CSV file ({error})") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"data: {path.name!r} cannot be read as UTF-8 text ({_first_line(error)})") from None


def _json_problem(error: BaseException) -> str:
    """What is wrong, which for a number of thousands of digits or bottomless nesting is no decoding error."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deep" if isinstance(error, RecursionError) else _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


_READERS = {".parquet": _read_parquet, ".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv}
