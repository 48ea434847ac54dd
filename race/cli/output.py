"""How commands speak: one JSON object, or a readable table, on stdout; everything else on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.", show_default=False)
]


def emit(data: Mapping[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print ``data`` as one JSON object, or let ``render`` draw it for people."""
    if as_json:
        sys.stdout.write(json.dumps(_finite(data), allow_nan=False) + "\n")
        return
    screen = console()
    if screen.is_terminal:
        render(screen)
        return
    # A log or a pipe gets the same words without the blanks that fill a terminal's lines.
    with screen.capture() as said:
        render(screen)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in said.get().splitlines()))


def console(*, stderr: bool = False) -> Console:
    """A rich console; honours NO_COLOR, falls back to 80 columns when piped."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def note(message: str) -> None:
    """One line on stderr that is not an error."""
    print(f"note: {message}", file=sys.stderr)


def table(columns: Iterable[str | tuple[str, str]], *, title: str | None = None) -> Table:
    """A plain table; a column given as ``(name, "right")`` is right-aligned."""
    from rich import box
    from rich.table import Table

    result = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        name, justify = column if isinstance(column, tuple) else (column, "left")
        result.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return result


def facts(*rows: tuple[str, str]) -> Table:
    """Names and what is to be said of them, wrapped in their own column at any width."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, text)
    return grid


def bullets(lines: Iterable[str]) -> Table:
    """Dim notes, each wrapped beside its dash."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(Text("-", style="dim"), Text(line, style="dim"))
    return grid


def run_length(recipe: dict[str, Any]) -> str:
    """Steps of a sized run in words, with the smaller last step if there is one."""
    steps, last = recipe["steps"], recipe["last_step_prompts"]
    rest = f" (+ a last one of {last} prompt{'s' if last != 1 else ''})" if last else ""
    return (
        f"{steps:,} step{'s' if steps != 1 else ''} of {recipe['prompts_per_step']} prompts x "
        f"{recipe['group_size']} rollouts{rest}"
    )


def evidence_of(counts: Mapping[str, int]) -> str:
    """``3 imported records``, or that there is nothing but the prior."""
    found = ", ".join(f"{n} {kind} record{'s' if n != 1 else ''}" for kind, n in counts.items() if n)
    if not found:
        return "[yellow]none: this is the simulator's prior, nothing is measured[/yellow]"
    if {kind for kind, n in counts.items() if n} == {"simulated"}:
        return f"[yellow]{found}: a simulated world, nothing is measured[/yellow]"
    return found


def odds_of(pairs: list[tuple[str, float]]) -> str:
    """``update-heavy 0.68, reward-heavy 0.32``, leaving out what rounds to nothing unless it is alone."""
    return ", ".join(f"{name} {p:.2f}" for i, (name, p) in enumerate(pairs) if p >= 0.005 or i == 0)


def with_interval(value: dict[str, float], digits: str) -> str:
    """A mean in bold and its 90 % interval."""
    return f"[bold]{value['mean']:{digits}}[/bold]  (90 %: {value['lo']:{digits}} to {value['hi']:{digits}})"


def _finite(value: Any) -> Any:
    """JSON-ready copy: numpy scalars to Python, NaN and infinity to null (JSON has neither)."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
