"""The text task: the contract of `real_runs.contracts.Task`, tokenizers with gaps, prompts that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny_prm import byte_tokenizer

from race.errors import CannotDo, InvalidInput
from real_runs.contracts import Completion, Task
from real_runs.data import INSTRUCTION, Chat, Row, Rows, TextTask, rows_of
from real_runs.grading import Grader


def rows(count: int, *, start: int = 0, gold: str = "") -> Rows:
    numbers = range(start, start + count)
    return rows_of([{"problem": f"What is {k} + 1?", "answer": gold or str(k + 1)} for k in numbers], name="sums")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, timeout=1.0) as pool:
        yield pool


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat.of(byte_tokenizer(separator=None))


@pytest.fixture(scope="module")
def task(chat: Chat, grader: Grader) -> TextTask:
    return TextTask(chat, grader, train=rows(200), heldout_fraction=0.2)


def test_it_is_a_task(task: TextTask) -> None:
    assert isinstance(task, Task)
    assert task.name == "sums"


def test_the_stream_is_stateless(chat: Chat, grader: Grader, task: TextTask) -> None:
    again = TextTask(chat, grader, train=rows(200), heldout_fraction=0.2)
    for step in (7, 0, 3):
        assert task.train_problems(seed=1, step=step, count=8) == again.train_problems(seed=1, step=step, count=8)
    first = task.train_problems(seed=1, step=0, count=8)
    assert first != task.train_problems(seed=2, step=0, count=8)
    assert first != task.train_problems(seed=1, step=1, count=8)


def test_every_problem_is_met_once_per_epoch(task: TextTask) -> None:
    size = task.report.train
    met = [p.id for step in range(-(-size // 8)) for p in task.train_problems(seed=0, step=step, count=8)][:size]
    assert len(set(met)) == size


def test_a_step_may_span_epochs(chat: Chat, grader: Grader) -> None:
    small = TextTask(chat, grader, train=rows(3), heldout=rows(2, start=50))
    assert len(small.train_problems(seed=0, step=1, count=10)) == 10


def test_held_out_is_disjoint_fixed_and_independent_of_order(chat: Chat, grader: Grader, task: TextTask) -> None:
    held = {p.id for p in task.heldout_problems(count=10**6)}
    trained = {p.id for s in range(60) for p in task.train_problems(seed=0, step=s, count=8)}
    assert held
    assert not held & trained
    assert [p.id for p in task.heldout_problems(count=5)] == [p.id for p in task.heldout_problems(count=9)][:5]
    backwards = Rows("sums", tuple(reversed(rows(200).rows)))
    other = TextTask(chat, grader, train=backwards, heldout_fraction=0.2)
    assert {p.id for p in other.heldout_problems(count=10**6)} == held
    assert 20 <= len(held) <= 65


def test_a_held_out_set_of_its_own_is_taken_out_of_training(chat: Chat, grader: Grader) -> None:
    shouted = Rows("held", (Row(({"role": "user", "content": "WHAT  is 3 + 1?"},), "4"),))
    task = TextTask(chat, grader, train=rows(10), heldout=shouted)
    assert task.report.dropped == {"also held out": 1}
    assert task.report.train == 9
    assert "9 training and 1 held-out problems; left out: 1 also held out" in task.report.summary()


def test_a_benchmark_only_evaluates(chat: Chat, grader: Grader) -> None:
    benchmark = TextTask(chat, grader, train=None, heldout=rows(5), name="gsm8k")
    assert len(benchmark.heldout_problems(count=10)) == 5
    with pytest.raises(CannotDo, match="no training problems"):
        benchmark.train_problems(seed=0, step=0, count=1)


def test_prompts_go_through_the_template(task: TextTask) -> None:
    problem = task.heldout_problems(count=1)[0]
    assert problem.prompt.startswith("<|im_start|>user\nWhat is ")
    assert problem.prompt.endswith(f"{INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n")
    tokenizer = task.chat.tokenizer
    assert problem.prompt_ids == tuple(tokenizer(problem.prompt, add_special_tokens=False)["input_ids"])
    assert problem.meta["question"].startswith("What is ")
    assert problem.gold.startswith("\\boxed{")


def test_prompts_that_say_how_to_answer_are_left_alone(chat: Chat) -> None:
    row = Row(({"role": "user", "content": "Say 1."},), "1", complete=True)
    assert INSTRUCTION not in chat.render(row)
    system = Chat.of(chat.tokenizer, system="Be kind.")
    assert system.render(row).startswith("<|im_start|>system\nBe kind.")


def test_decoding_drops_special_tokens(task: TextTask) -> None:
    ids = task.chat.tokenizer("so it is 5<|im_end|>")["input_ids"]
    assert task.decode(ids) == "so it is 5"


def test_correct(task: TextTask) -> None:
    problem = task.heldout_problems(count=1)[0]
    answer = problem.gold.removeprefix("\\boxed{").removesuffix("}")

    def said(text: str, *, finished: bool = True) -> Completion:
        return Completion(problem, (1,), text, finished)

    texts = [said(f"\\boxed{{{answer}}}"), said(f"#### {answer}"), said("\\boxed{-7}"), said(""), said(answer)]
    assert task.correct(texts).tolist() == [1, 1, 0, 0, 1]
    cut = [said(f"It is \\boxed{{{answer}}} and", finished=False), said(f"we add {answer}", finished=False)]
    assert task.correct(cut).tolist() == [1, 0]
    assert task.correct([]).shape == (0,)


def test_long_prompts_are_left_out_and_counted(chat: Chat, grader: Grader) -> None:
    records = [{"problem": text, "answer": "1"} for text in ("What? " * 100, *(f"{k}?" for k in range(9)))]
    longer = rows_of(records, name="x")
    task = TextTask(chat, grader, train=longer, heldout=rows(1), max_prompt_tokens=300)
    assert task.report.dropped == {"prompt over 300 tokens": 1}
    assert task.report.train == 9


def test_answers_are_validated(chat: Chat, grader: Grader) -> None:
    records = [{"problem": f"{k}?", "answer": a} for k, a in enumerate(["1", "\\foo{", "\\boxed{}", "2", "3"])]
    task = TextTask(chat, grader, train=rows_of(records, name="x"), heldout=rows(1))
    assert task.report.dropped == {"answer: unreadable": 1, "answer: empty": 1}
    assert task.report.train == 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_prompt_tokens": 0}, "max_prompt_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"context": 2048}, "more than the model's context of 2048"),
        ({"heldout_fraction": 1.0}, "heldout_fraction"),
        ({"max_prompt_tokens": 3}, "no training problem of 'sums' is left .*prompt over 3 tokens"),
    ],
)
def test_what_cannot_work_is_refused(chat: Chat, grader: Grader, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        TextTask(chat, grader, train=rows(10), **options)  # type: ignore[arg-type]


def test_no_data_and_no_held_out_data_are_refused(chat: Chat, grader: Grader) -> None:
    with pytest.raises(InvalidInput, match="neither training nor held-out"):
        TextTask(chat, grader, train=None)
    with pytest.raises(InvalidInput, match="no held-out problem"):
        TextTask(chat, grader, train=rows(2), heldout_fraction=1e-9)
    with pytest.raises(InvalidInput, match="seed"):
        TextTask(chat, grader, train=rows(2), heldout=rows(1, start=9)).train_problems(seed=-1, step=0, count=1)


def test_a_tokenizer_without_pad_uses_eos_and_says_so(grader: Grader) -> None:
    chat = Chat.of(byte_tokenizer(separator=None, pad=False))
    assert chat.pad_id == chat.eos_id
    assert any("no pad token" in note for note in chat.notes)
    task = TextTask(chat, grader, train=rows(20), heldout=rows(1, start=99))
    assert task.report.notes == chat.notes


def test_a_tokenizer_without_eos_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no eos token"):
        Chat.of(byte_tokenizer(separator=None, eos=False))


def test_a_tokenizer_without_template_gets_plain_text(grader: Grader) -> None:
    chat = Chat.of(byte_tokenizer(separator=None, template=None))
    assert any("no chat template" in note for note in chat.notes)
    task = TextTask(chat, grader, train=rows(20), heldout=rows(1, start=99))
    problem = task.heldout_problems(count=1)[0]
    assert problem.prompt == f"What is 99 + 1?\n\n{INSTRUCTION}\n\n"
    assert chat.eos_id not in problem.prompt_ids
