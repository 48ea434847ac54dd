from __future__ import annotations

import pytest

from race.errors import InvalidInput
from race.flops import Architecture
from race.rewards import REWARD_SYSTEMS, check_target, reward_system


def test_the_five_reward_systems_and_only_two_run_a_model() -> None:
    assert list(REWARD_SYSTEMS) == ["sparse", "structured", "dense", "proxy-prm", "prm"]
    assert [name for name, system in REWARD_SYSTEMS.items() if system.learned] == ["proxy-prm", "prm"]


@pytest.mark.parametrize("name", ["proxy-prm", "prm"])
def test_default_reward_models_are_in_the_built_in_table(name: str) -> None:
    model = reward_system(name).default_model
    assert model is not None
    assert Architecture.from_config(model).params() > 10**9


@pytest.mark.parametrize("name", ["", "PRM", "prm ", "orm", None, 3, [], {}])
def test_unknown_reward_lists_the_five(name: object) -> None:
    with pytest.raises(InvalidInput, match=r"^reward: found .*sparse, structured, dense, proxy-prm, prm$"):
        reward_system(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["native", "judge", "pass@1", "pass@1:gsm8k", "pass@1:math-500", "pass@1:a.b_c"]
)
def test_targets(name: str) -> None:
    assert check_target(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Native",
        "pass@8",
        "pass@1:",
        "pass@1: gsm8k",
        "pass@1:é",
        "native\n",
        " native",
        "pass@1:a/b",
        None,
        1,
    ],
)
def test_bad_targets(name: object) -> None:
    with pytest.raises(InvalidInput, match=r"^target: found .*allowed are native, judge, pass@1"):
        check_target(name)  # type: ignore[arg-type]
