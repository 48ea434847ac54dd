"""Re-run the commands shown in the documentation and put their true output below them.

Every fenced block marked ``console`` is a session: lines that start with ``$`` are commands (``\\`` continues
them), what follows is their output. All sessions of one file run in order in one scratch folder that holds a
copy of ``examples/``, so a later session sees what an earlier one wrote.

    python docs/refresh.py            rewrite README.md and docs/*.md
    python docs/refresh.py --check    exit 1 and show the difference if an output is no longer true
    python docs/refresh.py README.md --with qwen3_gsm8k_grpo.csv
                                      also the sessions that need files from elsewhere, or minutes

The check compares words exactly and numbers to 2 %: another CPU may round the last digit shown differently.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
# The session after this comment needs a file that is not in the repository, or minutes: only --with runs it.
SKIP = "<!-- not refreshed -->"


def session(text: str, folder: Path) -> str:
    """Run the commands of one block and return it with their output."""
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)", text, re.MULTILINE)
    env = {**os.environ, "COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    parts = []
    for command in commands:
        done = subprocess.run(
            command.replace("\\\n", " "), shell=True, cwd=folder, env=env, text=True, timeout=900, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        parts.append("\n".join([f"$ {command}", *lines]).rstrip() + "\n")
    return "\n".join(parts)


def refreshed(page: Path, extra: list[Path]) -> str:
    """The page with the output of every session renewed; those marked `SKIP` only with ``extra`` files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if (ROOT / "examples").is_dir():
            shutil.copytree(ROOT / "examples", folder / "examples")

        for file in extra:
            shutil.copy(file, folder)

        def replace(match: re.Match[str]) -> str:
            before = match.string[: match.start()].rstrip().removesuffix("```console").rstrip()
            return match[0] if before.endswith(SKIP) and not extra else session(match[0], folder)

        return BLOCK.sub(replace, page.read_text(encoding="utf-8"))


def same(old: str, new: str) -> bool:
    """Equal words, and numbers within 2 % or 0.02."""
    if NUMBER.sub("#", re.sub(r"[\s─━═-]+", " ", old)) != NUMBER.sub("#", re.sub(r"[\s─━═-]+", " ", new)):
        return False
    for a, b in zip(NUMBER.findall(old), NUMBER.findall(new), strict=False):
        x, y = float(a.replace(",", "").rstrip(".")), float(b.replace(",", "").rstrip("."))
        if abs(x - y) > max(0.02, 0.02 * abs(x)):
            return False
    return True


def main() -> int:
    """Rewrite or check the pages named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 on a difference")
    parser.add_argument(
        "--with", dest="extra", nargs="+", type=Path, default=[], help="files to copy beside examples/"
    )
    parser.add_argument("pages", nargs="*", type=Path, help="default: README.md and docs/*.md")
    args = parser.parse_args()
    stale = False
    for page in args.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        old, new = page.read_text(encoding="utf-8"), refreshed(page, args.extra)
        if not args.check:
            page.write_text(new, encoding="utf-8")
        elif not same(old, new):
            import difflib

            stale = True
            diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "shown", "true", lineterm="")
            print(f"{page}: outputs are stale; run python docs/refresh.py", *diff, sep="\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
