from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importer_samples import RECIPE

from race.allocation import step_allocation
from race.errors import InvalidInput
from race.importers import ModelRef, import_curves, import_log
from race.importers._rebuild import standard_error
from race.ladders import model
from race.recipe import Recipe
from race.records import PilotRecord
from race.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
FACTS: dict[str, Any] = {**RECIPE, "target": "pass@1:gsm8k", "models": {"a": "qwen2.5-1.5b"}}


def imported(folder: Path, text: str | bytes, **facts: Any) -> list[PilotRecord]:
    path = folder / "c.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_curves(path, **{**FACTS, **facts})


def test_flops_are_rebuilt_from_the_recipe(tmp_path: Path) -> None:
    (record,) = imported(tmp_path, "step,a\n0,0.1\n10,0.2\n25,0.4\n", kl=True, gradient_checkpointing=True)
    rung = model("qwen2.5-1.5b")
    step = step_allocation(rung.architecture, record.spec.recipe)
    assert record.flops == step * 25
    assert type(record.flops.total) is int
    assert record.spec.budget == step.total * 25
    assert record.spec.rho == step.rho
    assert record.steps == 25
    assert (record.spec.model, record.spec.params) == (rung.name, rung.params)
    assert record.spec.recipe.kl
    assert record.spec.recipe.lora is not None
    assert record.spec.recipe.lora.rank == 16
    curve = record.curves["pass@1:gsm8k"]
    assert curve.step == (0, 10, 25)
    assert curve.flops == (0, step.total * 10, step.total * 25)
    assert curve.value == (0.1, 0.2, 0.4)
    assert record.spec.targets == ("pass@1:gsm8k",)


def test_mean_lengths_may_be_fractions(tmp_path: Path) -> None:
    (record,) = imported(tmp_path, "step,a\n10,0.2\n", completion_tokens=250.5, prompt_tokens=105.0)
    assert record.spec.recipe.prompt_tokens == 105
    assert type(record.spec.recipe.prompt_tokens) is int
    assert record.spec.budget >= record.flops.total > record.spec.budget - 1


def test_gaps_are_counted_not_filled(tmp_path: Path) -> None:
    text = "step,a,b\n0,,0.1\n5,0.2,\n10,0.3, \n"
    with pytest.raises(InvalidInput, match=r"line 2, column 'a': found an empty cell; .*allow_gaps"):
        imported(tmp_path, text)
    (record,) = imported(tmp_path, text, allow_gaps=True)
    assert record.curves["pass@1:gsm8k"].step == (5, 10)
    assert record.curves["pass@1:gsm8k"].value == (0.2, 0.3)
    assert (record.provenance["gaps"], record.provenance["rows"], record.steps) == (1, 3, 10)
    assert record.provenance["columns_left_out"] == ["b"]


def test_a_column_with_the_base_model_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"column 'a': found values at step 0 only; allowed is at least one value after"
    ):
        imported(tmp_path, "step,a\n0,0.5\n5,\n", allow_gaps=True)


def test_a_run_that_stopped_early_is_charged_to_its_last_value(tmp_path: Path) -> None:
    short, long = imported(
        tmp_path,
        "step,a,b\n10,0.2,0.1\n20,,0.3\n",
        models={"a": "qwen2.5-1.5b", "b": "qwen2.5-1.5b"},
        allow_gaps=True,
    )
    assert (short.steps, long.steps) == (10, 20)
    assert long.flops == short.flops * 2


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_standard_errors_are_binomial_and_never_zero(value: float, size: int) -> None:
    se = standard_error(value, size)
    assert 0 < se <= 0.5
    if size >= 1000 and 0.05 <= value <= 0.95:
        assert se == pytest.approx(math.sqrt(value * (1 - value) / size), rel=0.02)


@pytest.mark.parametrize(
    ("target", "eval_size", "size"),
    [
        ("pass@1:gsm8k", None, 1319),
        ("pass@1:MATH500", None, 500),
        ("pass@1:mine", 77, 77),
        ("native", None, 32),
        ("judge", 64, 64),
    ],
)
def test_the_number_of_questions_behind_a_value(
    tmp_path: Path, target: str, eval_size: int | None, size: int
) -> None:
    (record,) = imported(tmp_path, "step,a\n1,0.5\n", target=target, eval_size=eval_size)
    assert record.provenance["eval_size"] == size
    assert record.curves[target].se == (standard_error(0.5, size),)


def test_an_unknown_benchmark_needs_its_size(tmp_path: Path) -> None:
    for target in ("pass@1:mine", "pass@1", "judge"):
        with pytest.raises(
            InvalidInput, match=rf"^eval_size: missing.*how many questions {target} was evaluated on"
        ):
            imported(tmp_path, "step,a\n1,0.5\n", target=target)


