"""Generated blocks on a page with words around them."""

from __future__ import annotations

import pytest

from race.errors import InvalidInput
from real_runs.study.results.page import folded, interval, show, table, unfolded, update


def test_words_around_blocks_stay_and_new_blocks_are_added() -> None:
    first = update("# Page\n\nIntro.\n", {"a": ("Title a", "one"), "b": ("Title b", "two")})
    written = first.replace("## Title a", "## My own title\n\nMy words.")
    written = written.replace("<!-- end: a -->", "<!-- end: a -->\n\nAfter.")
    second = update(written, {"a": ("Title a", "three"), "c": ("Title c", "four")})
    assert "Intro." in second
    assert "## My own title\n\nMy words." in second
    assert "After." in second
    assert "one" not in second
    assert "three" in second
    assert "two" in second
    assert second.index("four") > second.index("two")
    assert update(second, {"a": ("Title a", "three")}) == second


@pytest.mark.parametrize("page", ["<!-- generated: a -->", "<!-- end: a --> <!-- generated: a -->"])
def test_broken_markers_are_refused(page: str) -> None:
    with pytest.raises(InvalidInput, match="page"):
        update(page, {"a": ("t", "x")})


def test_cells() -> None:
    assert table(["a", "b"], [[1, None]]) == "| a | b |\n| --- | --- |\n| 1 | – |"
    assert [show(v) for v in (True, 0.123456, 12.345, 1234.5, float("inf"), float("nan"))] == [
        "yes", "0.12", "12.3", "1234", "never", "–",
    ]  # fmt: skip
    assert interval(0.5, 0.4, 0.612) == "0.50 [0.40, 0.61]"
    assert interval(None, None, None) == "–"


def test_parts_that_open_on_a_click_can_be_left_out() -> None:
    text = "| a |" + folded("More", "one\n\ntwo") + "\n\nAfter." + folded("And", "three")
    assert unfolded(text) == "| a |\n\nAfter."
    assert unfolded("| a |") == "| a |"
