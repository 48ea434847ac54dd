"""The figures as matplotlib axes: what is drawn is what the data say, and survives print and colour blindness."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from report_records import BUDGET, pilots, static_data

from race.cli.plot import FIGURES, draw
from race.reports.data import ReportData
from race.reports.figures import (
    COLOURS,
    DASHES,
    MARKS,
    NAMES,
    calibration,
    curves,
    frontier,
    look,
    rho_star,
    simplex,
)

mpl.use("agg")


@pytest.fixture(scope="module")
def data() -> ReportData:
    return static_data(pilots(6))


def test_a_panel_per_budget_with_bands_and_pilots(data: ReportData) -> None:
    panels = frontier(data)
    assert len(panels) == len(data.slices_of(data.target)) == 4
    with_pilots = [ax for ax in panels if "pilot" in ax.get_title()]
    assert [ax.get_title() for ax in with_pilots] == ["6.25e+17 FLOPs, 6 pilots".replace("e+", "e")]
    for ax, on in zip(panels, data.slices_of(data.target), strict=True):
        assert len(ax.collections) >= len(on.lines)
        drawn = [line.get_ydata() for line in ax.lines]
        for line in on.lines:
            assert any(len(y) == len(line.mean) and np.allclose(y, line.mean) for y in drawn)


def test_rho_star_and_regimes_add_up(data: ReportData) -> None:
    left, right = rho_star(data, "judge")
    assert left.get_ylim() == (0, 1)
    heights = np.array([bar.get_height() for bar in right.patches]).reshape(3, -1)
    np.testing.assert_allclose(heights.sum(axis=0), 1)


def test_the_simplex_puts_shares_where_they_belong(data: ReportData) -> None:
    ax = simplex(data)
    star = next(line for line in ax.lines if line.get_label() == "recommended")
    share = data.decision["recommendation"]["shares"]
    x, y = star.get_xydata()[0]
    assert y == pytest.approx(np.sqrt(3) / 2 * share["learning"])
    assert x == pytest.approx(0.5 * share["learning"] + share["reward"])


def test_curves_and_calibration_say_when_there_is_nothing(data: ReportData) -> None:
    bare = replace(data, checks={**data.checks, "checks": []}, runs=())
    assert "no record" in curves(bare).texts[0].get_text()
    assert "no run" in calibration(bare).texts[0].get_text()
    assert len(curves(data).lines) == 6
    assert sum(len(c.lines) for c in (calibration(data),)) >= 2


@pytest.mark.parametrize(("figure", "kind"), list(zip(FIGURES, ("png", "svg", "pdf", "svg", "png"), strict=True)))
def test_every_figure_saves(data: ReportData, figure: str, kind: str) -> None:
    out = io.BytesIO()
    draw(figure, data).savefig(out, format=kind, dpi=50)
    assert len(out.getvalue()) > 2000


def test_the_command_knows_every_figure() -> None:
    assert FIGURES == NAMES


def test_axes_given_are_drawn_on(data: ReportData) -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert curves(data, "judge", ax) is ax
    with pytest.raises(ValueError, match="one per panel"):
        frontier(data, axes=[ax])


# Machado, Oliveira, Fernandes (2009), severity 1.
_BLIND = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def _lab(rgb: np.ndarray) -> np.ndarray:
    linear = np.clip(rgb, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(np.maximum(xyz / np.array([0.9505, 1.0, 1.089]), 1e-4))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def _linear(colour: str) -> np.ndarray:
    rgb = np.array(mpl.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("blindness", _BLIND)
def test_the_default_ladders_models_are_told_apart_by_everyone(blindness: str) -> None:
    seen = [_lab(np.array(_BLIND[blindness]) @ _linear(c)) for c in COLOURS[:3]]
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > 20


def test_lightness_falls_with_size_and_shapes_differ_too() -> None:
    light = [_lab(_linear(c))[0] for c in COLOURS[:3]]
    assert light == sorted(light, reverse=True)
    assert min(-np.diff(light)) > 6
    assert len(set(MARKS)) == len(set(map(str, DASHES))) == len(COLOURS)


def test_models_off_the_ladder_are_not_taken_for_runs_that_fell_ill(data: ReportData) -> None:
    assert look(data, "somebody's model").mark == "p"
    healthy = next(run for run in data.runs if run.status == "ok" and run.reward == data.reward)
    stranger = replace(healthy, model="somebody's model")
    ill = replace(healthy, status="collapsed", reason="reward fell")
    lines = curves(replace(data, runs=(stranger, ill))).lines
    assert lines[0].get_color() != lines[1].get_color()
    assert lines[0].get_marker() != lines[1].get_marker()
    assert look(data, data.models[0][0]).colour == COLOURS[0]
    assert data.budget == BUDGET
