"""A report to look at, and a real browser to look at it with."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from browser import Page, open_browser
from report_records import made_report


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page on nine simulated pilots, as ``race report`` writes it, with its surrogate beside it."""
    return made_report(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Callable[..., Page]]:
    """Opens a file in headless Chromium; one browser serves the whole session."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if found is None or driver is None:
        pytest.skip("no chromium with chromedriver on this machine: apt-get install chromium chromium-driver")
    with open_browser(found, driver) as page:
        yield page
