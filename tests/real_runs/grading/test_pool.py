"""Grading in killable processes: nothing a completion says may cost more than its timeout."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from race.errors import CannotDo, InvalidInput
from real_runs.grading import Grader, Verdict, count_verdicts

# math-verify evaluates this integral's integrand, ignores its own alarm, and never comes back.
HANGING = "\\boxed{\\int_0^1 10^{10^{10^{10}}}\\,dx}"
TIMEOUT = 1.0
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2, timeout=TIMEOUT, cache=0) as pool:
        pool.grade([("1", "1")])
        yield pool


def hanging(k: int) -> tuple[str, str]:
    return ("1", HANGING + " " * k)


def test_verdicts_come_in_order(grader: Grader) -> None:
    pairs = [(str(k), f"\\boxed{{{k if k % 3 else k + 1}}}") for k in range(200)]
    assert [v.outcome for v in grader.grade(pairs)] == ["right" if k % 3 else "wrong" for k in range(200)]


def test_no_pairs_no_verdicts(grader: Grader) -> None:
    assert grader.grade([]) == []


def test_a_hanging_answer_costs_its_timeout_and_scores_0(grader: Grader) -> None:
    start = time.monotonic()
    hung, after = grader.grade([hanging(0), ("1", "1")])
    assert TIMEOUT <= time.monotonic() - start < TIMEOUT + 2.0
    assert hung == Verdict("could-not-grade", "timeout", by="pool")
    assert hung.score == 0
    assert hung.timed_out
    assert after.outcome == "right"
    assert count_verdicts([hung, after]) == {
        "right": 1, "wrong": 0, "could-not-grade": 1, "timeout": 1, "no-answer": 0,
    }  # fmt: skip


def test_hanging_answers_wait_side_by_side(grader: Grader) -> None:
    start = time.monotonic()
    verdicts = grader.grade([hanging(k) for k in range(4)])
    assert all(v.timed_out for v in verdicts)
    assert time.monotonic() - start < 2 * TIMEOUT + 2.0


def test_a_process_that_dies_is_replaced(grader: Grader) -> None:
    grader.grade([("1", "1")])
    for child in psutil.Process().children(recursive=True):
        # A spare one may end by itself between the listing and here.
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE and child.parent() != psutil.Process():
                child.kill()
    verdicts = grader.grade([("2", "2"), ("3", "\\boxed{3}"), ("4", "5")])
    # The pair that met a dead process says so; the next ones are graded by its replacement.
    assert all(v.outcome in ("right", "wrong") or v.reason == "crash" for v in verdicts)
    assert [v.outcome for v in grader.grade([("2", "2"), ("4", "5")])] == ["right", "wrong"]


def test_the_zygote_is_restarted_when_it_was_killed() -> None:
    with Grader(workers=1, timeout=TIMEOUT, cache=0) as pool:
        pool.grade([("1", "1")])
        (zygote,) = [c for c in psutil.Process().children() if "zygote" in " ".join(command_of(c)) and is_newest(c)]
        zygote.kill()
        zygote.wait(5)
        pool.grade([hanging(0)])
        assert pool.grade([("1", "1")])[0].outcome == "right"


def test_a_killed_zygote_leaves_no_process_computing_for_ever() -> None:
    with Grader(workers=1, timeout=TIMEOUT, cache=0) as pool:
        pool.grade([("1", "1")])
        (zygote,) = [c for c in psutil.Process().children() if "zygote" in " ".join(command_of(c)) and is_newest(c)]
        busy = zygote.children()
        assert busy
        grading = threading.Thread(target=pool.grade, args=([hanging(1)],))
        grading.start()
        time.sleep(TIMEOUT / 4)
        zygote.kill()
        _, alive = psutil.wait_procs(busy, timeout=5)
        grading.join()
        assert alive == []


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing for a child of another test that has ended."""
    try:
        return process.cmdline()
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return []


def is_newest(process: psutil.Process) -> bool:
    zygotes = [c for c in psutil.Process().children() if "zygote" in " ".join(command_of(c))]
    return process.pid == max(zygotes, key=lambda c: c.create_time()).pid


