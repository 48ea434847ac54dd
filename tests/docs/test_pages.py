"""Links lead somewhere, commands and options exist, snippets can be read, and the HTML builds without a warning."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import typer

from race.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in headings(target), link


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in seen:
            seen.add(page)
            paths = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
            todo += [path for path in paths if path.suffix == ".md"]
    assert set(PAGES) <= seen


@pytest.fixture(scope="module")
def command() -> click.Group:
    group = typer.main.get_command(app)
    assert hasattr(group, "commands")
    return group  # type: ignore[return-value]


def test_the_readme_lists_every_command(command: click.Group) -> None:
    shown = set(re.findall(r"^\| `race (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert shown == set(command.commands)


def lines_of_commands(page: Path) -> list[str]:
    """Every ``race ...`` that a page tells a reader to type."""
    text = page.read_text(encoding="utf-8")
    shell = [body for kind, body in FENCE.findall(text) if kind in ("bash", "console")]
    shell += re.findall(r"^    (race .+)$", FENCE.sub("", text), re.MULTILINE)
    found = []
    for body in shell:
        for line in body.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\||>|;", line.removeprefix("$ ").split(" #")[0]):
                match = re.search(r'(?:^|\s|-- |/bin/|")race (\w+.*?)(?:"\s*)?$', part.strip())
                if match and not line.startswith(" "):
                    found.append(match[1].strip())
    return [line.removesuffix(" 2") for line in found]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_shown_have_these_options(page: Path, command: click.Group) -> None:
    for line in lines_of_commands(page):
        words = re.split(r"\s{3,}", line)[0]  # an explanation may stand to the right of an indented command
        at: click.Command = command
        arguments = shlex.split(words)
        while hasattr(at, "commands"):
            assert arguments[0] in at.commands, f"{page.name}: race {line}"
            at = at.commands[arguments.pop(0)]
        if arguments == ["..."]:
            continue
        allowed = {option for parameter in at.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in arguments:
            if re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", word):
                assert word.partition("=")[0] in allowed | {"--help", "-h"}, f"{page.name}: race {line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_snippets_can_be_read(page: Path) -> None:
    for kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "toml":
            tomllib.loads(body)
        elif kind == "json":
            json.loads(body)
        elif kind == "python":
            compile(body, str(page), "exec")


@pytest.mark.slow  # imports torch, transformers and TRL, then renders some hundred modules
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", "--out", tmp_path],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr
    assert (tmp_path / "index.html").is_file()
    assert "Surrogate.fit" in (tmp_path / "api" / "surrogate.html").read_text(encoding="utf-8")
