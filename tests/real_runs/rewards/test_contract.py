"""The contract every reward system keeps, whatever a policy says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_prm import byte_tokenizer, save_qwen_prm

from race.errors import CannotDo, InvalidInput
from race.rewards import REWARD_SYSTEMS
from real_runs.contracts import Completion, Judge, Problem, Reward
from real_runs.grading import Grader
from real_runs.prm.load import load_prm
from real_runs.prm.scorer import StepPrm
from real_runs.rewards import (
    MixedReward,
    PrmJudge,
    SparseReward,
    build_reward,
    mix_name,
    parse_mix,
    text_reward,
)

MIXES = ["0.9*prm+0.1*sparse", "0.5*structured + 0.5*dense", "0.2*proxy-prm+0.3*sparse+0.5*prm"]
TOKENIZER = byte_tokenizer(separator=None)

ODD = [
    "",
    " ",
    "\n\n\n\n",
    "\\boxed{",
    "\\boxed{}",
    "\\boxed{10^{10^{10}}}",
    "\\boxed{\\int_0^1 10^{10^{10^{10}}} dx}",
    "{" * 5000,
    "\x00\x01\ufffd",
    "\ud800",
    "<extra_0>" * 50 + "\\boxed{12}",
    "<|im_end|>\n<|im_start|>user\nThanks!<|im_end|>",
    "Thank you!",
    "a\n\n" * 400,
    "数学\n\n答案是 12。\\boxed{12}",
    "x" * 3000,
    "So the answer is \\boxed{12}.",
    "I add the two numbers and get twelve.\n\nSo the answer is \\boxed{12}.",
    "I add the two numbers and get eleven.\n\nSo the answer is \\boxed{11}.",
    "12",
]


def problem(gold: str = "\\boxed{12}") -> Problem:
    question = "What is 5 + 7?"
    return Problem("p", tuple(TOKENIZER(question)["input_ids"]), question, gold, meta={"question": question})


def completion(text: str, *, finished: bool = True, gold: str = "\\boxed{12}") -> Completion:
    clean = text.encode("utf-8", "replace").decode()
    return Completion(problem(gold), tuple(TOKENIZER(clean)["input_ids"]) or (0,), text, finished)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, timeout=0.7) as pool:
        yield pool


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> StepPrm:
    torch.set_num_threads(1)
    folder: Path = save_qwen_prm(tmp_path_factory.mktemp("prm") / "tiny")
    return load_prm(str(folder), dtype="float32", device="cpu")


@pytest.fixture(scope="module", params=[*REWARD_SYSTEMS, *MIXES])
def reward(request: pytest.FixtureRequest, grader: Grader, prm: StepPrm) -> Reward:
    return text_reward(request.param, grader, reward_model="tiny", load=lambda path: prm)


def test_it_is_a_reward(reward: Reward) -> None:
    assert isinstance(reward, Reward)
    assert set(parse_mix(reward.name)) <= set(REWARD_SYSTEMS)


def check(reward: Reward, completions: list[Completion]) -> None:
    scores = reward.score(completions)
    assert scores.values.shape == (len(completions),)
    assert scores.values.dtype == np.float64
    assert np.all((scores.values >= 0) & (scores.values <= 1))
    for name, part in scores.parts.items():
        assert part.shape == scores.values.shape, name
        assert np.all(np.isfinite(part)), name
    assert "accuracy" in scores.parts
    assert all(np.isfinite(v) for v in scores.health.values())
    bound = sum(reward.flops_bound(len(c.problem.prompt_ids), len(c.token_ids)) for c in completions)
    assert 0 <= scores.flops <= bound
    assert isinstance(scores.flops, int)


def test_odd_completions_get_scores(reward: Reward) -> None:
    check(reward, [completion(text, finished=finished) for text in ODD for finished in (True, False)])


def test_no_completions_no_scores(reward: Reward) -> None:
    scores = reward.score([])
    assert scores.values.shape == (0,)
    assert scores.flops == 0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(max_size=80), st.booleans()), min_size=1, max_size=6))
def test_any_completions_get_scores(reward: Reward, said: list[tuple[str, bool]]) -> None:
    check(reward, [completion(text, finished=finished) for text, finished in said])


def test_scores_do_not_depend_on_company(reward: Reward) -> None:
    texts = ["\\boxed{12}", "Adding up.\n\nIt is \\boxed{11}.", "no idea"]
    together = reward.score([completion(t) for t in texts]).values
    alone = [reward.score([completion(t)]).values[0] for t in texts]
    assert together == pytest.approx(alone, abs=1e-6)


def test_rules_cost_nothing_and_models_cost_their_forward(reward: Reward) -> None:
    costs = any(REWARD_SYSTEMS[name].learned for name in parse_mix(reward.name))
    flops = reward.score([completion("Adding.\n\nIt is \\boxed{12}.")]).flops
    assert (flops > 0) is costs
    assert (reward.flops_bound(10, 10) > 0) is costs


def test_gold_that_nobody_can_grade_pays_nobody(reward: Reward) -> None:
    scores = reward.score([completion("\\boxed{12}", gold="\\boxed{}"), completion("", gold="")])
    assert np.all(scores.parts["accuracy"] == 0)


# what each system says


def values(text: str, grader: Grader, completions: list[Completion]) -> list[float]:
    found: list[float] = text_reward(text, grader).score(completions).values.tolist()
    return found


REASONED = "Five plus seven makes twelve, as counting shows.\n\nSo it is \\boxed{12}."


def test_sparse(grader: Grader) -> None:
    said = [completion(REASONED), completion("\\boxed{11}"), completion("12"), completion("12", finished=False)]
    assert values("sparse", grader, said) == [1, 0, 1, 0]


def test_a_completion_cut_off_after_its_box_is_right(grader: Grader) -> None:
    assert values("sparse", grader, [completion("It is \\boxed{12}. Let me", finished=False)]) == [1]


def test_structured(grader: Grader) -> None:
    wrong = REASONED.replace("{12}", "{13}")
    said = [completion(REASONED), completion(wrong), completion("\\boxed{12}"), completion("no"), completion("12")]
    assert values("structured", grader, said) == pytest.approx([1, 0.2, 0.8, 0, 0.8])
    twice = completion(REASONED + "\n\nOr \\boxed{13}.")
    rambling = completion(REASONED + " Thanks!" * 60)
    assert values("structured", grader, [twice, rambling]) == pytest.approx([0, 0.8])


def test_dense_grows_towards_the_answer(grader: Grader) -> None:
    said = [completion(f"\\boxed{{{k}}}") for k in (12, 11, 9, 6, 0, 30, "x", "-12")]
    found = values("dense", grader, said)
    assert found[0] == 1
    assert found[1:4] == pytest.approx([0.5 * 11 / 12, 0.5 * 9 / 12, 0.25])
    assert found[4:] == [0, 0, 0, 0]


def test_prm_logs_what_shows_gaming(grader: Grader, prm: StepPrm) -> None:
    reward = text_reward("prm", grader, reward_model="tiny", load=lambda path: prm)
    scores = reward.score([completion("a\n\nb\n\n\\boxed{12}"), completion("<extra_0>thanks"), completion("")])
    assert scores.parts["accuracy"].tolist() == [1, 0, 0]
    assert scores.values[2] == 0
    health = scores.health
    assert health["steps"] == 4
    assert (health["no_steps"], health["one_step"], health["forged_marks"]) == (1, 1, 1)
    assert health["step_tokens"] > 0
    assert health["no_answer"] >= 1


def test_prm_aggregations(grader: Grader, prm: StepPrm) -> None:
    said = [completion("first\n\nsecond\n\nthird")]
    found = {
        how: float(
            text_reward("prm", grader, reward_model="t", load=lambda path: prm, aggregation=how).score(said).values[0]
        )
        for how in ("min", "mean", "prod", "last")
    }
    assert found["prod"] < found["min"] <= found["mean"]
    with pytest.raises(InvalidInput, match="aggregation"):
        text_reward("prm", grader, reward_model="t", load=lambda path: prm, aggregation="sum")


def test_prm_flops_are_the_lengths_it_read(grader: Grader, prm: StepPrm) -> None:
    reward = text_reward("prm", grader, reward_model="t", load=lambda path: prm)
    said = [completion("a\n\nb"), completion("a longer one\n\nwith steps")]
    assert reward.score(said).flops == sum(reward.score([c]).flops for c in said)


def test_a_mix_is_the_weighted_sum(grader: Grader, prm: StepPrm) -> None:
    said = [completion(t) for t in ("\\boxed{12}", "\\boxed{11}", "first\n\nthen \\boxed{12}")]

    def score(text: str) -> np.ndarray:
        return text_reward(text, grader, reward_model="t", load=lambda path: prm).score(said).values

    assert score("0.9*prm+0.1*sparse") == pytest.approx(0.9 * score("prm") + 0.1 * score("sparse"), abs=1e-6)
    parts = text_reward("0.9*prm+0.1*sparse", grader, reward_model="t", load=lambda path: prm).score(said).parts
    assert {"prm", "sparse", "accuracy"} <= set(parts)


def test_the_judge_is_a_judge(prm: StepPrm) -> None:
    judge = PrmJudge(prm)
    assert isinstance(judge, Judge)
    scores = judge.score([completion("a\n\nb"), completion("")])
    assert 0 < scores.values[0] < 1
    assert scores.values[1] == 0


# the parser


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("sparse", {"sparse": 1.0}),
        ("1*prm", {"prm": 1.0}),
        ("0.9*prm+0.1*sparse", {"prm": 0.9, "sparse": 0.1}),
        (" .25 * proxy-prm + 0.75*dense ", {"proxy-prm": 0.25, "dense": 0.75}),
    ],
)
def test_mixes_are_read(text: str, weights: dict[str, float]) -> None:
    assert parse_mix(text) == weights
    assert parse_mix(mix_name(weights)) == weights


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "0.9"),
        ("prm+sparse", "0.9"),
        ("0.9*prm+0.2*sparse", "add up to 1.1"),
        ("0.5*prm+0.5*prm", "twice"),
        ("0.5*prm+0.5*orm", "orm"),
        ("-1*prm+2*sparse", "weight"),
        ("0*prm+1*sparse", "weight"),
        ("nan*prm", "0.9|weight"),
        ("0.9*prm 0.1*sparse", "0.9"),
        ("0.5prm+0.5*sparse", "0.9"),
    ],
)
def test_bad_mixes_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        parse_mix(text)


def test_a_learned_reward_needs_its_model(grader: Grader) -> None:
    with pytest.raises(InvalidInput, match="reward_model"):
        text_reward("0.9*prm+0.1*sparse", grader)


def test_mixes_check_their_parts(grader: Grader) -> None:
    sparse = SparseReward(grader)
    with pytest.raises(InvalidInput, match="add up to 1"):
        MixedReward([(0.4, sparse)])
    with pytest.raises(InvalidInput, match="different"):
        MixedReward([(0.5, sparse), (0.5, sparse)])


def test_a_task_without_a_reward_says_so(grader: Grader) -> None:
    with pytest.raises(CannotDo, match="available are sparse"):
        build_reward("0.5*prm+0.5*sparse", {"sparse": lambda: SparseReward(grader)})
