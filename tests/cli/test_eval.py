"""``race eval``: bases, adapters and runs, with the same numbers for the same thing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
torch.set_num_threads(1)

Race = Callable[..., Any]
FEW = ("--problems", "50", "--set", "threads=1", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run whose learning rate is high enough to change every completion."""
    from race.cli import run

    out = tmp_path_factory.mktemp("eval") / "run"
    assert run(["run", "--model", "nano-s", "--budget", "9e9", "--out", str(out), "--monitor", "none", "--set",
                "eval_problems=50", "--set", "threads=1", "--set", "eval_points=1", "--set", "learning_rate=0.003",
                "--reward", "structured"]) == 0  # fmt: skip
    return out


def test_a_base_model(race: Race) -> None:
    result = race("eval", "nano-s", "--samples", "4", *FEW)
    assert result.code == 0, result.err
    targets = result.json["targets"]
    levels = {"": {"2", "3", "4", "5", "6"}, ":easy": {"2", "3"}, ":hard": {"5", "6"}}
    assert set(targets) == {name + of for name in ("pass@1", "pass@2", "pass@4", "judge") for of in levels}
    assert targets["pass@1"]["value"] < targets["pass@2"]["value"] < targets["pass@4"]["value"]
    for name, value in targets.items():
        assert 0 <= value["lo"] < value["value"] < value["hi"] <= 1
        assert set(value["levels"]) == levels["".join(name.partition(":")[1:])]
    assert result.json["flops"] > 0
    assert result.json["problems"] == {"nano": 50, "easy": 50, "hard": 50}
    assert race("eval", "nano-s", "--samples", "4", *FEW).json == result.json


def test_an_adapter_is_not_its_base(race: Race, folder: Path, tmp_path: Path) -> None:
    base = race("eval", "nano-s", *FEW).json
    moved = shutil.copytree(folder / "adapter", tmp_path / "elsewhere")
    adapter, run = race("eval", moved, *FEW).json, race("eval", folder, *FEW).json
    assert adapter["targets"] != base["targets"]
    assert (adapter["model"], run["model"]) == ("nano-s", "nano-s")
    assert adapter["flops"] > 0
    # The run's folder also knows what it was trained on.
    native = {k: v for k, v in run["targets"].items() if k.startswith("native")}
    assert set(native) == {"native", "native:easy", "native:hard"}
    assert {**adapter["targets"], **native} == run["targets"]


def test_greedy_does_not_depend_on_the_seed(race: Race, folder: Path) -> None:
    found = [race("eval", folder, "--greedy", "--seed", seed, *FEW).json["targets"] for seed in ("1", "2")]
    assert found[0] == found[1]


def test_a_model_trained_whole(race: Race, tmp_path: Path) -> None:
    out = tmp_path / "full"
    options = (
        "--set",
        "eval_problems=20",
        "--set",
        "threads=1",
        "--set",
        "learning_rate=0.002",
        "--monitor",
        "none",
    )
    assert (
        race(
            "run", "--model", "nano-s", "--budget", "1.2e10", "--out", out, "--lora-rank", "0", *options
        ).code
        == 0
    )
    trained, base = race("eval", out, *FEW).json, race("eval", "nano-s", *FEW).json
    assert trained["adapter"] is None
    assert trained["targets"]["pass@1"] != base["targets"]["pass@1"]


def test_readable(race: Race) -> None:
    out = race("eval", "nano-s", "--problems", "20").out
    for said in ("nano-s", "20 problems", "pass@1", "95 % interval", "judge"):
        assert said in out


def test_what_cannot_be_evaluated(
    race: Race, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    unfinished = shutil.copytree(folder, tmp_path / "unfinished")
    (unfinished / "record.json").unlink()
    nameless = shutil.copytree(folder / "adapter", tmp_path / "nameless")
    other = shutil.copytree(folder / "adapter", tmp_path / "other")
    config = json.loads((nameless / "adapter_config.json").read_text())
    (nameless / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": None}))
    (other / "adapter_config.json").write_text(json.dumps({**config, "r": 5}))
    cases: list[tuple[tuple[object, ...], int, tuple[str, ...]]] = [
        (("nano-xxl",), 2, ("model", "nano-s")),
        (("no/such",), 2, ("data",)),
        (("no/such", "--data", "gsm8k"), 1, ("no/such",)),
        ((unfinished,), 1, ("not finished",)),
        ((nameless,), 2, ("base_model_name_or_path",)),
        ((other,), 2, ("does not fit",)),
        ((folder, "--data", "gsm8k"), 2, ("data", "its own task")),
        ((folder, "--greedy", "--samples", "2"), 2, ("samples", "greedy")),
        ((folder, "--problems", "0"), 2, ("problems",)),
        ((folder, "--set", "recipe.kl=true"), 2, ("set",)),
    ]
    for args, code, words in cases:
        result = race("eval", *args)
        assert (result.code, result.out) == (code, ""), (args, result.err)
        last = result.err.splitlines()[-1]
        assert last.startswith("error: ")
        assert "Traceback" not in result.err
        assert all(word in last for word in words), last
