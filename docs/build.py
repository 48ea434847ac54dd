"""Build the documentation as HTML: these pages, and the API reference from the docstrings.

    pip install '.[runs,docs]'
    python docs/build.py                writes site/, open site/index.html
    python docs/build.py --out FOLDER --pages-only

The reference is made by pdoc, which imports every module, so the packages of the extra ``runs`` have to be there. A
warning (a name in ``__all__`` that does not exist, a docstring or annotation that cannot be read, a link of a page that
leads nowhere) ends the build.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("race", "surrogate", "planner", "real_runs")
LINK = re.compile(r'(href|src)="([^"#:]+)(#[^"]*)?"')
NAVIGATION = (
    ("README.md", "RACE"), ("docs/tutorial.md", "Tutorial"), ("docs/guides/plan-before-data.md", "Plan"),
    ("docs/guides/your-own-runs.md", "Your runs"), ("docs/guides/cluster.md", "Cluster"),
    ("docs/concepts/regimes.md", "Concepts"), ("docs/limits.md", "Limits"),
)  # fmt: skip
STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d0d7de, #3d444d); --soft: light-dark(#f6f8fa, #151b23); }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 0 1rem 4rem; }
nav { border-bottom: 1px solid var(--line); padding: .8rem 0; display: flex; gap: 1.2rem; flex-wrap: wrap; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; font-size: 13px; line-height: 1.35; }
code { background: var(--soft); font-size: .9em; padding: .1em .2em; } pre code { padding: 0; font-size: inherit; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
img { max-width: 100%; }
"""


def address(page: Path) -> Path:
    """Where a page of the repository goes, relative to the site."""
    inside = page.relative_to(ROOT)
    return Path("index.html") if inside == Path("README.md") else inside.with_suffix(".html")


def sources() -> list[Path]:
    """The pages of the site."""
    return [
        ROOT / "README.md", ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md")),
    ]  # fmt: skip


def write_pages(out: Path) -> None:
    """Render every page; links between pages lead to their HTML, other files of the repository are copied."""
    import markdown2

    pages = sources()
    known = {page.resolve() for page in pages}
    for page in pages:
        target = out / address(page)
        target.parent.mkdir(parents=True, exist_ok=True)

        def follow(match: re.Match[str], page: Path = page, target: Path = target) -> str:
            attribute, link, anchor = match[1], match[2], match[3] or ""
            file = (page.parent / link).resolve()
            if not file.exists():
                warnings.warn(f"{page.relative_to(ROOT)}: link to {link}, which does not exist", stacklevel=2)
                return match[0]
            if file in known:
                goal = out / address(file)
            elif file.is_file():
                goal = out / file.relative_to(ROOT)
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, goal)
            else:
                return match[0]
            return f'{attribute}="{Path(os.path.relpath(goal, target.parent)).as_posix()}{anchor}"'

        extras = ["fenced-code-blocks", "tables", "header-ids", "cuddled-lists"]
        body = LINK.sub(follow, markdown2.markdown(page.read_text(encoding="utf-8"), extras=extras))
        target.write_text(frame(page, body, out), encoding="utf-8")


def frame(page: Path, body: str, out: Path) -> str:
    """A page around its body."""
    here = (out / address(page)).parent
    title = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    links = [(name, out / address(ROOT / path)) for path, name in NAVIGATION] + [("API", out / "api" / "index.html")]
    nav = " ".join(f'<a href="{Path(os.path.relpath(goal, here)).as_posix()}">{name}</a>' for name, goal in links)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title[1] if title else page.stem)}</title><style>{STYLE}</style></head>"
        f"<body><nav>{nav}</nav><main>{body}</main></body></html>\n"
    )


def write_reference(out: Path) -> None:
    """The API reference, one page per module."""
    import pdoc

    for name in PACKAGES:
        package = import_module(name)
        for export in getattr(package, "__all__", ()):
            setattr(package, export, getattr(package, export))  # exports load on first use; pdoc looks at what is there
    pdoc.render.configure(docformat="numpy", search=True, footer_text="RACE")
    pdoc.pdoc(*PACKAGES, output_directory=out)


def main() -> int:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    parser.add_argument("--pages-only", action="store_true", help="without the API reference, in a second")
    args = parser.parse_args()
    out: Path = args.out.resolve()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write_pages(out)
        if not args.pages_only:
            write_reference(out / "api")
    # Deprecations inside other people's packages, met while importing them, say nothing about this documentation.
    ours = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    for message in ours:
        print(f"warning: {message}", file=sys.stderr)
    print(out / "index.html")
    return int(bool(ours))


if __name__ == "__main__":
    sys.exit(main())
