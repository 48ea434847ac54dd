"""What a report takes: seconds to build by number of records, bytes of the page, milliseconds of a what-if.

    python benchmarks/report_speed.py            # 1, 12, 100, 500 records
    python benchmarks/report_speed.py 5000

Records are simulated pilots of the default ladder with three targets each. Building is timed in a process of its own,
start-up and writing included, as CPU seconds and on the clock: beside other work the clock says little. What-ifs are
timed in headless Chromium, from the event to the page with its numbers and its chart drawn; without Chromium they are
left out.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from planner.grid import start_grid
from planner.space import PilotSpace
from race.ladders import ladder
from race.simulator.worlds import world
from race.store import Store

BUDGET = 10**20
MOVE = """
const out = [], slider = document.getElementById('w-rho');
for (let i = 0; i < 40; i += 1) {
  slider.value = String(3 + (i % 8));
  const begun = performance.now();
  slider.dispatchEvent(new Event('input'));
  out.push(performance.now() - begun);
}
return out;
"""


def fill(folder: Path, count: int) -> None:
    """``count`` pilots of the opening grid, again and again with other seeds."""
    space = PilotSpace.build(ladder(), budget=BUDGET, reward="prm", target=["native", "judge", "pass@1"])
    cells, run = start_grid(space, 9), world("own-5")
    once = [run(space.spec(cells[i % len(cells)], seed=i)) for i in range(min(count, 500))]
    more = []
    for i in range(500, count):
        one = once[i % len(once)]
        more.append(replace(one, id=f"r{i}", spec=replace(one.spec, seed=i)))
    Store(folder, create=True).add_all([*once, *more])


def build(store: Path, out: Path) -> tuple[float, float]:
    """CPU and wall seconds of ``race report``."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from race.cli import main; main()", "report", store, "--out", out, "--budget", "1e20"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - begun


def respond(page: Path) -> tuple[float, float] | None:
    """Median and worst milliseconds of a what-if, or ``None`` without Chromium."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        return None
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "reports"))
    from browser import open_browser

    with open_browser(binary, driver) as go:
        took = [float(x) for x in go(page).js(MOVE)]
    return statistics.median(took), max(took)


def main() -> None:
    counts = [int(a) for a in sys.argv[1:]] or [1, 12, 100, 500]
    print(f"{'records':>8} {'CPU s':>7} {'wall s':>7} {'MB':>6}  what-if")
    with tempfile.TemporaryDirectory() as scratch:
        for count in counts:
            store, page = Path(scratch) / f"s{count}", Path(scratch) / f"r{count}.html"
            fill(store, count)
            cpu, wall = build(store, page)
            answer = respond(page)
            said = "no chromium" if answer is None else f"median {answer[0]:.0f} ms, worst {answer[1]:.0f} ms"
            print(f"{count:>8} {cpu:>7.1f} {wall:>7.1f} {page.stat().st_size / 1e6:>6.2f}  {said}", flush=True)


if __name__ == "__main__":
    main()
