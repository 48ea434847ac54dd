"""Generated tables on a page that people write on too.

A block is what stands between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``. Blocks are replaced, everything
around them is kept, and a block that the page does not have yet is added at its end under its title.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from race.errors import InvalidInput

MISSING = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; ``None`` and NaN become a dash."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(show(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def show(value: Any) -> str:
    """A cell: three significant digits or thereabouts."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return MISSING
        if math.isinf(value):
            return "never"
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1 else f"{value:.2f}"
    return str(value)


def interval(value: float | None, lo: float | None, hi: float | None, digits: int = 2) -> str:
    """``0.45 [0.40, 0.51]``."""
    if value is None or math.isnan(value):
        return MISSING
    if lo is None or hi is None:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{lo:.{digits}f}, {hi:.{digits}f}]"


def share(found: Sequence[float] | None) -> str:
    """A share with its interval, as `statistics.share_of` gives it."""
    return MISSING if found is None else interval(found[0], found[1], found[2])


def folded(title: str, text: str) -> str:
    """A part that opens on a click, to append."""
    return f"\n\n<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def unfolded(text: str) -> str:
    """The text without the parts that open on a click."""
    return re.sub(r"\n\n<details>.*?</details>", "", text, flags=re.DOTALL)


def update(page: str, blocks: Mapping[str, tuple[str, str]]) -> str:
    """The page with every block as ``{name: (title, text)}`` gives it.

    Raises
    ------
    InvalidInput
        A marker without its partner, or a block twice.
    """
    for name, (title, text) in blocks.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        if (page.count(begin), page.count(end)) not in ((0, 0), (1, 1)):
            raise InvalidInput(f"page: {begin} and {end} must be there once each, or not at all")
        block = f"{begin}\n{text.strip()}\n{end}"
        if begin in page:
            found = re.search(re.escape(begin) + ".*?" + re.escape(end), page, flags=re.DOTALL)
            if found is None:
                raise InvalidInput(f"page: {end} comes before {begin}")
            page = page[: found.start()] + block + page[found.end() :]
        else:
            page = page.rstrip() + f"\n\n## {title}\n\n{block}\n"
    return page.lstrip("\n")
