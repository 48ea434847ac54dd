"""``race run``: from a command line to a record, resumable, and refusing what cannot be run."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from race.records import PilotRecord
from race.store import Store

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
torch.set_num_threads(1)

Race = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
NANO = ("run", "--model", "nano-s", "--reward", "sparse", "--monitor", "none", "--set", "eval_problems=20",
        "--set", "threads=1", "--set", "eval_points=2")  # fmt: skip


def refuses(result: Any, code: int, *words: str) -> None:
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert result.code == code, result.err
    assert result.out == ""
    assert len(lines) == 1, result.err
    assert result.err.splitlines()[-1] == lines[0]
    assert "Traceback" not in result.err
    for word in words:
        assert word in lines[0], lines[0]


def weights(folder: Path) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def test_a_nano_run_end_to_end(race: Race, tmp_path: Path) -> None:
    out, store = tmp_path / "run", tmp_path / "store"
    command = (*NANO, "--budget", "8e9", "--out", out, "--store", store, "--seed", "3", "--json")
    result = race(*command)
    assert result.code == 0, result.err
    record = PilotRecord.from_dict(result.json)
    assert record.evidence == "real"
    assert 0.97 * 8e9 <= record.flops.total <= 8e9
    assert (record.spec.model, record.spec.seed, record.steps > 0) == ("nano-s", 3, True)
    assert set(record.curves) == {"native", "pass@1", "judge"}
    assert all(curve.step[-1] == record.steps for curve in record.curves.values())
    assert [r.id for r in Store(store).records().require()] == [record.id]
    for said in (
        "nano-s, reward sparse",
        "forecast",
        "eval_problems = 20",
        "held-out pass@1",
        "of the budget",
    ):
        assert said in " ".join(result.err.split())
    assert (
        json.loads((out / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
        == "nano-s"
    )

    again = race(*command)
    assert (again.code, again.json["id"]) == (0, record.id)
    assert "already" in again.err
    assert len(Store(store).records().require()) == 1

    refuses(race(*command, "--group-size", "4"), 2, "group_size", "another folder")
    refuses(race(*command, "--set", "learning_rate=1e-5"), 2, "learning_rate", "another folder")
    refuses(race(*command, "--reward", "structured"), 2, "reward", "another folder")


def test_true_accuracy_beside_a_learned_reward(race: Race, tmp_path: Path) -> None:
    result = race("run", "--model", "nano-s", "--reward", "prm", "--monitor", "none", "--set", "eval_problems=20",
                  "--set", "threads=1", "--set", "eval_points=2", "--budget", "2e10", "--out", tmp_path,
                  "--json")  # fmt: skip
    assert result.code == 0, result.err
    assert "accuracy 0." in result.err
    rows = result.json["provenance"]["training"]
    assert len(rows) == 2
    for row in rows:
        assert {"reward", "prm", "accuracy", "steps_per_completion", "tokens_per_step"} <= set(row)
    steps = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines() if '"step", ' in line]
    metrics = [line["metrics"] for line in steps if line["event"] == "step"]
    assert all({"reward/accuracy", "health/tokens_per_step"} <= set(m) for m in metrics)
    share = sum(m["reward/accuracy"] * m["prompts"] * 8 for m in metrics) / sum(m["prompts"] * 8 for m in metrics)
    told = sum(row["accuracy"] * row["completions"] for row in rows) / sum(row["completions"] for row in rows)
    assert told == pytest.approx(share, abs=0.05)


def test_ctrl_c_keeps_every_step_and_the_rest_is_the_same(race: Race, tmp_path: Path) -> None:
    command = (*NANO, "--budget", "2e10", "--json", "--set", "checkpoint_every=1000")
    whole = race(*command, "--out", tmp_path / "whole")
    ledger = tmp_path / "cut" / "ledger.jsonl"

    def interrupt() -> None:
        for _ in range(3000):
            if ledger.exists() and '"event": "step"' in ledger.read_text():
                return os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    before = signal.getsignal(signal.SIGINT)  # ignored, when the tests themselves run in the background
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    cut = race(*command, "--out", tmp_path / "cut")
    watcher.join()
    refuses(cut, 1, "interrupted at step", str(tmp_path / "cut"), "same command again to resume")
    assert signal.getsignal(signal.SIGINT) is before

    resumed = race(*command, "--out", tmp_path / "cut")
    assert "resumed from step" in resumed.err
    assert "; 0 FLOPs of lost work" in resumed.err
    assert resumed.json["flops"] == whole.json["flops"]
    assert resumed.json["curves"] == whole.json["curves"]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_toml_and_flags_say_the_same(race: Race, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        'model = "nano-s"\nreward = "0.9*proxy-prm+0.1*sparse"\nbudget = "9e9"\n'
        'monitor = "none"\ntargets = ["pass@1"]\n'
        "[recipe]\ngroup_size = 4\n[options]\neval_problems = 10\nthreads = 1\neval_points = 1\n"
    )
    result = race(
        "run", "--config", config, "--rho", "0.5", "--out", tmp_path / "run", "--seed", "1", "--json"
    )
    assert result.code == 0, result.err
    spec = result.json["spec"]
    assert (spec["rho"], spec["seed"], spec["recipe"]["group_size"], spec["targets"]) == (
        0.5,
        1,
        4,
        ["pass@1"],
    )
    assert (spec["recipe"]["reward"], spec["recipe"]["reward_model"]) == ("proxy-prm", "nano-proxy-prm")
    assert result.json["provenance"]["reward"] == "0.9*proxy-prm+0.1*sparse"
    assert result.json["flops"]["reward"] > 0


def test_a_planned_pilot_is_run_as_it_stands(race: Race, tmp_path: Path) -> None:
    plan = race("plan", "--budget", "2e11", "--reward", "sparse", "--ladder", "nano", "--json")
    pilot = next(p for p in plan.json["pilots"] if p["model"] == "nano-s")
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**pilot, "budget": 8 * 10**9}))
    options = ("--spec", spec, "--out", tmp_path / "run", "--monitor", "none", "--set", "eval_problems=10")
    result = race("run", *options, "--json")
    assert result.code == 0, result.err
    assert PilotRecord.from_dict(result.json).spec.recipe.to_dict() == pilot["recipe"]
    refuses(race("run", *options, "--budget", "1e10"), 2, "spec", "budget")


def test_without_out_each_run_has_a_folder_of_its_own(
    race: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in ("0", "0", "1"):
        assert race(*NANO, "--budget", "5e9", "--seed", seed).code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_live_table_on_a_terminal(race: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = race(*NANO, "--budget", "9e9", "--kl", "--out", tmp_path / "run")
    assert result.code == 0, result.err
    for said in ("search (rollouts)", "of budget", "ETA", "held-out pass@1", "KL"):
        assert said in result.err
    assert "KL               off" not in result.err
    assert "trained" in result.out


def test_tensorboard_by_default_where_installed(race: Race, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = [o for o in NANO if o not in ("--monitor", "none")]
    assert race(*options, "--budget", "6e9", "--out", tmp_path / "run").code == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"reward", "heldout/pass@1", "flops/search", "loss", "reward/accuracy"} <= set(events.Tags()["scalars"])
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert events.Scalars("flops/total")[-1].value == pytest.approx(record["flops"]["total"], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((), 2, ("model", "nano-s")),
        (("--model", "nano-xl"), 2, ("model", "nano-s", "hub id")),
        (("--model", "nano-s", "--budget", "1e6"), 2, ("budget", "below one step")),
        (("--model", "nano-s", "--budget", "lots"), 2, ("budget", "1e18")),
        (("--model", "nano-s", "--group-size", "1"), 2, ("group_size", "2")),
        (("--model", "nano-s", "--reward", "best"), 2, ("reward", "sparse")),
        (("--model", "nano-s", "--reward", "0.5*prm+0.5*proxy-prm"), 2, ("reward", "at most one learned")),
        (("--model", "nano-s", "--reward", "0.5*prm+0.4*sparse"), 2, ("reward", "add up")),
        (("--model", "nano-s", "--reward", "prm", "--reward-model", "Qwen2.5-Math-PRM-7B"), 2, ("nano-prm",)),
        (("--model", "nano-s", "--rho", "0.01"), 2, ("rho", "allowed is rho from")),
        (("--model", "nano-s", "--rho", "0.5", "--update-ratio", "1"), 2, ("rho", "update_ratio")),
        (("--model", "nano-s", "--target", "accuracy"), 2, ("target", "pass@1")),
        (("--model", "nano-s", "--target", "pass@1:gsm8k"), 2, ("pass@1:gsm8k",)),
        (("--model", "nano-s", "--data", "gsm8k"), 2, ("data", "its own task")),
        (("--model", "nano-s", "--set", "learning_rat=1"), 2, ("learning_rat", "learning_rate")),
        (("--model", "nano-s", "--set", "loss=mine"), 2, ("loss", "dapo")),
        (("--model", "nano-s", "--set", "temperature"), 2, ("set", "name=value")),
        (("--model", "nano-s", "--set", "top_p=0.9", "--update-ratio", "2"), 2, ("top_p",)),
        (("--model", "nano-s", "--set", "device=cuda:7"), 1, ("device", "no GPU")),
        (("--model", "nano-s", "--monitor", "wordpad"), 2, ("monitor", "tensorboard")),
        (("--model", "Qwen2.5-1.5B", "--budget", "1e18"), 2, ("data", "missing")),
        (("--model", "some/where", "--data", "gsm8k"), 1, ("some/where",)),
    ],
)
def test_bad_usage(
    race: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    if torch.cuda.is_available() and "device=cuda:7" in options:
        pytest.skip("there is a GPU")
    result = race("run", *options, "--out", tmp_path / "run", "--json")
    refuses(result, code, *words)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_recipe_that_names_another_reward(race: Race, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('reward = "dense"\n')
    refuses(race(*NANO, "--recipe", recipe, "--out", tmp_path / "run"), 2, "reward", "sparse", "dense")


def test_bad_config_files(race: Race, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    refuses(race("run", "--config", config), 2, "config", "run.toml")
    cases = {"model = ": "TOML", "modle = 'x'": "modle", "options = 3": "table", "seed = 'a'": "seed"}
    for written, word in cases.items():
        config.write_text(written)
        refuses(race("run", "--config", config), 2, "config", word)


def test_folders_and_stores_that_are_something_else(race: Race, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("x")
    refuses(race(*NANO, "--budget", "8e9", "--out", tmp_path / "taken"), 1, "thesis.tex", "empty folder")
    refuses(
        race(*NANO, "--budget", "8e9", "--out", tmp_path / "r", "--store", tmp_path / "taken"), 2, "store"
    )
    assert not (tmp_path / "r").exists()


def test_a_missing_extra_is_named(race: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import real_runs

    monkeypatch.setattr(real_runs, "find_spec", lambda name: None)
    for command in ((*NANO, "--out", tmp_path / "run"), ("eval", "nano-s")):
        refuses(race(*command), 1, "pip install 'race-rl[runs]'")


# Text tasks on a tiny random model.


def tiny() -> Any:
    path = ROOT / "tests" / "real_runs" / "prm" / "tiny_prm.py"
    spec = importlib.util.spec_from_file_location("tiny_prm_for_cli", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lm(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny causal LM with a tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    def write(name: str = "tiny-lm", *, broken: bool = False, **tokenizer: Any) -> Path:
        words = tiny().byte_tokenizer(separator=None, **tokenizer)
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), tie_word_embeddings=True, **tiny().SIZES))
        if broken:
            with torch.no_grad():
                model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
        model.save_pretrained(tmp_path / name)
        words.save_pretrained(tmp_path / name)
        return tmp_path / name

    return write


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    return rows(tmp_path, [{"question": f"{k} + 1?", "answer": str(k + 1)} for k in range(80)])


def rows(folder: Path, records: list[dict[str, str]]) -> Path:
    path = folder / "sums.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def text(model: Path, data: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("run", "--model", model, "--data", data, "--out", out, "--budget", "4e9", "--monitor", "none",
            "--prompt-tokens", "100", "--completion-tokens", "8", "--lora-rank", "4", "--group-size", "2",
            "--set", "max_completion_tokens=8", "--set", "max_prompt_tokens=400", "--set", "eval_problems=4",
            "--set", "eval_points=1", "--set", "threads=1", "--json", *more)  # fmt: skip


def test_a_text_run_with_a_process_reward_model(race: Race, lm: Any, sums: Path, tmp_path: Path) -> None:
    prm = tiny().save_qwen_prm(tmp_path / "tiny-prm")
    out = tmp_path / "run"
    command = text(lm(), sums, out, "--reward", "0.9*prm+0.1*sparse", "--reward-model", prm, "--judge-model", prm,
                   "--benchmark", f"plus={sums}", "--set", "prm.dtype=float32")  # fmt: skip
    result = race(*command)
    assert result.code == 0, result.err
    record = PilotRecord.from_dict(result.json)
    assert set(record.curves) == {"native", "pass@1", "judge", "pass@1:plus"}
    assert record.flops.reward > 0
    assert record.spec.recipe.reward_model == str(prm)
    assert "training and" in result.err

    evaluated = race("eval", out, "--problems", "3", "--json")
    assert evaluated.code == 0, evaluated.err
    assert {"native", "pass@1", "judge", "pass@1:plus"} <= set(evaluated.json["targets"])
    elsewhere = race("eval", out / "adapter", "--data", f"again={sums}", "--problems", "3", "--samples", "2", "--json",
                     "--set", "max_completion_tokens=8", "--set", "max_prompt_tokens=400")  # fmt: skip
    assert elsewhere.code == 0, elsewhere.err
    assert set(elsewhere.json["targets"]) == {"pass@1:again", "pass@2:again"}

    sums.write_text(sums.read_text().replace("+ 1?", "+ 1 ?"))
    refuses(race(*command), 2, "digests", "another folder")


def test_equal_rewards_and_a_missing_pad_token_are_told(
    race: Race, lm: Any, sums: Path, tmp_path: Path
) -> None:
    result = race(*text(lm(pad=False), sums, tmp_path / "run"))
    assert result.code == 0, result.err
    assert "all-rewards-equal" in result.json["health"]["flags"]
    assert "no pad token" in result.err


def test_a_loss_that_is_not_finite_is_recorded(race: Race, lm: Any, sums: Path, tmp_path: Path) -> None:
    result = race(*text(lm(broken=True), sums, tmp_path / "run"))
    assert (result.code, result.json["health"]["status"]) == (0, "diverged")


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([{"question": "1 + 1?"}] * 3, ("answer",)),
        ([{"question": "", "answer": "2"}] * 3, ("empty",)),
        ([{"question": "1 + " * 200 + "1?", "answer": "201"}] * 3, ("over 400 tokens",)),
        ([], ("no rows",)),
    ],
)
def test_data_that_cannot_be_used(
    race: Race, lm: Any, tmp_path: Path, records: list[dict[str, str]], words: tuple[str, ...]
) -> None:
    refuses(race(*text(lm(), rows(tmp_path, records), tmp_path / "run")), 2, "data", *words)
    assert not (tmp_path / "run").exists()


def test_models_that_do_not_fit_their_part(race: Race, lm: Any, sums: Path, tmp_path: Path) -> None:
    model, out = lm(), tmp_path / "run"
    prm = tiny().save_qwen_prm(tmp_path / "tiny-prm", tokenizer=tiny().byte_tokenizer(separator="<other>"))
    refuses(race(*text(model, sums, out, "--reward", "prm", "--reward-model", prm)), 2, "separator")
    unpublished = text(model, sums, out, "--reward", "proxy-prm", "--budget", "1e13")
    refuses(race(*unpublished), 2, "reward_model", "no published checkpoint")
    refuses(race(*text(lm("no-eos", eos=False), sums, out)), 2, "eos")
    refuses(race(*text(model, sums, out, "--set", "max_prompt_tokens=2000")), 2, "context of 512")
    half = tiny().save_token_classifier(tmp_path / "half")
    refuses(race(*text(half, sums, out)), 1, "lm_head.weight")
    assert not (out / "ledger.jsonl").exists()


def test_nano_has_an_easy_and_a_hard_benchmark(race: Race, tmp_path: Path) -> None:
    targets = ("--target", "pass@1:easy,pass@1:hard", "--set", "eval_problems=60")
    result = race(*NANO, "--budget", "6e9", *targets, "--out", tmp_path / "run", "--json")
    assert result.code == 0, result.err
    curves = PilotRecord.from_dict(result.json).curves
    assert set(curves) == {"pass@1:easy", "pass@1:hard"}
    assert curves["pass@1:easy"].value[0] > curves["pass@1:hard"].value[0]
