"""``race card`` and ``race import`` on trainers' logs, the way a person runs them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parents[1] / "importers" / "samples" / "trl"
Race = Callable[..., Any]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / "lora-reuse-kl", tmp_path / "run"))


def test_json_has_the_keys_that_stay(race: Race, log: Path) -> None:
    result = race("card", log, "--reward", "sparse", "--gpu", "H100-SXM", "--gpus", 2, "--json")
    assert (result.code, result.err) == (0, "")
    card = result.json["card"]
    assert set(card) == {
        "schema", "source", "model", "params", "steps", "convention", "flops", "shares", "rho", "regime", "passes",
        "executed", "tokens", "waste", "assumptions", "settled", "trainer_figures", "curve", "hardware", "notes",
        "unknown_keys",
    }  # fmt: skip
    assert card["flops"]["total"] == pytest.approx(sum(card["passes"].values()))
    assert card["hardware"]["count"] == 2
    assert card["hardware"]["kwh"]["lo"] < card["hardware"]["kwh"]["hi"]
    assert str(log) not in result.out  # a card travels; people's folders do not


def test_the_table_says_everything_at_eighty_columns(race: Race, log: Path) -> None:
    result = race("card", log)
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 80
    for words in ("search", "learning", "reward", "total", "rho", "regime", "not settled", "waste", "old log-probs",
                  "total_flos", "Counted:"):  # fmt: skip
        assert words in result.out


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_renderings(race: Race, log: Path, form: str) -> None:
    result = race("card", log, "--as", form)
    assert result.code == 0
    assert result.out.startswith("## Compute" if form == "markdown" else "% needs")
    assert result.out.count("\n") > 10


def test_as_json_is_json(race: Race, log: Path) -> None:
    assert race("card", log, "--as", "json").json == race("card", log, "--json").json


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--as", "pdf"), "as: found 'pdf'; allowed are table, markdown, latex, json"),
        (("--attention", "flash"), "attention: found 'flash'; allowed are causal and full"),
        (("--format", "slime"), "format: found 'slime'; allowed are auto, trl, verl"),
        (("--model", "qwen2.5-1.5bb"), "did you mean qwen2.5-1.5b"),
        (("--gpus", "4"), "gpu: missing"),
        (("--reward", "good"), "reward: found 'good'"),
        (("--reward", "sparse", "--reward-model", "qwen2.5-1.5b"), "rule-based rewards run no model"),
        (("--config", "nowhere.json"), "config: nowhere.json: cannot be read"),
        (("--run", "2"), "run: found 2; allowed are 1 to 1"),
        (("--lora-targets", "q_proj"), "lora_rank: missing beside lora_targets"),
        (("--prompts-per-step", "500"), "completions of"),
    ],
)
def test_bad_usage_is_one_line(race: Race, log: Path, args: tuple[str, ...], message: str) -> None:
    result = race("card", log, *args)
    assert result.code == 2
    assert result.out == ""
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_missing_model_is_asked_for(race: Race, log: Path) -> None:
    for name in ("config.json", "adapter_config.json"):
        (log / name).unlink()
    result = race("card", log, "--lora-rank", 8)
    assert result.code == 2
    assert "model: missing; trainer_state.json does not say which model" in result.err
    assert race("card", log, "--model", SAMPLES / "lora" / "config.json", "--lora-rank", 8).code == 0


def test_what_the_user_says_wins_and_is_no_assumption(race: Race, log: Path) -> None:
    card = race("card", log, "--reward", "sparse", "--prompt-tokens", 20, "--json").json["card"]
    assert card["settled"]["prompt_tokens"] == {"value": "20", "source": "given"}
    assert card["tokens"]["mean_prompt"] == 20
    names = {a["name"] for a in race("card", log, "--json").json["card"]["assumptions"]}
    assert "reward_model" in names
    assert "reward_model" not in {a["name"] for a in card["assumptions"]}


def test_import_makes_evidence_that_a_plan_uses(race: Race, log: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = race("import", log, "--store", store, "--reward", "sparse", "--model", "nano-s", "--json")
    assert result.code == 0
    (record,) = result.json["records"]
    assert record["evidence"] == "imported"
    assert record["provenance"]["importer"] == "trl"
    plan = race(
        "plan", "--ladder", "nano", "--budget", "5e12", "--reward", "sparse", "--store", store, "--json"
    )
    assert plan.code == 0
    assert plan.json["evidence"]["imported"] == 1
    again = race("import", log, "--store", store, "--reward", "sparse", "--model", "nano-s")
    assert again.code == 0
    assert "1 of 1 records were already in" in again.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--series", "pass@1"), "series: found 'pass@1'; allowed is TARGET=KEY"),
        (("--series", "pass@2=reward"), "target: found 'pass@2'"),
        (("--native-range", "1"), "native_range: found '1'; allowed are two numbers"),
        (("--native-range", "2,1"), "native_range: found (2.0, 1.0)"),
        (("--format", "xls"), "format: found 'xls'; allowed are auto, trl"),
    ],
)
def test_bad_import_is_one_line(
    race: Race, log: Path, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    result = race("import", log, "--store", tmp_path / "s", "--reward", "sparse", *args)
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "s").exists()


def test_a_damaged_log_can_be_salvaged(race: Race, log: Path) -> None:
    state = log / "trainer_state.json"
    text = state.read_text()
    state.write_text(text[: len(text) // 2])
    refused = race("card", log)
    assert refused.code == 2
    assert "complete entries come before it" in refused.err
    assert "--salvage" in refused.err
    card = race("card", log, "--salvage", "--json").json["card"]
    assert card["steps"] < len(json.loads(text)["log_history"])


def test_torch_is_not_needed_for_a_card(process: Any, log: Path) -> None:
    code = (
        "import sys; from race.cli import run; run(sys.argv[1:]); "
        "heavy = ('torch', 'transformers', 'tensorboard', 'scipy', 'optuna'); "
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = process("card", str(log), "--json", code=code)
    assert done.stderr.strip() == "[]"
    assert json.loads(done.stdout)["card"]["steps"] == 8