def test_defaults_that_were_taken_are_listed(tmp_path: Path) -> None:
    (record,) = imported(tmp_path, "step,a\n1,0.5\n", kl=False)
    taken = record.provenance["assumptions"]
    assert "update_ratio = 1.0 (not given)" in taken
    assert "prefix_caching = True (not given)" in taken
    assert not any("kl" in line or "group_size" in line for line in taken)


def test_a_whole_recipe_leaves_nothing_to_assume(tmp_path: Path) -> None:
    recipe = Recipe("prm", prompts_per_step=8, group_size=4, lora=None)
    path = tmp_path / "c.csv"
    path.write_text("step,a\n10,0.5\n")
    (record,) = import_curves(path, recipe=recipe, target="native", models={"a": "qwen2.5-1.5b"})
    assert record.spec.recipe == recipe
    assert record.provenance["assumptions"] == []
    assert record.flops.reward > 0


def test_full_fine_tuning_and_chosen_projections(tmp_path: Path) -> None:
    (full,) = imported(tmp_path, "step,a\n1,0.5\n", lora_rank=0)
    (some,) = imported(tmp_path, "step,a\n1,0.5\n", lora_targets="q_proj, v_proj")
    assert full.spec.recipe.lora is None
    assert some.spec.recipe.lora is not None
    assert some.spec.recipe.lora.targets == ("q_proj", "v_proj")
    assert full.flops.learning > some.flops.learning


def test_columns_are_model_names_unless_said_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("Step,qwen2.5-1.5b,qwen2.5-3b\n5,0.2,0.3\n")
    records = import_curves(path, target="pass@1:gsm8k", **RECIPE)
    assert [r.spec.model for r in records] == ["qwen2.5-1.5b", "qwen2.5-3b"]
    (one,) = import_curves(path, target="pass@1:gsm8k", models={"qwen2.5-3b": "qwen2.5-7b"}, **RECIPE)
    assert one.spec.model == "qwen2.5-7b"
    assert one.provenance["columns_left_out"] == ["qwen2.5-1.5b"]


def test_two_seeds_of_one_model_and_a_model_of_ones_own(tmp_path: Path) -> None:
    config = EXAMPLES.parent / "tests" / "importers" / "tiny_config.json"
    first, second, own = imported(
        tmp_path,
        "step,s0,s1,mine\n5,0.2,0.2,0.4\n",
        models={
            "s0": "qwen2.5-1.5b",
            "s1": {"name": "qwen2.5-1.5b", "seed": 1},
            "mine": ModelRef("tiny", config=str(config)),
        },
    )
    assert (first.spec.seed, second.spec.seed) == (0, 1)
    assert first.id != second.id
    assert (own.spec.model, own.spec.params) == ("tiny", 139_840)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffstep,a\n5,0.5\n",
        "step,a\r\n5,0.5\r\n",
        "step,a\n5,0.5",
        "\nstep,a\n\n5,0.5\n\n\n",
        ' step , "a" \n"5"," 0.5 "\n'.replace(', "a"', ",a"),
        "STEP,a\n5.0,5e-1\n",
        "step,a\n5,.5\n",
        "a,step\n0.5,5\n",
    ],
)
def test_spellings_of_the_same_table(tmp_path: Path, text: str) -> None:
    (record,) = imported(tmp_path, text)
    assert record.curves["pass@1:gsm8k"].step == (5,)
    assert record.curves["pass@1:gsm8k"].value == (0.5,)


