"""A text task from names alone, as the command line gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_prm import save_token_classifier

from race.errors import CannotDo, InvalidInput
from real_runs.data import text_task
from real_runs.grading import Grader


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, timeout=1.0) as pool:
        yield pool


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_token_classifier(tmp_path_factory.mktemp("model") / "policy"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(json.dumps({"q": f"{k} + 1?", "a": str(k + 1)}) for k in range(60)))
    return path


def test_from_a_folder_and_a_file(grader: Grader, model: str, data: Path) -> None:
    task = text_task(
        model, grader, data=data, prompt_column="q", answer_column="a", max_prompt_tokens=200, max_completion_tokens=64
    )
    assert task.name == "sums"
    assert task.report.train + task.report.heldout == 60
    assert task.max_completion_tokens == 64


def test_the_model_s_context_is_respected(grader: Grader, model: str, data: Path) -> None:
    with pytest.raises(InvalidInput, match="context of 512"):
        text_task(model, grader, data=data, prompt_column="q", answer_column="a")


def test_a_missing_model_is_one_clear_line(grader: Grader, data: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match=r"tokenizer of .* cannot be read") as error:
        text_task(str(tmp_path / "nowhere"), grader, data=data)
    assert "\n" not in str(error.value)
