"""Plans and loops as they look: narrow and wide, in colour and without, on a terminal and in a log."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys

import pytest

PLAN = ("plan", "--budget", "1e18", "--reward", "prm", "--gpu", "H100-SXM")
LOOP = ("loop", "--budget", "1e20", "--reward", "sparse", "--executor", "simulator:own-5")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-c", "from race.cli import main; main()", *arguments]


def surroundings(columns: int, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "COLUMNS": str(columns), "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **more}


def on_a_terminal(arguments: tuple[str, ...], columns: int, **more: str) -> str:
    """What a person sees: stdout is a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(arguments), stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env=surroundings(columns, **more),
    )  # fmt: skip
    os.close(theirs)
    said = io.BytesIO()
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal as an error
            break
        if not part:
            break
        said.write(part)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return said.getvalue().decode("utf-8").replace("\r\n", "\n")


def in_a_log(arguments: tuple[str, ...], columns: int) -> tuple[str, str]:
    done = subprocess.run(
        command(arguments), capture_output=True, text=True, env=surroundings(columns), timeout=120, check=True
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("columns", [80, 160])
def test_a_plan_fits_its_terminal_and_uses_colour(columns: int) -> None:
    said = on_a_terminal(PLAN, columns)
    assert ESCAPE.search(said)
    lines = ESCAPE.sub("", said).splitlines()
    assert max(len(line) for line in lines) <= columns
    assert len(lines) > 25


def test_no_color_is_obeyed_on_a_terminal() -> None:
    said = on_a_terminal(PLAN, 80, NO_COLOR="1")
    colours = [code for code in re.findall(r"\x1b\[([0-9;]*)m", said) if re.search(r"(^|;)(3|4|9|10)\d", code)]
    assert colours == []


def test_a_log_has_words_only() -> None:
    out, _ = in_a_log(PLAN, 80)
    assert "\x1b" not in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.slow
def test_a_loops_progress_is_lines_in_a_log(tmp_path: object) -> None:
    out, err = in_a_log((*LOOP, "--out", f"{tmp_path}/loop"), 80)
    assert "\x1b" not in out + err
    assert "\r" not in out + err
    assert "regime" in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
