"""The nano task: tokeniser, arithmetic, split, streams."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from race.errors import InvalidInput
from real_runs.contracts import Completion, Task
from real_runs.nano import NanoTask
from real_runs.nano.alphabet import ALPHABET, EOS_ID, PAD_ID, VOCAB, decode, encode
from real_runs.nano.arithmetic import HELDOUT_SHARE, KINDS, RESULT, draw_chains, draw_split, is_heldout
from real_runs.nano.corpora import CAREFUL, Mixture, solved
from real_runs.nano.reading import read_prompt, read_solution
from real_runs.nano.task import problem


@given(st.text(alphabet=ALPHABET.replace("$", ""), max_size=60))
def test_text_survives_the_tokeniser(text: str) -> None:
    ids = encode(text)
    assert len(ids) == len(text)
    assert decode(ids) == text
    assert decode((*ids, EOS_ID)) == text


def test_tokeniser_refuses_what_it_does_not_know() -> None:
    with pytest.raises(InvalidInput, match="'x'"):
        encode("A4x")
    with pytest.raises(InvalidInput, match="ids from 0"):
        decode([VOCAB])


def test_every_token_may_be_sampled() -> None:
    assert PAD_ID == EOS_ID
    assert len(set(ALPHABET)) == VOCAB


@pytest.mark.parametrize(
    ("kind", "a", "b", "expected"),
    [("+", 7, 5, 2), ("-", 3, 8, 5), ("*", 7, 8, 6), (">", 2, 9, 9), ("<", 2, 9, 2), ("|", 2, 9, 7)],
)
def test_kinds_of_step(kind: str, a: int, b: int, expected: int) -> None:
    assert RESULT[KINDS.index(kind), a, b] == expected


def test_a_problem_by_hand() -> None:
    found = problem("A4B-3C*8D+B=")
    assert (found.gold, found.level) == ("9", "3")
    assert found.prompt_ids == encode("A4B-3C*8D+B=")
    assert found.id == problem("A4B-3C*8D+B=").id != problem("A4B-3C*8D+A=").id


@pytest.mark.parametrize("prompt", ["", "A4=", "A4B-3", "B4A-3=", "A4B-3D*8=", "A4B-C=", "A4B-3C*D=", "A4B3-="])
def test_malformed_problems_are_refused(prompt: str) -> None:
    with pytest.raises(InvalidInput, match="allowed are chains"):
        read_prompt(prompt)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5, 6, 7])
def test_arrays_and_text_agree(level: int) -> None:
    chains = draw_chains(np.random.default_rng(level), 50, level)
    for prompt, tokens in zip(chains.prompts(), chains.prompt_tokens(), strict=True):
        assert encode(prompt) == tuple(tokens)


@pytest.mark.parametrize("level", [1, 3, 6])
def test_careful_solutions_reach_the_gold_answer(level: int) -> None:
    tokens, weights = solved(np.random.default_rng(0), 100, level, CAREFUL)
    assert weights.all()
    for row in tokens:
        prompt, solution = (part for part in decode(row).split("=", 1))
        assert str(read_solution(solution).answer) == problem(prompt + "=").gold
        assert row[-1] == EOS_ID


def test_the_three_hands_have_their_shares() -> None:
    n, level = 4000, 4
    tokens, weights = solved(np.random.default_rng(1), n, level, Mixture(0.2, 0.6, 0.4))
    hasty = weights[:, -1] == 0
    texts = [decode(row).split("=", 1) for row in tokens[~hasty]]
    right = [str(read_solution(s).answer) == problem(p + "=").gold for p, s in texts]
    assert abs(hasty.mean() - 0.2) < 0.02
    assert all(decode(row).split("=", 1)[1].startswith("#") for row in tokens[hasty])
    # All careful ones are right; few sloppy ones are.
    assert 0.2 < sum(right) / n < 0.35


def test_task_is_a_task() -> None:
    assert isinstance(NanoTask(), Task)


def test_training_stream_is_a_function_of_seed_and_step() -> None:
    first = NanoTask().train_problems(seed=3, step=7, count=8)
    assert list(NanoTask().train_problems(seed=3, step=7, count=8)) == list(first)
    assert list(NanoTask().train_problems(seed=3, step=7, count=3)) == list(first[:3])
    ids = {p.id for p in first}
    assert not ids & {p.id for p in NanoTask().train_problems(seed=4, step=7, count=8)}
    assert not ids & {p.id for p in NanoTask().train_problems(seed=3, step=10, count=8)}


def test_a_step_has_one_level_and_levels_take_turns() -> None:
    task = NanoTask()
    levels = []
    for step in range(12):
        found = {(p.level, len(p.prompt_ids)) for p in task.train_problems(seed=0, step=step, count=4)}
        assert len(found) == 1
        levels.append(found.pop()[0])
    for turn in range(0, 12, 3):
        assert sorted(levels[turn : turn + 3]) == ["3", "4", "5"]
    assert len({tuple(levels[turn : turn + 3]) for turn in range(0, 12, 3)}) > 1


def test_heldout_set_is_fixed_balanced_and_distinct() -> None:
    problems = NanoTask().heldout_problems(count=500)
    assert list(NanoTask().heldout_problems(count=100)) == list(problems[:100])
    assert len({p.prompt for p in problems}) == 500
    assert Counter(p.level for p in problems) == dict.fromkeys("23456", 100)


def test_split_is_disjoint_and_balanced() -> None:
    task = NanoTask()
    assert all(is_heldout(p.prompt) for p in task.heldout_problems(count=300))
    assert not any(
        is_heldout(p.prompt) for step in range(30) for p in task.train_problems(seed=0, step=step, count=8)
    )
    prompts = draw_chains(np.random.default_rng(0), 8000, 4).prompts()
    share = np.mean([is_heldout(p) for p in prompts])
    assert abs(share - HELDOUT_SHARE) < 4 * np.sqrt(HELDOUT_SHARE * (1 - HELDOUT_SHARE) / 8000)


@pytest.mark.parametrize("feature", ["parity", "answer", "start", "first kind", "last operand"])
def test_split_tells_nothing_about_a_problem(feature: str) -> None:
    rng = np.random.default_rng(5)
    table = []
    for heldout in (False, True):
        prompts = draw_split(rng, 3000, 3, heldout=heldout).prompts()
        values = [
            {
                "parity": str(int(problem(p).gold) % 2),
                "answer": problem(p).gold,
                "start": p[1],
                "first kind": p[3],
                "last operand": p[-2],
            }[feature]
            for p in prompts
        ]
        table.append(Counter(values))
    from scipy.stats import chi2_contingency

    keys = sorted(set(table[0]) | set(table[1]))
    assert chi2_contingency([[side[k] for k in keys] for side in table]).pvalue > 1e-3


def test_correct_needs_the_answer_and_an_end() -> None:
    asked = problem("A4B-3C*8D+B=")
    good = "B4-3=1C1*8=8D8+1=9#9"

    def said(text: str, finished: bool = True) -> Completion:
        return Completion(asked, encode(text), text, finished)

    texts = [good, "#9", good[:-1] + "8", good + "9", good + "#9", "9", "", "#"]
    assert NanoTask().correct([said(t) for t in texts]).tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert NanoTask().correct([said(good, finished=False)]).tolist() == [0]


@pytest.mark.parametrize("levels", [(), (0,), (8,), (True,)])
def test_levels_are_checked(levels: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="levels"):
        NanoTask(levels=levels)


def test_every_answer_is_equally_likely_on_both_sides() -> None:
    task = NanoTask()
    trained = [p.gold for step in range(60) for p in task.train_problems(seed=1, step=step, count=20)]
    for golds in (trained, [p.gold for p in task.heldout_problems(count=1200)]):
        counts = np.array([golds.count(str(digit)) for digit in range(10)])
        # Chi-square with 9 degrees of freedom: its 99.9 % point is 27.9. As chains come, it is above 300.
        assert ((counts - 120) ** 2 / 120).sum() < 27.9
