"""Every command's promise: the JSON keys that stay, one object on stdout, and answers that agree with each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from race.store import Store

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CURVE = EXAMPLES / "learning_curve.csv"
ABOUT = EXAMPLES / "learning_curve.toml"
Race = Callable[..., Any]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store holding the three example curves."""
    from race.importers import import_log

    path = tmp_path_factory.mktemp("evidence") / "store"
    Store(path, create=True).add_all(import_log(CURVE, about=ABOUT))
    return path


def has(data: Any, dotted: str) -> bool:
    for key in dotted.split("."):
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


PLAN_KEYS = (
    "budget", "reward", "target", "evidence.real", "evidence.imported", "evidence.simulated", "regime.label",
    "regime.probabilities", "recommendation.model", "recommendation.rho.mean", "recommendation.rho.lo",
    "recommendation.rho.hi", "recommendation.update_ratio", "recommendation.shares", "recommendation.recipe",
    "recommendation.flops", "recommendation.value.mean", "recommendation.value.lo", "recommendation.value.hi",
    "pilots",
)  # fmt: skip


@pytest.mark.parametrize("reward", ["sparse", "structured", "dense", "proxy-prm", "prm"])
def test_plan(race: Race, reward: str) -> None:
    result = race("plan", "--budget", "1e18", "--reward", reward, "--json")
    assert result.code == 0, result.err
    data = result.json
    assert [key for key in PLAN_KEYS if not has(data, key)] == []
    advice = data["recommendation"]
    assert 0.97 * 10**18 <= advice["flops"]["total"] <= 10**18
    assert sum(advice["flops"][p] for p in ("search", "learning", "reward")) == advice["flops"]["total"]
    assert sum(advice["shares"].values()) == pytest.approx(1)
    assert sum(data["regime"]["probabilities"].values()) == pytest.approx(1)
    for interval in (advice["rho"], advice["value"]):
        assert 0 <= interval["lo"] <= interval["mean"] <= interval["hi"] <= 1
    assert data["evidence"] == {"real": 0, "imported": 0, "simulated": 0}
    assert any("prior" in line for line in data["notes"])
    assert sum(p["budget"] for p in data["pilots"]) <= 10**17


@pytest.mark.parametrize("budget", ["1e17", "2.5e17", "1EFLOP", "1e22"])
def test_plan_spends_the_budget_and_no_more(race: Race, budget: str) -> None:
    data = race("plan", "--budget", budget, "--reward", "prm", "--json", "--pilots", "0").json
    assert 0.97 * data["budget"] <= data["recommendation"]["flops"]["total"] <= data["budget"]


def test_plan_counts_its_evidence_and_moves_with_it(race: Race, evidence: Path) -> None:
    options = ("plan", "--budget", "1e18", "--reward", "sparse", "--target", "pass@1", "--json")
    prior, informed = race(*options).json, race(*options, "--store", evidence).json
    assert informed["evidence"] == {"real": 0, "imported": 3, "simulated": 0}
    width = [
        d["recommendation"]["value"]["hi"] - d["recommendation"]["value"]["lo"] for d in (prior, informed)
    ]
    assert width[1] < width[0]
    assert not any("nothing is measured" in line for line in informed["notes"])


def test_plan_is_reproducible(race: Race, evidence: Path) -> None:
    options = ("plan", "--budget", "1e18", "--reward", "prm", "--store", evidence, "--json", "--seed", "3")
    assert race(*options).out == race(*options).out


def test_plan_on_hardware_is_a_range(race: Race) -> None:
    cost = race(
        "plan", "--budget", "1e18", "--reward", "prm", "--gpu", "H100-SXM", "--gpus", "8", "--json"
    ).json["cost"]
    for key in ("gpu_hours", "wall_hours", "dollars", "kwh"):
        assert 0 < cost[key]["lo"] < cost[key]["point"] < cost[key]["hi"]
    assert cost["wall_hours"]["point"] == pytest.approx(cost["gpu_hours"]["point"] / 8)


def test_flops_agrees_with_plan(race: Race) -> None:
    """The recipe that `plan` prints costs, by `flops`, what `plan` says it costs."""
    advice = race("plan", "--budget", "1e18", "--reward", "prm", "--json").json["recommendation"]
    data = race(
        "flops", advice["model"], "--reward", "prm", "--budget", "1e18",
        "--update-ratio", advice["update_ratio"], "--json",
    ).json  # fmt: skip
    assert data["flops"] == advice["flops"]
    assert data["steps"] == advice["recipe"]["steps"]
    assert data["rho"] == pytest.approx(advice["shares"]["learning"])


