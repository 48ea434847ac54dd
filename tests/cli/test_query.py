"""``race query`` at its best: comparisons, the best setting, trade-offs, and what would change one's mind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Race = Callable[..., Any]
BUDGET = ("--budget", "1e20")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from race.cli import run

    folder = tmp_path_factory.mktemp("query")
    simulate = ("simulate", *BUDGET, "--reward", "prm", "--world", "own-5", "--pilots", "6", "--target", "native,judge")
    assert run([*simulate, "--store", str(folder / "store")]) == 0
    assert run(["fit", str(folder / "store"), "--out", str(folder / "saved")]) == 0
    return folder / "saved"


def test_the_same_question_has_the_same_digits_whatever_else_is_asked(race: Race, saved: Path) -> None:
    asked = ("query", saved, *BUDGET, "--model", "Qwen2.5-3B-Instruct", "--rho", "0.5", "--json")
    alone = race(*asked).json
    beside = race(*asked, "--compare", "Qwen2.5-7B-Instruct@0.5", "--seed", "7").json
    assert alone["value"] == beside["value"]
    assert 0 <= alone["value"]["lo"] <= alone["value"]["mean"] <= alone["value"]["hi"] <= 1


def test_it_says_the_recipe_and_what_it_costs(race: Race, saved: Path) -> None:
    said = race("query", saved, *BUDGET, "--gpu", "H100-SXM", "--json").json
    total = said["flops"]["total"]
    assert 0.97e20 <= total <= 1e20
    assert sum(said["flops"]["shares"].values()) == pytest.approx(1)
    assert said["recipe"]["steps"] >= 1
    assert said["cost"]["gpu_hours"]["lo"] < said["cost"]["gpu_hours"]["point"]
    assert 0 <= said["collapse_risk"] <= 1


def test_argmax_lists_every_model_best_first(race: Race, saved: Path) -> None:
    said = race("query", saved, *BUDGET, "--argmax", "--json").json
    values = [one["value"]["mean"] for one in said["argmax"]]
    assert values == sorted(values, reverse=True)
    assert len(values) == 3
    assert sum(one["probability_best"] for one in said["argmax"]) == pytest.approx(1)
    assert said["argmax"][0]["model"] == said["setting"]["model"]
    assert race("query", saved, *BUDGET, "--argmax", "--rho", "0.5").code == 2


def test_compare_across_rewards_and_budgets(race: Race, saved: Path) -> None:
    said = race(
        "query", saved, *BUDGET, "--target", "judge", "--model", "Qwen2.5-3B-Instruct", "--rho", "0.5",
        "--compare", "Qwen2.5-3B-Instruct@0.5,budget=1e19", "--compare", "Qwen2.5-3B-Instruct@0.5",
        "--compare", "Qwen2.5-3B-Instruct@0.5,reward=prm,reward-model=Qwen2.5-PRM-0.5B", "--json",
    ).json  # fmt: skip
    poorer, same, cheaper = said["compare"]
    assert poorer["budget"] == 10**19
    assert same["probability_better"] == pytest.approx(0.5, abs=0.02)
    assert cheaper["shares"]["reward"] < said["setting"]["shares"]["reward"]
    assert any("beats" in line and "1e19" in line for line in said["sentences"])


@pytest.mark.parametrize("text", ["Qwen2.5-3B-Instruct@0.5,colour=red", "Qwen2.5-3B-Instruct@0.5,reward=", "@0.5"])
def test_a_comparison_that_cannot_be_read(race: Race, saved: Path, text: str) -> None:
    result = race("query", saved, *BUDGET, "--compare", text)
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 1


def test_native_rewards_of_two_systems_are_not_compared_silently(race: Race, saved: Path) -> None:
    other = ("--compare", "Qwen2.5-3B-Instruct@0.5,reward=sparse", "--json")
    judged = race("query", saved, *BUDGET, "--target", "judge", *other).json
    assert not any("no common scale" in note for note in judged["notes"])
    native = race("query", saved, *BUDGET, *other).json
    assert native["target"] == "native"  # as race plan, race report and a query of records have it
    assert any("no common scale" in note for note in native["notes"])


def test_targets_trade_off(race: Race, saved: Path) -> None:
    said = race("query", saved, *BUDGET, "--target", "native,judge", "--json").json
    assert set(said["targets"]) == {"native", "judge"}
    assert said["target"] == "native"
    for view in said["targets"].values():
        assert view["loss"] == pytest.approx(max(0, view["best"]["value"]["mean"] - view["value"]["mean"]))
    assert said["targets"]["native"]["loss"] < 0.01


def test_what_would_change_your_mind(race: Race, saved: Path) -> None:
    said = race("query", saved, *BUDGET, "--change-mind", "--pilot-budget", "10%", "--json").json
    chances = [mind["probability"] for mind in said["change_mind"]]
    assert chances == sorted(chances, reverse=True) or max(chances) - min(chances) < 0.01
    assert all(0 <= chance <= 1 for chance in chances)
    assert all(mind["budget"] <= 1e19 for mind in said["change_mind"])
    poor = race("query", saved, *BUDGET, "--change-mind", "--pilot-budget", "1e10", "--json").json
    assert poor["change_mind"] == []
    assert "no pilot" in poor["sentences"][-1]


def test_people_get_tables_and_sentences_within_eighty_columns(race: Race, saved: Path) -> None:
    shown = race(
        "query", saved, *BUDGET, "--argmax", "--change-mind", "--target", "native,judge", "--gpu", "H100-SXM",
        "--compare", "Qwen2.5-3B-Instruct@0.5",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    assert "is expected to reach native" in " ".join(shown.out.split())
    assert "\x1b" not in shown.out


def test_numbers_of_a_comparison_add_up_and_say_what_differs(race: Race, saved: Path) -> None:
    other = "Qwen2.5-3B-Instruct@0.5,reward-model=Qwen2.5-PRM-0.5B"
    said = race("query", saved, *BUDGET, "--compare", other, "--change-mind", "--json").json
    gap = said["compare"][0]["difference"]
    assert gap["mean"] == pytest.approx(said["compare"][0]["value"]["mean"] - said["value"]["mean"])
    assert gap["lo"] <= gap["mean"] <= gap["hi"]
    assert "Qwen2.5-3B-Instruct at rho 0.50 scored by Qwen2.5-PRM-0.5B beats" in " ".join(said["sentences"])
    assert said["pilot_budget"] == 10**19
