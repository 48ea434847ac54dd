"""Take the pictures of a report that the documentation shows, from a page that ``race report`` wrote.

    race report STORE --out report.html --budget 1e20
    python docs/pictures.py report.html docs/pictures/report.png

Needs Chromium, chromedriver and selenium. The picture is the top of the page, or with ``--section ID`` that section.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def take(page: Path, out: Path, *, width: int, height: int, dark: bool, section: str | None) -> None:
    """Write a PNG of ``page``."""
    sys.path.insert(0, str(ROOT / "tests" / "reports"))
    from browser import open_browser

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise SystemExit("pictures: chromium and chromedriver are not installed")
    with open_browser(binary, driver) as go:
        shown = go(page.resolve(), width, dark=dark)
        shown.look(width, dark=dark, height=shown.js("return document.documentElement.scrollHeight"))
        time.sleep(1)  # figures settle after the window has changed its size
        top, tall = 0, height
        if section is not None:
            box = "const b = document.getElementById(arguments[0]).getBoundingClientRect(); return [b.top, b.height];"
            top, tall = (int(x) for x in shown.js(box, section))
        clip = {"x": 0, "y": top, "width": width, "height": tall, "scale": 1}
        shot = shown.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1000, help="of the top of the page, without --section")
    parser.add_argument("--section", help="such as whatif or isoflop")
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    take(args.page, args.out, width=args.width, height=args.height, dark=args.dark, section=args.section)


if __name__ == "__main__":
    main()
