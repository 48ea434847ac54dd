"""Headless Chromium, driven the way a reader would: by clicks and keys, with an eye on console and network."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@dataclass
class Page:
    """One loaded page."""

    driver: Any

    def js(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def text(self, element: str) -> str:
        return str(self.js("return document.getElementById(arguments[0]).textContent", element))

    def choose(self, element: str, value: object) -> None:
        """Pick an option by its text (or its beginning), as a reader would."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import Select

        select = Select(self.driver.find_element(By.ID, element))
        wanted = next(o for o in select.options if o.text == str(value) or o.text.startswith(f"{value} ("))
        select.select_by_visible_text(wanted.text)

    def slide_to(self, rho: float) -> None:
        """Move the slider by arrow keys until it shows ``rho``."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        slider = self.driver.find_element(By.ID, "w-rho")
        for _ in range(40):
            shown = float(self.text("w-rho-out"))
            if abs(shown - rho) < 1e-9:
                return
            slider.send_keys(Keys.ARROW_RIGHT if shown < rho else Keys.ARROW_LEFT)
        raise AssertionError(f"the slider does not reach {rho}")

    def console(self) -> list[str]:
        """What the console said since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since it was last asked, beside the page itself."""
        seen = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in seen if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]

    def look(self, width: int = 1280, *, dark: bool = False, height: int = 900) -> None:
        """The window's size and colour scheme."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def until(self, condition: str, seconds: float = 30.0) -> None:
        """Wait for a JavaScript condition."""
        end = time.monotonic() + seconds
        while not self.js(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"still not {condition} after {seconds} s: {self.console()}"
            time.sleep(0.05)


@contextmanager
def open_browser(binary: str, driver_path: str) -> Iterator[Callable[..., Page]]:
    """A function that opens a file at a width and waits until its script is done."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))

        def go(file: Path | None, width: int = 1280, *, dark: bool = False) -> Page:
            page = Page(driver)
            page.look(width, dark=dark)
            driver.get("about:blank")
            page.console(), page.requests()
            if file is not None:
                driver.get(file.as_uri())
            if file is not None:
                page.until("document.documentElement.dataset.ready")
            return page

        driver.get("about:blank")  # away from Chromium's own start page, which is busy for a while
        try:
            yield go
        finally:
            driver.quit()