BAD: list[tuple[str, str | bytes, str]] = [
    ("text", "step,a\n5,good\n", r"c\.csv, line 2, column 'a': found 'good'; allowed is a number from 0 to 1, or"),
    ("nan", "step,a\n5,nan\n", r"line 2, column 'a': found 'nan'; allowed is"),
    ("NaN late", "step,a\n5,0.5\n9,NaN\n", r"line 3, column 'a': found 'NaN'"),
    ("inf", "step,a\n5,inf\n", r"found 'inf'"),
    ("null", "step,a\n5,None\n", r"found 'None'"),
    ("percent", "step,a\n5,83.2\n", r"found '83\.2'; .*if these are percentages, divide by 100"),
    ("percent sign", "step,a\n5,83.2%\n", r"found '83\.2%'; .*a percentage is divided by 100"),
    ("above", "step,a\n5,1.0001\n", r"found '1\.0001'"),
    ("far above", "step,a\n5,1e300\n", r"found '1e300'; allowed is a number from .*evaluated$"),
    ("negative", "step,a\n5,-0.1\n", r"found '-0\.1'"),
    ("overflow", "step,a\n5,1e999\n", r"found '1e999'"),
    ("underscore", "step,a\n5,0_1\n", r"found '0_1'"),
    ("comma decimal", "step,a\n5,0,5\n", r"line 2: found 3 cells; allowed are 2, one for each of step, a"),
    ("short row", "step,a\n5\n", r"line 2: found 1 cells"),
    ("step text", "step,a\nfive,0.5\n", r"line 2, column 'step': found 'five'; allowed is a whole number of optim"),
    ("step empty", "step,a\n,0.5\n", r"column 'step': found ''"),
    ("step fraction", "step,a\n1.5,0.5\n", r"column 'step': found '1\.5'"),
    ("step negative", "step,a\n-4,0.5\n", r"column 'step': found '-4'"),
    ("step huge", "step,a\n1e13,0.5\n", r"column 'step': found '1e13'"),
    ("back", "step,a\n8,0.5\n4,0.6\n", r"line 3, column 'step': found step 4 after 8; allowed are increasing steps"),
    ("twice", "step,a\n4,0.5\n4,0.6\n", r"line 3, column 'step': found step 4 twice"),
    ("no step", "iteration,a\n4,0.5\n", r"line 1: found no step column 'step' among 'iteration, a'; .*step_column"),
    ("step only", "step\n4\n", r"line 1: found a step column only"),
    ("no model", "step,b\n4,0.5\n", r"^models: found column 'a', which is not in .*; allowed are b$"),
    ("no value", "step,a\n4,\n8,\n", r"line 2, column 'a': found an empty cell"),
    ("empty", "", r"c\.csv: is empty"),
    ("blank", "\n \n\n", r"is empty"),
    ("header only", "step,a\n", r"found a header and no rows"),
    ("commas", "step,a\n,\n", r"line 2, column 'step': found ''"),
    ("same column", "step,a,a\n1,0.5,0.5\n", r"line 1: column 'a' appears twice"),
    ("nameless", "step,,a\n1,0.5,0.5\n", r"line 1, column 2: has no name"),
    ("semicolons", "step;a\n1;0,5\n", r"line 1: columns are separated by semicolons; allowed are commas"),
    ("tabs", "step\ta\n1\t0.5\n", r"columns are separated by tabs"),
    ("open quote", 'step,a\n1,"0.5\n2,0.6\n', r"is not CSV \(.*\)"),
    ("binary", bytes(range(256)), r"c\.csv, line \d+: (is not UTF-8 text|holds binary data)"),
    ("zeros", b"step,a\n1,0.5\n" + b"\0" * 100, r"line 3: holds binary data"),
    ("latin-1", "step,a\n1,0.5\n2,é\n".encode("latin-1"), r"line 3: is not UTF-8 text"),
    ("utf-16", "step,a\n1,0.5\n".encode("utf-16"), r"is UTF-16 or UTF-32 text; allowed is UTF-8"),
    ("utf-32", "step,a\n1,0.5\n".encode("utf-32"), r"is UTF-16 or UTF-32 text"),
    ("long cell", "step,a\n1," + "9" * 500 + "\n", r"found '9{57}\.\.\.'; allowed"),
    ("field too large", "step,a\n1," + "9" * 200_000 + "\n", r"is not CSV \(field larger"),
    ("other scripts", "step,a\n١,0.5\n", r"column 'step': found '١'"),
    ("html", "<!doctype html>\n<html><body>Not found</body></html>\n", r"no step column"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_files_are_one_line_and_nothing_is_written(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        imported(tmp_path, text)
    line = str(caught.value)
    assert re.search(message, line), line
    assert "\n" not in line
    assert len(line) < 600
    assert [p.name for p in tmp_path.iterdir()] == ["c.csv"]


def test_one_bad_cell_in_one_column_imports_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"line 3, column 'b'"):
        imported(tmp_path, "step,a,b\n1,0.5,0.5\n2,0.6,x\n", models={"a": "qwen2.5-1.5b", "b": "qwen2.5-3b"})


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    with path.open("wb") as file:
        file.write(b"step,a\n1,0.5\n")
        file.truncate(200 * 2**20)  # sparse: takes no disk
    with pytest.raises(InvalidInput, match=r"is larger than 64 MiB; allowed is a learning curve"):
        import_curves(path, **FACTS)
    path.write_text("step,a\n" + "".join(f"{i},0.5\n" for i in range(100_002)))
    with pytest.raises(InvalidInput, match=r"more than 100000 rows"):
        import_curves(path, **FACTS)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"models": {"a": "gpt-9"}}, r"^models\[a\]: model: 'gpt-9' is not a built-in name"),
        ({"models": {"a": 5}}, r"^models\[a\]: found 5; allowed is a model name, or a table"),
        ({"models": {"a": {"config": "x"}}}, r"^models\[a\]: found .*allowed is a model name, or a table"),
        ({"models": {"a": {"name": "x", "size": 3}}}, r"^models\[a\]: found"),
        ({"models": {"a": {"name": " "}}}, r"^models\[a\]\.name: found ' '"),
        ({"models": {"a": {"name": "qwen2.5-1.5b", "seed": -1}}}, r"^models\[a\]\.seed: found -1"),
        ({"models": {"a": {"name": "m", "config": 7}}}, r"^models\[a\]\.config: found 7"),
        ({"models": ["a"]}, r"^models: found \['a'\]; allowed is a table"),
        ({"models": {"step": "qwen2.5-1.5b"}}, r"^models: found column 'step'"),
        ({"target": "accuracy"}, r"^target: found 'accuracy'"),
        ({"reward": "human"}, r"^reward: found 'human'"),
        ({"group_size": 1}, r"^group_size: found 1"),
        ({"completion_tokens": "long"}, r"^completion_tokens: found 'long'"),
        ({"learning": 1}, r"^recipe: unknown field 'learning'; allowed are .*learning_rate"),
        ({"lora_rank": -1}, r"^lora\.rank: "),
        ({"lora_rank": "16"}, r"^lora\.rank: "),
        ({"lora_rank": None, "lora_targets": "q_proj"}, r"^recipe: found lora_targets without lora_rank"),
        ({"lora": {"rank": 8}}, r"^recipe: found lora beside lora_rank"),
        ({"eval_size": 0}, r"^eval_size: found 0"),
        ({"eval_size": 1.5}, r"^eval_size: found 1\.5"),
        ({"seed": -1}, r"^seed: found -1"),
        ({"step_column": 3}, r"^step_column: found 3"),
        ({"source": 3}, r"^source: found 3"),
    ],
)  # fmt: skip
def test_bad_facts_are_named(tmp_path: Path, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        imported(tmp_path, "step,a\n5,0.5\n", **facts)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_the_same_run_twice_in_one_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"column 'b': holds the same run as column 'a'; .*its own seed"):
        imported(tmp_path, "step,a,b\n5,0.5,0.5\n", models={"a": "qwen2.5-1.5b", "b": "qwen2.5-1.5b"})


