"""The page as text: whole, closed to the network, and deaf to what records say."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_records import BUDGET, RUNGS, made_report, pilots, static_data, static_page, stored

from race.records import Health, PilotRecord
from race.reports.payload import MAX_CURVES, drawn_curves, embed
from race.reports.words import plain, short_id, three

HOSTILE = '</script><script>window.hacked=1</script>\n<img src=x onerror="window.hacked=1">{{data}}'


def payload(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def scripts(page: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def text_of(page: str) -> str:
    """What a reader without scripts sees."""
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)))


def named(record: PilotRecord, name: str) -> PilotRecord:
    return replace(record, spec=replace(record.spec, model=name))


@pytest.fixture(scope="module")
def page(report_file: Path) -> str:
    return report_file.read_text(encoding="utf-8")


def test_it_is_one_file_of_at_most_six_megabytes(page: str) -> None:
    assert len(page.encode()) <= 6 * 10**6
    fetched = re.findall(r"<(?:link|img|iframe|object|embed|source|base)\b[^>]*>|\bsrc\s*=|@import|url\(", markup(page))
    assert fetched == []


def markup(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_policy_admits_its_two_scripts_and_nothing_else(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts(page)}
    assert len(hashes) == 2
    assert set(rules["script-src"].split()) == hashes


def test_every_section_is_there_and_says_what_was_asked_for(page: str) -> None:
    sections = "decision whatif isoflop rho simplex curves evidence calibration assumptions"
    for section in sections.split():
        assert f'<section id="{section}"' in page
    words = text_of(page)
    assert "nothing is measured" in words
    assert "does not promise a better held-out result" in words
    assert "collapsed: reward fell to zero" in words
    data = payload(page)
    assert {s["budget"] for s in data["slices"]} >= {BUDGET / 10, BUDGET, BUDGET * 10}
    assert len(data["pilots"]) == 9


def test_it_is_the_same_page_every_time(tmp_path: Path) -> None:
    store = stored(tmp_path / "pilots", pilots(3))
    assert static_page(store) == static_page(store)


@settings(max_examples=50)
@given(st.text(), st.text())
def test_data_cannot_close_their_element(name: str, other: str) -> None:
    text = embed({name: [other, {"x": name}]})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {name: [other, {"x": name}]}


def test_data_hold_no_numbers_that_json_lacks() -> None:
    assert json.loads(embed({"a": float("nan"), "b": [float("inf")]})) == {"a": None, "b": [None]}


@settings(max_examples=50)
@given(st.text())
def test_plain_is_one_short_printable_line(text: str) -> None:
    line = plain(text, 50)
    assert line.isprintable() or line == ""
    assert len(line) <= 50


@pytest.mark.parametrize(
    ("x", "text"),
    [(0, "0"), (0.4386, "0.439"), (0.5, "0.500"), (0.9996, "1.00"), (9.996, "10.0"), (99.96, "100"), (1044.2, "1,040"),
     (2.5e7, "2.5e7"), (0.00012345, "1.23e-4"), (12.3, "12.3"), (1234567, "1.23e6")],
)  # fmt: skip
def test_three_digits(x: float, text: str) -> None:
    assert three(x) == text


def hostile_store() -> list[PilotRecord]:
    made = pilots(4)
    sick = Health("diverged", HOSTILE, (HOSTILE,))
    return [named(made[0], HOSTILE), named(made[1], "a\nb\r\x1b[31m"), replace(made[2], health=sick), made[3]]


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_report(tmp_path_factory.mktemp("hostile"), hostile_store())


def test_hostile_names_are_text(hostile_file: Path) -> None:
    page = hostile_file.read_text(encoding="utf-8")
    assert len(scripts(page)) == 2
    assert "<img" not in markup(page)
    assert "window.hacked=1" in text_of(page)
    assert "{{" not in re.sub(r"\{\{data\}\}", "", text_of(page))
    assert any("window.hacked" in p["model"] for p in payload(page)["pilots"])


def test_hostile_names_execute_nothing(browser: Any, hostile_file: Path) -> None:
    shown = browser(hostile_file)
    assert shown.js("return window.hacked") is None
    assert shown.console() == []
    assert [url for url in shown.requests() if url != hostile_file.as_uri()] == []
    assert shown.js("return document.querySelectorAll('img, iframe, script').length") == 3


def odd(records: Sequence[PilotRecord], tmp_path: Path) -> str:
    return static_page(stored(tmp_path / "pilots", records))


def test_models_that_only_a_hub_knows_are_used_at_their_size(tmp_path: Path) -> None:
    words = text_of(odd([named(r, f"somebody/model<{i}>") for i, r in enumerate(pilots(2))], tmp_path))
    assert "model 'somebody/model<0>' is not on the ladder; used at its own size" in words
    assert "2 records in" in words


def test_one_record(tmp_path: Path) -> None:
    page = odd(pilots(1), tmp_path)
    words = text_of(page)
    assert "one record entered the fit" in words
    assert "1 record in" in words


def test_a_target_that_half_of_the_records_lack(tmp_path: Path) -> None:
    made = pilots(6)
    cut = [replace(r, curves={"native": r.curves["native"]}) if i % 2 else r for i, r in enumerate(made)]
    assert "target judge: 3 of 6 records have no curve of it" in text_of(odd(cut, tmp_path))


def test_measured_records_are_not_called_simulated(tmp_path: Path) -> None:
    page = odd([replace(r, evidence="real") for r in pilots(3)], tmp_path)
    assert "Evidence: 3 real records" in text_of(page)
    assert "nothing is measured" not in text_of(page)


@pytest.mark.slow
def test_five_thousand_records(tmp_path: Path) -> None:
    run = pilots(1)[0]
    rng = __import__("numpy").random.default_rng(0)
    many = []
    for i in range(5000):
        rung = RUNGS.models[i % 3]
        spec = replace(run.spec, model=rung.name, params=rung.params, seed=i)
        value = tuple(float(x) for x in rng.uniform(0.2, 0.8, len(run.curves["native"])))
        curve = replace(run.curves["native"], value=value)
        many.append(replace(run, spec=spec, curves={"native": curve}, id=f"r{i:05d}"))
    page = odd(many, tmp_path)
    words = text_of(page)
    assert len(page.encode()) <= 6 * 10**6
    assert "5000 records in" in words
    assert "200 of them are listed" in words
    assert "150 of 5000 are drawn" in words
    assert words.count("1,000 of 5,000 pilots are drawn") == 2
    assert "400 of 5,000 measurements are drawn" in words


def test_a_healthy_run_off_the_ladder_is_not_drawn_as_an_ill_one(browser: Any, tmp_path: Path) -> None:
    records = pilots(3)
    stranger = replace(records[0], spec=replace(records[0].spec, model="somebody's <b>model</b>"))
    ill = replace(records[1], health=replace(records[1].health, status="collapsed", reason="reward fell"))
    file = tmp_path / "static.html"
    page = static_page(stored(tmp_path / "pilots", [stranger, ill, records[2]]))
    file.write_text(page, encoding="utf-8")
    assert "Pentagons in the colour of this text: models that are not on the ladder" in text_of(page)
    drawn = "return document.getElementById('chart-curves').data.map((t) => [t.text, t.line, t.marker])"
    traces = browser(file).js(drawn)
    looks = {("collapsed" in text, "somebody" in text): (line["color"], mark["symbol"]) for text, line, mark in traces}
    assert looks[False, True][1] == "pentagon"
    assert looks[True, False][1] == "x"
    assert len({colour for colour, _ in looks.values()}) == 3


def test_a_page_without_what_if_has_no_loose_ends(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "static.html"
    file.write_text(static_page(stored(tmp_path / "pilots", pilots(3))), encoding="utf-8")
    shown = browser(file)
    assert shown.console() == []
    assert shown.js("return document.getElementById('whatif')") is None
    shown.until("document.querySelectorAll('#chart-simplex .main-svg').length > 0")


def test_several_reward_systems_are_told_apart(browser: Any, tmp_path: Path) -> None:
    store = stored(tmp_path / "pilots", [*pilots(3, reward="prm"), *pilots(3, reward="dense")])
    page = static_page(store)
    file = tmp_path / "static.html"
    file.write_text(page, encoding="utf-8")
    # Of equally many the rule comes first, and the page says what it leaves aside.
    assert payload(page)["reward"] == "dense"
    assert "this page decides for reward dense (3 records); the evidence also has prm (3)" in text_of(page)
    shown = browser(file)
    drawn = "return document.getElementById('chart-curves').data.map((t) => t.text)"
    assert all("dense" in text for text in shown.js(drawn))
    shown.choose("curves-reward", "prm")
    assert len(shown.js(drawn)) == 3
    assert all("prm" in text for text in shown.js(drawn))


def test_curves_of_many_runs_are_drawn_evenly_for_every_reward() -> None:
    run = static_data(pilots(1)).runs[0]
    few = drawn_curves([replace(run, id=str(i)) for i in range(400)])
    assert len(few) == MAX_CURVES
    rewards = ("sparse", "structured", "dense", "proxy-prm", "prm")
    mixed = drawn_curves([replace(run, id=str(i), reward=rewards[i % 5]) for i in range(400)])
    assert Counter(one.reward for one in mixed) == dict.fromkeys(rewards, 48)


def test_names_of_records_are_whole_and_hashes_are_short() -> None:
    assert short_id("003ece7d31914b2f951cd3efa87f5f52") == "003ece7d3191"
    assert short_id("nano-l_sparse_a0p25_4e11_r8_x0p25_s100") == "nano-l_sparse_a0p25_4e11_r8_x0p25_s100"
