from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from race.errors import CannotDo, InvalidInput
from race.importers import ModelRef, facts_of

TOML = """
target = "pass@1:gsm8k"
eval_size = 100
seed = 3
source = "a paper"
assumptions = ["lengths are guesses"]

[models]
a = "qwen2.5-1.5b"
b = {name = "mine", config = "sub/config.json", seed = 7}

[recipe]
reward = "sparse"
group_size = 4
lora_rank = 0
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "about.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_toml_file_says_it_all(tmp_path: Path) -> None:
    facts = facts_of(written(tmp_path, TOML), {})
    assert (facts.target, facts.eval_size, facts.seed, facts.source) == ("pass@1:gsm8k", 100, 3, "a paper")
    assert facts.assumptions == ("lengths are guesses",)
    assert facts.models == {"a": ModelRef("qwen2.5-1.5b"), "b": ModelRef("mine", "sub/config.json", 7)}
    assert facts.recipe == {"reward": "sparse", "group_size": 4, "lora_rank": 0}


def test_options_win_entry_by_entry(tmp_path: Path) -> None:
    facts = facts_of(
        written(tmp_path, TOML),
        {
            "target": "native",
            "seed": None,
            "models": {"a": "qwen2.5-3b"},
            "recipe": {"group_size": 8},
            "source": None,
        },
    )
    assert (facts.target, facts.seed, facts.source) == ("native", 3, "a paper")
    assert facts.models["a"] == ModelRef("qwen2.5-3b")
    assert facts.models["b"].name == "mine"
    assert facts.recipe == {"reward": "sparse", "group_size": 8, "lora_rank": 0}


def test_a_config_beside_the_file_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "config.json").write_text("{}")
    facts = facts_of(written(tmp_path, TOML), {})
    assert facts.models["b"].config == str(tmp_path / "sub" / "config.json")


def test_without_a_file_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert facts_of(None, {"target": "judge"}).target == "judge"
    assert facts_of(written(tmp_path, b"\xef\xbb\xbf" + TOML.encode()), {}).seed == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target = ", r"is not TOML: "),
        (b"\xff\xfe\x00", r"is not TOML: "),
        ("colour = 3", r"unknown key 'colour'; allowed are target, eval_size"),
        ("group_size = 8", r"unknown key 'group_size'"),
        ("models = 3", r"models: found 3; allowed is a table"),
        ("recipe = []", r"recipe: found \[\]; allowed is a table"),
        ("assumptions = 'one'", r"assumptions: found 'one'; allowed is a list of sentences"),
        ("assumptions = [1]", r"assumptions: found \(1,\); allowed is a list of sentences"),
        ("target = 3", r"target: found 3"),
        ("eval_size = '1319'", r"eval_size: found '1319'"),
        ("seed = true", r"seed: found True"),
        ("a = " + "[" * 3000 + "]" * 3000, r"is not TOML|unknown key"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        facts_of(written(tmp_path, text), {})
    assert "\n" not in str(caught.value)


def test_missing_folders_and_large_files(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "is a folder"), (tmp_path / "no.toml", "there is no such file")):
        with pytest.raises(InvalidInput, match=rf"^about: .*{what}; allowed is a TOML file"):
            facts_of(path, {})
    with pytest.raises(InvalidInput, match=r"is larger than 1 MiB"):
        facts_of(written(tmp_path, "#" * (2**20 + 1)), {})


def test_an_unreadable_file_is_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, TOML)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CannotDo, match=r"^about: .*cannot be read: Permission denied"):
        facts_of(path, {})
