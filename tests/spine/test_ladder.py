from __future__ import annotations

import pytest
from spine_strategies import small_arch

from race.errors import InvalidInput
from race.ladders import DEFAULT_LADDER, Ladder, LadderModel, ladder, model
from race.recipe import Recipe


def test_the_default_ladder_is_the_papers() -> None:
    default = ladder()
    assert default.name == DEFAULT_LADDER
    assert [m.name for m in default.models] == [
        "Qwen2.5-1.5B-Instruct",
        "Qwen2.5-3B-Instruct",
        "Qwen2.5-7B-Instruct",
    ]
    assert [round(m.params / 1e9, 2) for m in default.models] == [1.54, 3.09, 7.62]


@pytest.mark.parametrize("name", ["qwen2.5", "QWEN3", "nano"])
def test_built_in_ladders_ascend_and_look_up_without_regard_to_case(name: str) -> None:
    built_in = ladder(name)
    params = [m.params for m in built_in.models]
    assert params == sorted(params)
    assert len(params) >= 3
    for rung in built_in.models:
        assert built_in[rung.name.upper()] is rung
        assert rung.name.lower() in built_in
        assert rung.architecture.params() == rung.params


def test_a_ladder_of_ones_own_is_sorted_by_size() -> None:
    own = ladder("qwen2.5-7b, qwen2.5-0.5b ,qwen2.5-1.5b")
    assert [m.name for m in own.models] == ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"]
    assert ladder(["qwen2.5-7b", "qwen2.5-0.5b", "qwen2.5-1.5b"]) == own


def test_recipes_come_from_the_ladders_defaults() -> None:
    rungs = ladder().models
    own = Ladder("own", rungs, (("prompts_per_step", 7), ("completion_tokens", 32)))
    assert own.recipe("sparse") == Recipe("sparse", prompts_per_step=7, completion_tokens=32)
    assert own.recipe("prm", completion_tokens=64).completion_tokens == 64
    with pytest.raises(InvalidInput, match=r"unknown field 'tokens'"):
        own.recipe("sparse", tokens=3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "qwen25",
            r"^ladder: found 'qwen25', one name; allowed are qwen2\.5, qwen3, nano or at least 2 models",
        ),
        ("llama", r"^ladder: found 'llama', one name; allowed are qwen2\.5, qwen3, nano"),
        ("qwen2.5-1.5b", r"^ladder: found 'qwen2\.5-1\.5b', one name; .* at least 2 models"),
        ("", r"^ladder: found no model; allowed is at least 2 models"),
        (",", r"^ladder: found no model"),
        ([], r"^ladder: found no model"),
        ("qwen2.5-1.5b,qwen2.5-1.5b", r"^ladder: .*allowed is each model once"),
        ("qwen2.5-1.5b,Qwen2.5-1.5B", r"^ladder: .*allowed is each model once"),
        ("qwen2.5-1.5b,gpt-9", r"^model: 'gpt-9' is not a built-in name"),
    ],
)
def test_bad_ladders(spec: str | list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ladder(spec)


def test_a_descending_ladder_is_refused() -> None:
    small = LadderModel("small", small_arch(), 10)
    large = LadderModel("large", small_arch(3), 20)
    with pytest.raises(InvalidInput, match=r"^ladder: found large, small; allowed is ascending size"):
        Ladder("own", (large, small))


def test_an_unknown_model_lists_the_rungs() -> None:
    with pytest.raises(
        InvalidInput,
        match=r"^model: found 'Qwen2\.5-72B', which is not on ladder 'qwen2\.5'; allowed are Qwen",
    ):
        ladder()["Qwen2.5-72B"]
    assert "Qwen2.5-72B" not in ladder()
    assert 3 not in ladder()


def test_a_model_with_a_config_of_its_own() -> None:
    own = model("mine", config=small_arch())
    assert own.name == "mine"
    assert own.architecture == small_arch()