ADVERSARIAL = {
    "tower": "\\boxed{10^{10^{10}}}",
    "taller tower": "\\boxed{10^{10^{10^{10^{10}}}}}",
    "braces": "{" * 1_000_000,
    "boxed braces": "\\boxed{" + "{" * 500_000 + "}" * 500_001,
    "open boxes": "\\boxed{" * 150_000,
    "fractions": "\\boxed{" + "\\frac{1}{" * 3_000 + "1" + "}" * 3_001,
    "shallow fractions": "\\boxed{" + "\\frac{2}{" * 100 + "1" + "}" * 101,
    "brackets": "\\boxed{" + "(" * 900 + "1" + ")" * 900 + "}",
    "powers": "\\boxed{" + "2^" * 900 + "2}",
    "signs": "\\boxed{" + "-" * 900 + "2}",
    "digits": "\\boxed{" + "9" * 1_000_000 + "}",
    "long list": "\\boxed{" + "1," * 700 + "1}",
    "factorials": "\\boxed{9" + "!" * 50 + "}",
    "sums": "\\boxed{\\sum_{k=1}^{10^{9}} \\sum_{j=1}^{10^{9}} kj}",
    "surrogates": "\\boxed{\ud800\udfff}",
    "nulls": "\\boxed{\x00" + "\x00" * 1000 + "}",
    "prose": "the answer is " * 70_000,
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_answers_are_bounded_and_score_0(grader: Grader, name: str) -> None:
    start = time.monotonic()
    (verdict,) = grader.grade([("5", ADVERSARIAL[name])])
    assert verdict.score == 0
    assert time.monotonic() - start < TIMEOUT + 2.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces an address-space limit")
def test_memory_is_bounded() -> None:
    """A grading process may not take the machine along."""
    with Grader(workers=1, timeout=4.0, memory_mb=600, cache=0) as pool:
        # The exponent fits a machine word, so math-verify starts to build a number of 8 GB.
        (verdict,) = pool.grade([("1", "\\boxed{\\int_0^1 2^{2^{36}} dx}")])
        assert verdict.outcome == "could-not-grade"
        assert pool.grade([("1", "1")])[0].outcome == "right"
        family = [p for c in psutil.Process().children() if is_newest(c) for p in c.children()]
        assert [p.rlimit(psutil.RLIMIT_AS) for p in family] == [(600 << 20, 600 << 20)]


def test_it_works_from_threads(grader: Grader) -> None:
    found: dict[int, list[str]] = {}

    def work(k: int) -> None:
        found[k] = [v.outcome for v in grader.grade([(str(k), str(k)), (str(k), f"\\boxed{{{k + 1}}}")])]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: ["right", "wrong"] for k in range(8)}


def test_an_alarm_of_yours_still_fires(grader: Grader) -> None:
    fired: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: fired.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        grader.grade([hanging(9), ("1", "\\boxed{\\lim_{x \\to 0} x}")])
        assert fired == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_verdicts_are_remembered() -> None:
    with Grader(workers=1, timeout=TIMEOUT) as pool:
        start = time.monotonic()
        verdicts = pool.grade([("1", HANGING)] * 20)
        assert all(v.timed_out for v in verdicts)
        pool.grade([("1", HANGING)])
        assert time.monotonic() - start < TIMEOUT + 6.0


def test_nothing_is_left_behind() -> None:
    with Grader(workers=2, timeout=TIMEOUT) as pool:
        pool.grade([("1", "1"), ("2", "2")])
        mine = [p for p in psutil.Process().children(recursive=True) if "real_runs.grading" in " ".join(command_of(p))]
        assert len(mine) >= 3
        newest = max((p for p in mine if p.ppid() == os.getpid()), key=lambda p: p.create_time())
        family = [newest, *newest.children(recursive=True)]
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive


def test_nothing_is_left_behind_by_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time, threading\n"
        "from real_runs.grading import Grader\n"
        "pool = Grader(workers=1, timeout=600.0)\n"
        f"threading.Thread(target=pool.grade, args=([('1', {HANGING!r})],), daemon=True).start()\n"
        "time.sleep(4)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline().strip() == "up"
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive


def test_bad_input(grader: Grader) -> None:
    for bad in ([("1",)], ["1"], [("1", 2)], [(None, "1")]):
        with pytest.raises(InvalidInput, match=r"pairs\[0\]"):
            grader.grade(bad)  # type: ignore[arg-type]
    for name, value in {"workers": 0, "timeout": -1.0, "memory_mb": 10, "cache": -1}.items():
        with pytest.raises(InvalidInput, match=name):
            Grader(**{name: value})  # type: ignore[arg-type]


def test_a_closed_grader_says_so() -> None:
    pool = Grader(workers=1)
    pool.close()
    pool.close()
    with pytest.raises(CannotDo, match="closed"):
        pool.grade([("1", "1")])


def test_a_missing_library_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('No module named math_verify')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.path.insert(1, {str(ROOT)!r})\n"
        "from race.errors import CannotDo\n"
        "from real_runs.grading import Grader\n"
        "try:\n    Grader(workers=1).grade([('1', '1')])\n"
        "except CannotDo as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "race-rl[runs]" in done.stdout, done.stderr