def test_flops_keys_and_sums(race: Race) -> None:
    data = race("flops", "Qwen2.5-1.5B", "--steps", "7", "--reward", "prm", "--json").json
    for key in (
        "model",
        "flops.search",
        "flops.learning",
        "flops.reward",
        "flops.total",
        "shares",
        "rho",
        "steps",
    ):
        assert has(data, key), key
    assert data["steps"] == 7
    for phase in ("search", "learning", "reward", "total"):
        assert data["flops"][phase] == 7 * data["per_step"][phase]


def test_flops_shows_other_conventions(race: Race) -> None:
    data = race("flops", "Qwen2.5-1.5B", "--conventions", "--json").json["update_of_one_sample"]
    assert data["race"]["ratio"] == 1
    for name in ("palm", "verl-qwen2", "nemo-rl-qwen2", "transformers-total-flos", "6nd"):
        assert data[name]["ratio"] > 1  # none of them knows what a LoRA update skips


def test_import_then_fit_then_query(race: Race, tmp_path: Path) -> None:
    store, saved = tmp_path / "store", tmp_path / "surrogate"
    imported = race("import", CURVE, "--about", ABOUT, "--store", store, "--json")
    assert imported.code == 0, imported.err
    assert len(imported.json["records"]) == 3
    assert {r["evidence"] for r in imported.json["records"]} == {"imported"}

    fitted = race("fit", store, "--out", saved, "--json")
    assert fitted.code == 0, fitted.err
    assert fitted.json["evidence"] == {"real": 0, "imported": 3, "simulated": 0}
    for left_out in ("run", "model"):
        found = fitted.json["diagnostics"][left_out]
        assert found["count"] >= 3  # several points along each of three curves
        assert 0 <= found["coverage"] <= 1
        assert found["rmse"] < 0.3

    asked = race(
        "query", saved, "--budget", "2e17", "--model", "Qwen2.5-1.5B-Instruct", "--rho", "0.6",
        "--compare", "Qwen2.5-1.5B-Instruct@0.2", "--compare", "Qwen2.5-1.5B-Instruct@0.6", "--json",
    )  # fmt: skip
    assert asked.code == 0, asked.err
    data = asked.json
    for key in ("value.mean", "value.lo", "value.hi", "rho_star.mean", "regime.label"):
        assert has(data, key), key
    assert [c["rho"] for c in data["compare"]] == pytest.approx([0.2, 0.6])
    assert data["compare"][1]["probability_better"] == pytest.approx(0.5)  # a setting against itself


def test_a_recipe_file_is_obeyed(race: Race, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[recipe]\nreward = "prm"\ngroup_size = 4\nlora_targets = ["q_proj", "v_proj"]\n')
    data = race("flops", "Qwen2.5-1.5B", "--recipe", path, "--prompts-per-step", "2", "--json").json
    assert data["reward"] == data["recipe"]["reward"] == "prm"
    assert data["flops"]["reward"] > 0
    assert (data["recipe"]["group_size"], data["recipe"]["prompts_per_step"]) == (4, 2)
    assert list(data["recipe"]["lora"]["targets"]) == ["q_proj", "v_proj"]


def test_a_query_keeps_the_fitted_recipe(race: Race, evidence: Path, tmp_path: Path) -> None:
    saved = tmp_path / "surrogate"
    assert race("fit", evidence, "--out", saved, "--recipe", ABOUT).code == 0
    plain = race("query", saved, "--budget", "1e18", "--json").json
    repeated = race("query", saved, "--budget", "1e18", "--reward", "sparse", "--no-kl", "--json").json
    assert plain == repeated


def test_simulate_fills_a_store(race: Race, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = race(
        "simulate", "--budget", "1e18", "--reward", "prm", "--pilots", "4", "--store", store, "--json"
    )
    assert result.code == 0, result.err
    records = result.json["records"]
    assert len(records) == len(Store(store).records()) == 4
    assert {r["evidence"] for r in records} == {"simulated"}
    for record in records:
        assert record["flops"]["total"] <= record["spec"]["budget"]
        assert set(record["curves"]) == {"native", "pass@1", "judge"}


def test_tables_fit_80_columns_and_say_the_main_thing(race: Race, evidence: Path, tmp_path: Path) -> None:
    saved = tmp_path / "surrogate"
    outputs = [
        race("plan", "--budget", "1e18", "--reward", "prm", "--gpu", "H100-SXM").out,
        race("flops", "Qwen2.5-7B", "--conventions").out,
        race("fit", evidence, "--out", saved).out,
        race("query", saved, "--budget", "1e18").out,
        race("simulate", "--budget", "1e18", "--reward", "prm", "--store", tmp_path / "s").out,
    ]
    for out in outputs:
        assert out.strip()
        assert max(len(line) for line in out.splitlines()) <= 80
        assert "\x1b" not in out
    assert "nothing is measured" in outputs[0]
