"""``race plot``: one figure of the report, for a paper or a slide."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import RecipeOptions, SeedOption, recipe_options
from race.cli.output import JsonFlag, emit
from race.cli.report import (
    Asked,
    BudgetOption,
    LadderOption,
    RewardOption,
    SurrogateOption,
    TargetOption,
    gather_report,
)
from race.cli.sources import StoresArgument
from race.cli.threads import one_thread
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from race.reports.data import ReportData

FIGURES = ("frontier", "rho", "simplex", "curves", "calibration")
FORMATS = (".png", ".svg", ".pdf")


@one_thread
@recipe_options
def plot(
    recipe: RecipeOptions,
    figure: Annotated[str, typer.Argument(help=", ".join(FIGURES), show_default=False)],
    store: StoresArgument,
    out: Annotated[Path, typer.Option("--out", help="File to write: .png, .svg or .pdf.")],
    budget: BudgetOption = None,
    reward: RewardOption = None,
    target: TargetOption = None,
    ladder: LadderOption = None,
    surrogate: SurrogateOption = None,
    dpi: Annotated[int, typer.Option("--dpi", min=30, max=1200, help="Of a PNG.")] = 200,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """One figure of the report: colour-blind safe, readable in greyscale."""
    if figure not in FIGURES:
        raise InvalidInput(f"figure: found {figure!r}; allowed are {', '.join(FIGURES)}")
    if out.suffix.lower() not in FORMATS:
        raise InvalidInput(f"out: found {out}; allowed is a file that ends in {', '.join(FORMATS)}")
    if not out.parent.is_dir():
        raise InvalidInput(f"out: found {out}, whose folder {out.parent} does not exist; make it first")
    asked = Asked(store, budget, reward, target, ladder, surrogate, recipe, seed)
    found, _ = gather_report(asked, saved="", interactive=False)
    drawn = draw(figure, found.data)
    try:
        # A date inside would make the same figure another file every day.
        drawn.savefig(out, dpi=dpi, metadata={"CreationDate": None} if out.suffix.lower() == ".pdf" else None)
    except OSError as error:
        raise CannotDo(f"out: cannot write {out}: {error.strerror}") from None
    data = {"files": [str(out)], "figure": figure, "target": found.data.target, "budget": found.data.budget}
    emit(data, as_json, lambda console: console.print(f"[bold]{out}[/bold]"))


def draw(figure: str, data: ReportData) -> Any:
    """The matplotlib figure called ``figure``."""
    from race.reports import figures

    if figure == "frontier":
        axes = figures.frontier(data)
    elif figure == "rho":
        axes = figures.rho_star(data)
    else:
        single: dict[str, Callable[[ReportData], Any]] = {
            "simplex": figures.simplex,
            "curves": figures.curves,
            "calibration": figures.calibration,
        }
        axes = [single[figure](data)]
    if not axes:
        raise CannotDo(f"{figure}: the budget pays for no step of any model, so there is nothing to draw")
    return axes[0].figure
