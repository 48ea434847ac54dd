"""The page in real Chromium, from a file: it answers as ``race query`` does, calls nobody, and everyone can use it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from browser import Page
from report_records import race

from race.reports.words import three

Browser = Callable[..., Page]
PAIR = re.compile(r"^(\S+) \((\S+) to (\S+)\)")

# model, reward, scorer, budget, rho, target: every control moves at least once.
SETTINGS = [
    ("Qwen2.5-7B-Instruct", "prm", "Qwen2.5-Math-PRM-7B", "1e20", 0.5, "native"),
    ("Qwen2.5-3B-Instruct", "prm", "Qwen2.5-PRM-0.5B", "1e20", 0.7, "native"),
    ("Qwen2.5-1.5B-Instruct", "proxy-prm", "qwen2.5-prm-1.5b", "1e19", 0.3, "judge"),
    ("Qwen2.5-1.5B-Instruct", "sparse", None, "1e21", 0.9, "judge"),
]


def ask(file: Path, setting: tuple[Any, ...]) -> dict[str, Any]:
    """``race query`` at a setting, on the surrogate beside the page."""
    model, reward, scorer, budget, rho, target = setting
    scored = ["--reward-model", scorer] if scorer else []
    code, out, err = race(
        "query", file.with_suffix(".surrogate"), "--budget", budget, "--reward", reward, *scored,
        "--model", model, "--rho", rho, "--target", target, "--gpu", "A100-SXM-80GB", "--gpus", 4, "--json",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def choose(page: Page, setting: tuple[Any, ...]) -> None:
    model, reward, scorer, budget, rho, target = setting
    page.choose("w-model", model)
    page.choose("w-reward", reward)
    if scorer:
        page.choose("w-scorer", scorer)
    page.choose("w-budget", budget)
    page.choose("w-target", target)
    page.slide_to(rho)


@pytest.mark.parametrize("width", [1280, 390])
def test_what_if_agrees_with_race_query(browser: Browser, report_file: Path, width: int) -> None:
    page = browser(report_file, width)
    page.choose("w-gpu", "A100-SXM-80GB")
    page.js(
        "const n = document.getElementById('w-count'); n.value = '4'; n.dispatchEvent(new Event('input'))"
    )
    for setting in SETTINGS if width == 1280 else SETTINGS[1:3]:
        choose(page, setting)
        said = ask(report_file, setting)
        value, shares = said["value"], said["flops"]["shares"]
        assert page.text("a-value") == three(value["mean"])
        assert page.text("a-interval") == f"90 %: {three(value['lo'])} to {three(value['hi'])}"
        if setting[1] == "prm":
            assert page.text("a-collapse").startswith(f"probability {said['collapse_risk']:.2f} ")
        assert page.text("a-shares") == ", ".join(f"{p} {three(100 * s)} %" for p, s in shares.items())
        assert f"{said['recipe']['steps']:,} step" in page.text("a-recipe")
        last = said["recipe"]["last_step_prompts"]
        assert (f"last one of {last} prompts" in page.text("a-recipe")) == bool(last)
        assert page.text("a-recipe").endswith(f"a = {three(said['recipe']['update_ratio'])}")
        for element, key in (("hours", "gpu_hours"), ("wall", "wall_hours"), ("dollars", "dollars"), ("kwh", "kwh")):
            shown = PAIR.match(page.text(f"a-{element}"))
            assert shown is not None, page.text(f"a-{element}")
            assert shown.groups() == tuple(three(said["cost"][key][end]) for end in ("point", "lo", "hi"))
    assert page.console() == []


def test_the_command_shown_is_the_answer_shown(browser: Browser, report_file: Path) -> None:
    page = browser(report_file)
    choose(page, SETTINGS[1])
    command = page.text("a-command").split()
    assert command[:2] == ["race", "query"]
    code, out, err = race(*command[1:], "--json")
    assert code == 0, err
    assert three(json.loads(out)["value"]["mean"]) == page.text("a-value")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_no_errors_no_network_no_sideways_scrolling(
    browser: Browser, report_file: Path, width: int, dark: bool
) -> None:
    page = browser(report_file, width, dark=dark)
    for target in page.js("return [...document.getElementById('shown').options].map((o) => o.text)"):
        page.choose("shown", target)
    page.choose("w-reward", "sparse")
    page.until("document.querySelectorAll('#chart-simplex .main-svg').length > 0")
    assert page.console() == []
    assert [url for url in page.requests() if url != report_file.as_uri()] == []
    assert page.js("return document.documentElement.scrollWidth") <= width
    drawn = page.js("return [...document.querySelectorAll('.chart')].filter((c) => !c.querySelector('svg')).length")
    assert drawn == 0


def test_an_answer_takes_at_most_fifty_milliseconds(browser: Browser, report_file: Path) -> None:
    page = browser(report_file)
    took = []
    for rho in (0.3, 0.4, 0.5, 0.6, 0.7, 0.6, 0.5, 0.4, 0.3, 0.4, 0.5):
        page.slide_to(rho)
        took.append(float(page.js("return document.getElementById('answer').dataset.ms")))
    # The faster half: what else runs on the machine slows the other.
    assert median(sorted(took)[: len(took) // 2 + 1]) <= 50, took


def test_a_setting_that_cannot_be_run_says_why(browser: Browser, report_file: Path) -> None:
    page = browser(report_file)
    page.choose("w-reward", "sparse")
    page.slide_to(0.1)
    said = page.text("a-problem")
    assert "update ratio" in said
    assert "1/16 to 16" in said
    assert not page.js("return document.getElementById('a-problem').hidden")
    assert page.text("a-value") == "–"
    page.js("document.getElementById('w-best').click()")
    assert page.js("return document.getElementById('a-problem').hidden")


def test_every_control_has_a_label_and_the_keyboard_reaches_it(browser: Browser, report_file: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page = browser(report_file)
    bare = page.js(
        "return [...document.querySelectorAll('select, input')].filter((e) => !e.labels.length).map((e) => e.id)"
    )
    assert bare == []
    nameless = page.js(
        "return [...document.querySelectorAll('[role=img]')].filter((e) => !e.getAttribute('aria-label')).length"
    )
    assert nameless == 0
    wanted = set(
        page.js(
            "const all = [...document.querySelectorAll('select:enabled, input, button')];"
            "return all.map((e, i) => { e.dataset.n = i; return i; })"
        )
    )
    page.driver.find_element(By.TAG_NAME, "body").send_keys("")
    for _ in range(80):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        wanted.discard(page.js("const n = document.activeElement.dataset.n; return n === undefined ? null : Number(n)"))
        if not wanted:
            break
    assert not wanted


CONTRAST = """
const lum = ([r, g, b]) => {
  const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
};
const rgb = (s) => { const m = s.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const behind = (e) => {
  for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
  return matchMedia('(prefers-color-scheme: dark)').matches ? [20, 23, 27] : [255, 255, 255];
};
const poor = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.textContent.trim() || e.closest('script, style, noscript')) continue;
  if (!e.getClientRects().length) continue;
  const svg = e.closest('svg');
  const style = getComputedStyle(e);
  if (svg && style.fillOpacity === '0') continue;
  const ink = rgb(svg ? style.fill : style.color);
  const ground = behind(svg ? svg.parentElement : e);
  const [a, b] = [lum(ink), lum(ground)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const large = parseFloat(style.fontSize) >= 24;
  if (ratio < (large ? 3 : 4.5)) poor.push([e.textContent.slice(0, 40), ratio.toFixed(2), style.color]);
}
return poor;
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_contrast_is_aa(browser: Browser, report_file: Path, dark: bool) -> None:
    page = browser(report_file, dark=dark)
    assert page.js(CONTRAST) == []


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_drawn_stands_out_from_its_ground(browser: Browser, report_file: Path, dark: bool) -> None:
    """WCAG 1.4.11: lines, marks and control borders at 3:1."""
    page = browser(report_file, dark=dark)
    read = "return getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0]).trim()"
    ground = [page.js(read, name) for name in ("bg", "panel")]
    for name in ("m0", "m1", "m2", "m3", "m4", "m5", "search", "learning", "reward", "accent", "control"):
        ink = page.js(read, name)
        for back in ground:
            assert contrast(ink, back) >= 3, (name, ink, back)


def contrast(a: str, b: str) -> float:
    def luminance(hex_colour: str) -> float:
        parts = [int(hex_colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
