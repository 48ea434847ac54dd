"""Run what the documentation shows and put its true output below it.

Three kinds of fenced blocks are executed, in the order of the page, in one scratch folder per page that holds a copy of
``examples/``, so that a later block sees what an earlier one wrote:

    console   lines that start with ``$`` are commands (``\\`` continues them), what follows is their output
    pycon     ``>>>`` lines are Python, what follows is what they print; every block starts afresh
    python    a program; it has to end well, and nothing is shown

    python docs/refresh.py            rewrite README.md and all pages below docs/
    python docs/refresh.py --all      also the blocks marked slow, which train for real: minutes
    python docs/refresh.py --check    exit 1 and show the difference if an output is no longer true
    python docs/refresh.py README.md --with qwen3_gsm8k_grpo.csv
                                      also the sessions that need files from elsewhere

A comment on the line before a block says what is special about it (`SKIP`, `SLOW`, `FRAGMENT`). The check compares
words exactly and numbers to 2 %: another CPU may round the last digit differently. Slow blocks are real training, whose
numbers belong to one machine: they are checked to run, not to say the same.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?P<before>[^\n]*\n+|^)```(?P<kind>console|pycon|python)\n(?P<text>.*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
SKIP = "<!-- not refreshed -->"  # needs a file that is not in the repository: only --with runs it
SLOW = "<!-- slow -->"  # trains for real: only --all runs it
FRAGMENT = "<!-- not run -->"  # Python that goes into the reader's own program
# Runs pycon examples from stdin, echoing them. "single" is what a prompt compiles, so expressions are printed.
PROMPT = """
import doctest, sys
space = {"__name__": "__main__"}
for part in doctest.DocTestParser().parse(sys.stdin.read()):
    if isinstance(part, str):
        print(part, end="")
        continue
    first, *rest = part.source.rstrip("\\n").split("\\n")
    print(">>> " + first, *("... " + line for line in rest), sep="\\n")
    exec(compile(part.source, "<page>", "single"), space)
"""


@dataclass(frozen=True)
class Block:
    """One executed block: what the page shows, what is true, and what went wrong while it ran."""

    shown: str
    true: str
    slow: bool
    failed: tuple[str, ...]


def session(text: str, folder: Path) -> tuple[str, list[str]]:
    """Run the commands of a console block; returns it with their output, and the commands that failed."""
    parts, failed = [], []
    for command in re.findall(r"^\$ ((?:.*\\\n)*.*)", text, re.MULTILINE):
        done = run(command.replace("\\\n", " "), folder, shell=True)
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        parts.append("\n".join([f"$ {command}", *lines]).rstrip() + "\n")
        if done.returncode:
            failed.append(f"exit code {done.returncode}: {command}")
    return "\n".join(parts), failed


def prompt(text: str, folder: Path) -> tuple[str, list[str]]:
    """Run a pycon block; returns it with what it printed, and the error it ended with, if any."""
    done = run([sys.executable, "-c", PROMPT], folder, given=text)
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "\n".join(lines) + "\n", [done.stdout] if done.returncode else []


def program(text: str, folder: Path) -> tuple[str, list[str]]:
    """Run a python block; returns it unchanged, and what it said if it failed."""
    done = run([sys.executable, "-"], folder, given=text)
    return text, [done.stdout] if done.returncode else []


def run(
    command: str | list[str], folder: Path, *, shell: bool = False, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run in ``folder`` as a reader with a plain terminal of 96 columns would."""
    env = {**os.environ, "COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    return subprocess.run(
        command, shell=shell, cwd=folder, env=env, input=given, text=True, timeout=1800, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


RUN = {"console": session, "pycon": prompt, "python": program}


def blocks(page: Path, extra: list[Path], *, slow: bool) -> Iterator[tuple[re.Match[str], Block]]:
    """Run the blocks of a page, in order."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if (ROOT / "examples").is_dir():
            shutil.copytree(ROOT / "examples", folder / "examples")
        for file in extra:
            shutil.copy(file, folder)
        for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
            mark = match["before"].strip()
            if mark == FRAGMENT or (mark == SKIP and not extra) or (mark == SLOW and not slow):
                continue
            true, failed = RUN[match["kind"]](match["text"], folder)
            yield match, Block(match["text"], true, mark == SLOW, tuple(failed))


def same(old: str, new: str) -> bool:
    """Equal words, and numbers within 2 % or 0.02."""
    if NUMBER.sub("#", re.sub(r"[\s─━═-]+", " ", old)) != NUMBER.sub("#", re.sub(r"[\s─━═-]+", " ", new)):
        return False
    for a, b in zip(NUMBER.findall(old), NUMBER.findall(new), strict=False):
        x, y = float(a.replace(",", "").rstrip(".")), float(b.replace(",", "").rstrip("."))
        if abs(x - y) > max(0.02, 0.02 * abs(x)):
            return False
    return True


def treat(page: Path, extra: list[Path], *, slow: bool, check: bool) -> bool:
    """Rewrite or check one page; returns whether everything is as it should be."""
    good, text, edits = True, page.read_text(encoding="utf-8"), []
    for match, block in blocks(page, extra, slow=slow):
        for failure in block.failed:
            good = False
            print(f"{page}: {failure.rstrip()}")
        # A session shows its commands' errors, if that is what it is about; a traceback is never what a page shows.
        if block.failed and match["kind"] != "console":
            continue
        edits.append((match.span("text"), block.true))
        if check and not block.slow and not same(block.shown, block.true):
            good = False
            diff = difflib.unified_diff(block.shown.splitlines(), block.true.splitlines(), "shown", "true", lineterm="")
            print(f"{page}: outputs are stale; run python docs/refresh.py", *diff, sep="\n")
    if not check:
        for (start, end), true in reversed(edits):
            text = text[:start] + true + text[end:]
        page.write_text(text, encoding="utf-8")
    return good


def pages() -> list[Path]:
    """The documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Rewrite or check the pages named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 on a difference")
    parser.add_argument("--all", action="store_true", help="also the blocks marked slow: minutes of training")
    parser.add_argument(
        "--with", dest="extra", nargs="+", type=Path, default=[], help="files to copy beside examples/"
    )
    parser.add_argument("pages", nargs="*", type=Path, help="default: README.md and all of docs/")
    args = parser.parse_args()
    done = [treat(page, args.extra, slow=args.all, check=args.check) for page in args.pages or pages()]
    return int(not all(done))


if __name__ == "__main__":
    sys.exit(main())
