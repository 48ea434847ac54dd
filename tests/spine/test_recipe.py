from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spine_strategies import json_values, recipes

from race.errors import InvalidInput
from race.flops import LoraSpec
from race.recipe import DEFAULT_LORA, Recipe


@given(recipes())
def test_a_recipe_survives_json(recipe: Recipe) -> None:
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@given(recipes())
def test_recipes_are_hashable_values(recipe: Recipe) -> None:
    assert len({recipe, Recipe.from_dict(recipe.to_dict())}) == 1
    assert recipe.samples_per_step == recipe.prompts_per_step * recipe.group_size
    assert recipe.sequence_tokens == recipe.prompt_tokens + recipe.completion_tokens


def test_defaults_follow_the_reward_system() -> None:
    assert Recipe("sparse").reward_model is None
    assert Recipe("prm").reward_model == "Qwen2.5-Math-PRM-7B"
    assert Recipe("prm", reward_model="qwen2.5-prm-1.5b").reward_model == "qwen2.5-prm-1.5b"
    assert Recipe("sparse").lora == DEFAULT_LORA
    assert Recipe("sparse", lora=None).lora is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward", "gold"),
        ("prompts_per_step", 0),
        ("prompts_per_step", 1.0),
        ("prompts_per_step", True),
        ("group_size", 1),
        ("group_size", "8"),
        ("prompt_tokens", 0),
        ("prompt_tokens", float("nan")),
        ("completion_tokens", float("inf")),
        ("completion_tokens", 10**400),
        ("update_ratio", 0.01),
        ("update_ratio", 17),
        ("update_ratio", None),
        ("learning_rate", 0),
        ("lora", 16),
        ("lora", {}),
        ("lora", {"targets": "all-linear"}),
        ("lora", {"rank": 0}),
        ("lora", {"rank": 8, "alpha": 16}),
        ("lora", {"rank": 8, "targets": []}),
        ("lora", {"rank": 8, "targets": 3}),
        ("kl", 1),
        ("kl", "true"),
        ("prefix_caching", None),
        ("reward_model", "Qwen2.5-Math-PRM-7B"),  # with a rule-based reward
    ],
)
def test_every_field_is_checked_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field) as caught:
        Recipe.from_dict({"reward": "sparse", field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [3, {}, "", "  "])
def test_a_reward_model_is_a_name(name: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^reward_model: found .*allowed is a model name"):
        Recipe("prm", reward_model=name)


def test_unknown_and_missing_fields_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"^spec\.recipe: unknown field 'group'; allowed are .*group_size"):
        Recipe.from_dict({"reward": "sparse", "group": 8}, where="spec.recipe")
    with pytest.raises(InvalidInput, match=r"^recipe\.reward: missing"):
        Recipe.from_dict({})
    with pytest.raises(InvalidInput, match=r"^recipe: found list"):
        Recipe.from_dict([])  # type: ignore[arg-type]


@given(st.sampled_from([f.name for f in fields(Recipe)]), json_values)
def test_any_json_value_is_a_recipe_or_invalid_input(name: str, value: Any) -> None:
    try:
        recipe = Recipe.from_dict({"reward": "prm", name: value})
    except InvalidInput:
        return
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_lora_targets_as_a_json_list() -> None:
    recipe = Recipe.from_dict({"reward": "sparse", "lora": {"rank": 4, "targets": ["v_proj", "q_proj"]}})
    assert recipe.lora == LoraSpec(4, ("q_proj", "v_proj"))
