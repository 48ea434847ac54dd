"""Records and reports for the tests: simulated pilots, and the odd stores of people's disks."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planner.grid import start_grid
from planner.space import PilotSpace
from race.cli import run as run_command
from race.ladders import ladder
from race.records import PilotRecord
from race.reports.data import ReportData
from race.simulator.worlds import world
from race.store import Store

RUNGS = ladder("qwen2.5")
BUDGET = 10**20


def pilots(
    count: int = 9,
    *,
    reward: str = "prm",
    budget: int = BUDGET,
    targets: Sequence[str] = ("native", "judge"),
    name: str = "own-5",
) -> list[PilotRecord]:
    """IsoFLOP pilots in a simulated world."""
    space = PilotSpace.build(RUNGS, budget=budget, reward=reward, target=targets)
    cells = start_grid(space, min(count, 9))
    run = world(name)
    return [run(space.spec(cells[i % len(cells)], seed=i)) for i in range(count)]


def stored(folder: Path, records: Sequence[PilotRecord]) -> Path:
    """A store with ``records``."""
    Store(folder, create=True).add_all(records)
    return folder


def race(*args: object) -> tuple[int, str, str]:
    """One command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(a) for a in args])
    return code, out.getvalue(), err.getvalue()


def made_report(folder: Path, records: Sequence[PilotRecord] | None = None, *more: object) -> Path:
    """``race report`` on ``records``; by default on pilots of which one collapsed."""
    if records is None:
        records = pilots()
        sick = replace(records[-1].health, status="collapsed", reason="reward fell to zero")
        records = [*records[:-1], replace(records[-1], health=sick)]
    store = stored(folder / "pilots", records)
    code, _, err = race("report", store, "--out", folder / "report.html", "--budget", f"{BUDGET:.0e}", *more)
    assert code == 0, err
    return folder / "report.html"


def static_page(store: Path) -> str:
    """The page of a store without its what-if, which is most of what a page takes to make."""
    from race.reports.page import build_page

    return build_page(_gathered([store]))


def static_data(records: Sequence[PilotRecord]) -> ReportData:
    """What a report shows of ``records``, without a what-if."""
    with tempfile.TemporaryDirectory() as folder:
        return _gathered([stored(Path(folder) / "pilots", records)])


def _gathered(stores: list[Path]) -> ReportData:
    from race.cli.options import RecipeOptions
    from race.cli.report import Asked, gather_report

    asked = Asked(stores, f"{BUDGET:.0e}", None, None, None, None, RecipeOptions(), 0)
    return gather_report(asked, saved="saved", interactive=False)[0].data