def test_steps_beyond_any_budget_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"found step 1000000000000, .* FLOPs by this recipe; allowed are at most 1e30"
    ):
        imported(
            tmp_path, "step,a\n1e12,0.5\n", completion_tokens=10**7, prompts_per_step=10**7, group_size=10**7
        )


# --- the examples -------------------------------------------------------------------------------------------


def test_the_example_is_what_its_script_makes(tmp_path: Path) -> None:
    made = runpy.run_path(str(EXAMPLES / "make_learning_curve.py"))
    script = tmp_path / "make_learning_curve.py"
    script.write_text((EXAMPLES / "make_learning_curve.py").read_text())
    runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / "learning_curve.csv").read_text() == (EXAMPLES / "learning_curve.csv").read_text()
    assert set(made["MODELS"]) == {"small", "medium", "large"}


def test_the_example_imports_onto_the_default_ladder(tmp_path: Path) -> None:
    records = import_log(EXAMPLES / "learning_curve.csv", about=EXAMPLES / "learning_curve.toml")
    assert [r.spec.model for r in records] == [
        "Qwen2.5-1.5B-Instruct", "Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct",
    ]  # fmt: skip
    assert [r.provenance["gaps"] for r in records] == [1, 0, 1]
    assert all(r.provenance["source"].startswith("synthetic") for r in records)
    Store(tmp_path / "s", create=True).add_all(records)
    assert len(Store(tmp_path / "s").records()) == 3


def test_the_facts_of_the_published_run_fit_a_table_of_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("step,0.6b,1.7b,4b\n0,0.1,0.2,0.3\n4,0.2,0.25,0.35\n52,0.3,0.4,0.5\n")
    records = import_curves(path, about=EXAMPLES / "qwen3_gsm8k_grpo.toml")
    assert [(r.spec.model, r.steps, r.spec.recipe.lora, r.spec.recipe.kl) for r in records] == [
        (name, 52, None, True) for name in ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B")
    ]
    assert all(any("105 tokens" in line for line in r.provenance["assumptions"]) for r in records)
    assert [0.8 < r.spec.rho < 0.9 for r in records] == [True] * 3
