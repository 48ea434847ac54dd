"""Rule rewards and the ground-truth judge, on completions written by hand and on noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from race.errors import InvalidInput
from real_runs.contracts import Completion, Judge, Reward
from real_runs.nano import StepJudge, nano_reward
from real_runs.nano.alphabet import ALPHABET, encode
from real_runs.nano.corpora import label
from real_runs.nano.reading import correct_lines, due_tokens, read_prompt, read_solution
from real_runs.nano.task import problem

PROMPT = "A4B-3C*8D+B="
CAREFUL = "B4-3=1C1*8=8D8+1=9#9"
SLIP = "B4-3=2C2*8=6D6+2=8#8"  # one slip, carried on correctly
WRONG_OPERAND = "B4-3=1C1*7=7D7+1=8#8"
SKIPPED = "B4-3=1D8+1=9#9"
HASTY = "#9"
CASES = [CAREFUL, SLIP, WRONG_OPERAND, SKIPPED, HASTY, "#4", "", "BBB", CAREFUL + "9"]


def said(text: str, *, finished: bool = True, prompt: str = PROMPT) -> Completion:
    return Completion(problem(prompt), encode(text), text, finished)


def score(name: str, texts: list[str]) -> list[float]:
    return nano_reward(name).score([said(t) for t in texts]).values.tolist()


def test_sparse_looks_at_the_answer_only() -> None:
    assert score("sparse", CASES) == [1, 0, 0, 1, 1, 0, 0, 0, 0]


def test_structured_adds_form() -> None:
    assert score("structured", CASES) == pytest.approx([1, 0.2, 0.2, 0.8, 0.8, 0, 0, 0, 0])


def test_dense_pays_for_nearness_on_the_clock() -> None:
    answers = [f"#{d}" for d in range(10)]
    assert score("dense", answers) == pytest.approx([0.4, 0.3, 0.2, 0.1, 0, 0.1, 0.2, 0.3, 0.4, 1])
    assert score("dense", ["", "BBB"]) == [0, 0]


def test_judge_counts_correct_steps_given_what_was_written() -> None:
    found = StepJudge().score([said(t) for t in CASES]).values
    assert found == pytest.approx([1, 2 / 3, 2 / 3, 1 / 3, 0, 0, 0, 0, 1])


def test_judge_is_not_helped_by_more_lines() -> None:
    doubled = CAREFUL[:18] + CAREFUL[12:18] + "#9"
    assert StepJudge().score([said(doubled)]).values == pytest.approx([3 / 4])


def test_judge_follows_references_to_what_was_written() -> None:
    # D+B must add the 2 that was written at B, not the 1 that should have been.
    chain = read_prompt(PROMPT)
    assert correct_lines(chain, read_solution("B4-3=2C2*8=6D6+1=7#7")) == (False, True, False)
    # A value that was never legibly written makes what depends on it wrong.
    assert correct_lines(chain, read_solution("B4-3C2*8=6D6+2=8#8")) == (False, False, False)


def test_unfinished_completions_earn_nothing_from_rules() -> None:
    for name in ("sparse", "structured", "dense"):
        assert nano_reward(name).score([said(CAREFUL, finished=False)]).values.tolist() == [0]


@given(st.lists(st.text(alphabet=ALPHABET.replace("$", ""), max_size=50), max_size=4), st.booleans())
def test_whatever_is_said_scores_between_0_and_1_at_no_cost(texts: list[str], finished: bool) -> None:
    completions = [said(t, finished=finished) for t in texts]
    for scorer in (*(nano_reward(n) for n in ("sparse", "structured", "dense")), StepJudge()):
        scores = scorer.score(completions)
        assert scores.values.shape == (len(texts),)
        assert np.all((scores.values >= 0) & (scores.values <= 1))
        assert scores.flops == 0


def test_contracts() -> None:
    for name in ("sparse", "structured", "dense"):
        reward = nano_reward(name)
        assert isinstance(reward, Reward)
        assert reward.name == name
        assert reward.flops_bound(10, 20) == 0
    assert isinstance(StepJudge(), Judge)
    with pytest.raises(InvalidInput, match="reward: found 'dence'"):
        nano_reward("dence")


def test_labels_are_the_judges_verdicts() -> None:
    texts = [CAREFUL, SLIP, SKIPPED, HASTY, ""]
    batch = label([PROMPT] * len(texts), texts)
    at = len(PROMPT)
    marks = [{int(i) - at: int(row[i]) for i in np.flatnonzero(row >= 0)} for row in batch.labels]
    assert marks == [
        {5: 1, 11: 1, 17: 1, 19: 1},
        {5: 0, 11: 1, 17: 1, 19: 1},
        {5: 1, 11: 0, 13: 0},
        {1: 0},
        {},
    ]
    assert batch.right.tolist() == [True, False, True, True, False]


def test_what_is_due_follows_what_was_written() -> None:
    cases = {
        CAREFUL: CAREFUL,
        SLIP: "B4-3=1C2*8=6D6+2=8#8",  # one result, and nothing after it
        "B0*0=0C0*0=0D0*0=0#0": "B4-3=0C0*8=0D0+0=0#0",  # sound arithmetic on the wrong things
        HASTY: "B4",  # a line is due before any answer is; what the start stands for is all there is to say
    }
    for text, due in cases.items():
        assert "".join(c or "?" for c in due_tokens(read_prompt(PROMPT), read_solution(text))) == due
    # Nothing is due after the last step, nor where a value was never legibly written.
    found = due_tokens(read_prompt(PROMPT), read_solution(CAREFUL[:18] + "E9+1=0#0"))
    assert found == [*CAREFUL[:18], *[None] * 6, "#", "0"]


@pytest.mark.parametrize("kind", ["prm", "proxy-prm"])
def test_learned_rewards_are_not_fooled_by_what_policies_once_found(kind: str) -> None:
    prompts = ["A2B|6C*8D|8E+1=", "A8B<4C+AD+A=", "A7B*9C*AD>5=", "A9B|4C-3D+9E+9="]
    tricks = [
        "B0*0=0C0*0=0D0*0=0E0*0=0#0", "B0|0=0C0*0=0D0|0=0E0+0=0#0", "B0<0=0C0+0=0D0+0=0#0",
        "B0*0*0=0C0*0*0=0D0*0=0#0", "#0", "",
    ]  # fmt: skip
    found = nano_reward(kind).score([said(t, prompt=p) for p in prompts for t in tricks])
    assert found.values.max() < 0.05
