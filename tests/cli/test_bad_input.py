"""Bad input: one line on stderr that names the field and what is allowed, the right exit code, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Race = Callable[..., Any]
PLAN = ("plan", "--budget", "1e18", "--reward", "prm")
FACTS = (
    "--reward", "sparse", "--target", "pass@1:gsm8k", "--model", "a=Qwen2.5-1.5B", "--prompts-per-step", "64",
    "--group-size", "8", "--prompt-tokens", "100", "--completion-tokens", "200", "--lora-rank", "16",
)  # fmt: skip


def refuses(result: Any, code: int, *words: str) -> None:
    assert result.code == code, (result.out, result.err)
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err, result.err


@pytest.mark.parametrize(
    "budget",
    ["-1", "0", "nan", "inf", "-inf", "1e31", "1e400", "abc", "", "1e18x", "0.5", "1,5e18", "--", "٣e18x"],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_budgets(race: Race, budget: str, as_json: bool) -> None:
    result = race("plan", f"--budget={budget}", "--reward", "prm", *(["--json"] if as_json else []))
    refuses(result, 2, "budget", "1e18")


@pytest.mark.parametrize("budget", ["1", "1e9", "1e12"])
def test_budget_below_one_step(race: Race, budget: str) -> None:
    result = race("plan", "--budget", budget, "--reward", "prm")
    assert result.code in (1, 2)
    refuses(result, result.code, "budget", "below one step")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--reward", "best"), ("reward", "sparse", "prm")),
        (("--reward", "prm", "--target", "accuracy"), ("target", "native", "pass@1")),
        (("--reward", "prm", "--target", "pass@1:"), ("target", "pass@1:gsm8k")),
        (("--reward", "prm", "--ladder", "qwen9"), ("ladder", "qwen2.5")),
        (("--reward", "prm", "--ladder", "Qwen2.5-1.5B"), ("ladder", "at least 2 models")),
        (("--reward", "prm", "--ladder", "Qwen2.5-1.5B,NoSuch-3B"), ("NoSuch-3B",)),
        (("--reward", "prm", "--ladder", "Qwen2.5-1.5B,qwen2.5-1.5b"), ("ladder",)),
        (("--reward", "sparse", "--reward-model", "Qwen2.5-Math-PRM-7B"), ("reward_model", "prm")),
        (("--reward", "prm", "--reward-model", "no-such-prm"), ("no-such-prm",)),
        (("--reward", "prm", "--group-size", "1"), ("group_size", "2")),
        (("--reward", "prm", "--prompts-per-step", "0"), ("prompts_per_step", "1")),
        (("--reward", "prm", "--completion-tokens", "nan"), ("completion_tokens",)),
        (("--reward", "prm", "--update-ratio", "40"), ("update_ratio", "16")),
        (("--reward", "prm", "--lora-rank", "-4"), ("rank",)),
        (("--reward", "prm", "--lora-targets", "nose_proj"), ("nose_proj",)),
        (("--reward", "prm", "--pilot-budget", "150%"), ("pilot_budget",)),
        (("--reward", "prm", "--pilots", "-1"), ("pilots",)),
        (("--reward", "prm", "--gpu", "H900"), ("gpu", "H100-SXM")),
        (("--reward", "prm", "--mfu-search", "0.1"), ("gpu",)),
        (("--reward", "prm", "--gpu", "H100-SXM", "--mfu-search", "3"), ("utilisation.search",)),
        (("--reward", "prm", "--recipe", "no-such.toml"), ("recipe", "no-such.toml")),
        (("--reward", "prm", "--no-such-option"), ("--no-such-option",)),
        ((), ("--reward",)),
    ],
)
def test_plan_options(race: Race, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    refuses(race("plan", "--budget", "1e18", *options), 2, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("NoSuch-7B",), ("NoSuch-7B",)),
        (("Qwen2.5-1.5B", "--rho", "0"), ("rho",)),
        (("Qwen2.5-1.5B", "--rho", "1"), ("rho",)),
        (("Qwen2.5-1.5B", "--rho", "nan"), ("rho",)),
        (("Qwen2.5-1.5B", "--reward", "prm", "--rho", "0.95"), ("rho", "allowed is rho from")),
        (("Qwen2.5-1.5B", "--rho", "0.4", "--update-ratio", "1"), ("rho",)),
        (("Qwen2.5-1.5B", "--attention", "half"), ("attention", "causal", "full")),
        (("Qwen2.5-1.5B", "--budget", "1e9"), ("budget", "below one step")),
        (("Qwen2.5-1.5B", "--steps", "0"), ("steps",)),
        (("Qwen2.5-1.5B", "--steps", "7", "--budget", "1e16"), ("steps", "budget")),
    ],
)
def test_flops_options(race: Race, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    refuses(race("flops", *options), 2, *words)


@pytest.mark.parametrize(
    "config",
    ["{", "[]", "{}", '{"model_type": "mamba"}', '{"model_type": "qwen2", "hidden_size": -1}', "\x00\xff"],
)
def test_flops_of_a_broken_config(race: Race, tmp_path: Path, config: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(config, encoding="latin-1")
    refuses(race("flops", path), 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("empty",)),
        ("step,a\n", ("row",)),
        ("step,a\n0,0.1\n4,oops\n", ("line 3", "oops")),
        ("step,a\n0,0.1\n4,1.2\n", ("line 3", "1.2")),
        ("step,a\n0,0.1\n4,-0.2\n", ("line 3", "-0.2")),
        ("step,a\n0,0.1\n4,nan\n", ("line 3", "nan")),
        ("step,a\n0,0.1\n4,55\n", ("line 3", "55")),
        ("step,a\n4,0.1\n0,0.2\n", ("line 3", "increasing")),
        ("step,a\n0,0.1\n0,0.2\n", ("line 3", "twice")),
        ("step,a\n0.5,0.1\n", ("line 2", "whole number")),
        ("step,a\n0,0.1,0.3\n", ("line 2",)),
        ("iteration,a\n0,0.1\n", ("step",)),
        ("step,b\n0,0.1\n", ("a",)),
        ("step,a\n0,\n4,\n", ("a",)),
    ],
)
def test_import_of_a_bad_curve(race: Race, tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path, store = tmp_path / "curve.csv", tmp_path / "store"
    path.write_text(text)
    refuses(race("import", path, "--store", store, *FACTS), 2, *words)
    assert not store.exists()


def test_import_of_a_curve_with_gaps(race: Race, tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("step,a\n0,0.1\n4,\n8,0.3\n")
    refuses(
        race("import", path, "--store", tmp_path / "store", *FACTS), 2, "line 3", "empty cell", "allow_gaps"
    )
    assert not (tmp_path / "store").exists()
    result = race("import", path, "--store", tmp_path / "store", *FACTS, "--allow-gaps", "--json")
    assert result.code == 0, result.err
    (record,) = result.json["records"]
    assert record["curves"]["pass@1:gsm8k"]["step"] == [0, 8]


@pytest.mark.parametrize(
    "missing", ["--reward", "--target", "--prompts-per-step", "--group-size", "--lora-rank"]
)
def test_import_never_guesses_what_flops_depend_on(race: Race, tmp_path: Path, missing: str) -> None:
    path, store = tmp_path / "curve.csv", tmp_path / "store"
    path.write_text("step,a\n0,0.1\n4,0.2\n")
    at = FACTS.index(missing)
    result = race("import", path, "--store", store, *FACTS[:at], *FACTS[at + 2 :])
    refuses(result, 2, missing.removeprefix("--").split("-")[0])
    assert not store.exists()


def test_import_again_adds_only_what_is_missing(race: Race, tmp_path: Path) -> None:
    path, store = tmp_path / "curve.csv", tmp_path / "store"
    path.write_text("step,a,b\n0,0.1,0.2\n4,0.2,0.3\n")
    both = (*FACTS, "--model", "b=Qwen2.5-3B")
    assert race("import", path, "--store", store, *both).code == 0
    before = sorted(p.name for p in store.rglob("*"))
    again = race("import", path, "--store", store, *both)
    assert again.code == 0
    assert "2 of 2 records were already in" in again.err
    assert sorted(p.name for p in store.rglob("*")) == before
    next(iter((store / "records").glob("*.json"))).unlink()
    assert race("import", path, "--store", store, *both).code == 0
    assert sorted(p.name for p in store.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[recipe]\nreward = "prm"\n', ("reward", "sparse", "prm")),
        ('[recipe]\nrewrad = "prm"\n', ("rewrad", "allowed")),
        ("kl = true\n[recipe]\ngroup_size = 4\n", ("kl", "[recipe]")),
        ("[recipe]\nlora_targets = 3\n", ("lora_targets",)),
        ('[recipe]\nlora_targets = ["nose_proj"]\n', ("nose_proj",)),
        ("[recipe]\ngroup_size = 1\n", ("group_size",)),
        ("recipe = 3\n", ("recipe",)),
        ("[recipe\n", ("recipe", "TOML")),
    ],
)
def test_recipe_files(race: Race, tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    refuses(race("flops", "Qwen2.5-1.5B", "--reward", "sparse", "--recipe", path), 2, *words)


def test_a_full_disk_behind_a_redirection(process: Any) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    code = (
        "import sys\nsys.stdout = open('/dev/full', 'w')\n"
        "from race.cli import run\nsys.exit(run(['flops', 'Qwen2.5-1.5B']))"
    )
    done = process(code=code)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot read or write")
    assert "Traceback" not in done.stderr


def test_stores(race: Race, tmp_path: Path) -> None:
    refuses(race(*PLAN, "--store", tmp_path / "nowhere"), 1, "nowhere")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("important")
    refuses(race(*PLAN, "--store", foreign), 2, "foreign")
    refuses(race("simulate", "--budget", "1e18", "--reward", "prm", "--store", foreign), 2, "foreign")
    assert [p.name for p in foreign.iterdir()] == ["thesis.tex"]


def test_an_empty_store_and_a_broken_record(race: Race, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert (
        race("simulate", "--budget", "1e18", "--reward", "prm", "--pilots", "2", "--store", store).code == 0
    )
    records = sorted((store / "records").glob("*.json"))
    records[0].write_text(records[0].read_text()[:100])
    result = race(*PLAN, "--store", store, "--json")
    assert result.code == 0
    assert result.json["evidence"]["simulated"] == 1
    assert records[0].name in result.err
    assert any(records[0].name in line for line in result.json["skipped"])
    for record in records:
        record.unlink()
    refuses(race(*PLAN, "--store", store), 1, "no readable record")


def test_surrogates(race: Race, tmp_path: Path) -> None:
    query = ("--budget", "1e18")
    assert race("query", tmp_path / "nowhere", *query).code in (1, 2)
    store, saved = tmp_path / "store", tmp_path / "surrogate"
    assert (
        race("simulate", "--budget", "1e18", "--reward", "prm", "--pilots", "3", "--store", store).code == 0
    )
    assert race("fit", store, "--out", saved).code == 0
    refuses(race("query", saved, *query, "--compare", "Qwen2.5-3B-Instruct"), 2, "compare", "MODEL@RHO")
    refuses(race("query", saved, *query, "--compare", "nano-s@0.5"), 2, "nano-s")
    refuses(race("query", saved, *query, "--rho", "0.99"), 2, "rho")
    refuses(race("query", saved, *query, "--target", "judge,nothing"), 2, "target")
    refuses(race("query", saved, *query, "--model", "Qwen9"), 2, "Qwen9")
    header = json.loads((saved / "surrogate.json").read_text())
    (saved / "surrogate.json").write_text(json.dumps({**header, "schema": "race.surrogate/99"}))
    refuses(race("query", saved, *query), 2, "race.surrogate/99")


def test_no_command_and_unknown_command(race: Race) -> None:
    refuses(race("plann"), 2, "plann")
