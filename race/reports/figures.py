"""The report's figures as matplotlib axes: for papers, notebooks and ``race plot``.

Every function draws `ReportData` and returns what it drew on. A model has the same colour, dash and mark in all of
them; lightness falls with size, so that order survives a greyscale printer and colour-blind eyes.

Example
-------
>>> import matplotlib; matplotlib.use("agg")
>>> axes = frontier(data)                                               # doctest: +SKIP
>>> axes[0].figure.savefig("frontier.pdf")                              # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from race.reports.data import ReportData, Run, Slice
from race.reports.payload import MAX_CURVES, evenly
from race.reports.words import plain
from race.units import format_flops

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Light to dark with size. Pairwise told apart under deuteranopia, protanopia and tritanopia, and in grey.
COLOURS = ("#e08a1e", "#1b9e8a", "#3b3fa6", "#8c2d5f", "#4d4d4d", "#1a1a1a")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (10, 2)), (0, (10, 2, 2, 2)))
MARKS = ("o", "s", "D", "^", "P", "*")
REGIME_LOOKS = {
    "search-heavy": ("#9cc3ea", ""),
    "update-heavy": ("#c8860d", "//"),
    "reward-heavy": ("#7d2a63", ".."),
}
GREY = "#6b6b6b"
NEAR_SLICE = np.log(1.5)
NAMES = ("frontier", "rho", "simplex", "curves", "calibration")


@dataclass(frozen=True)
class Look:
    """Colour, dash and mark of one model."""

    colour: str
    dash: Any
    mark: str


def look(data: ReportData, model: str) -> Look:
    """How ``model`` is drawn; models off the ladder are black pentagons, as grey crosses did not stay healthy."""
    names = [name.lower() for name, _ in data.models]
    if model.lower() not in names:
        return Look("#000000", "-", "p")
    i = names.index(model.lower()) % len(COLOURS)
    return Look(COLOURS[i], DASHES[i], MARKS[i])


def frontier(
    data: ReportData, target: str | None = None, axes: Sequence[Axes] | None = None
) -> list[Axes]:
    """IsoFLOP curves with 90 % bands and the pilots on them, one panel per budget.

    A hollow mark is a run that did not stay healthy, at the lower edge where it fell off the scale.
    """
    slices = data.slices_of(target or data.target)
    panels = _axes(axes, len(slices), width=3.1, height=2.9, sharey=True)
    floor, top = _range(data, slices)
    for ax, on in zip(panels, slices, strict=True):
        _isoflop(ax, data, on, floor)
        ax.set_ylim(floor - 0.04 * (top - floor), top)
    if panels:
        panels[0].set_ylabel(plain(slices[0].target))
        _model_legend(panels[0], data)
    return panels


def _range(data: ReportData, slices: Sequence[Slice]) -> tuple[float, float]:
    """Where bands and healthy pilots lie; a run that collapsed must not flatten all others."""
    every = [float(x) for on in slices for line in on.lines for x in (line.lo.min(), line.hi.max())]
    every += [
        run.curves[on.target][1][-1]
        for on in slices
        for run in data.runs
        if run.status == "ok" and run.reward == data.reward and on.target in run.curves and _on_slice(run, on)
    ]
    return max(0.0, min(every, default=0.0) - 0.02), min(1.01, max(every, default=1.0) + 0.03)


def _isoflop(ax: Axes, data: ReportData, on: Slice, floor: float) -> None:
    for line in on.lines:
        style = look(data, line.model)
        ax.fill_between(line.rho, line.lo, line.hi, color=style.colour, alpha=0.13, linewidth=0)
        for edge in (line.lo, line.hi):
            ax.plot(line.rho, edge, color=style.colour, alpha=0.45, linewidth=0.6)
        ax.plot(line.rho, line.mean, color=style.colour, linestyle=style.dash, linewidth=1.6)
    count = 0
    for run in data.runs:
        if run.reward != data.reward or on.target not in run.curves or not _on_slice(run, on):
            continue
        count += 1
        style = look(data, run.model)
        _, value, se = run.curves[on.target]
        healthy = run.status == "ok"
        face = style.colour if healthy else "none"
        ax.errorbar(
            run.shares[1], max(value[-1], floor), yerr=1.645 * se[-1], fmt=style.mark, color=style.colour, markersize=5,
            markerfacecolor=face, markeredgecolor="white" if healthy else style.colour,
            markeredgewidth=0.7, elinewidth=0.8, zorder=4,
        )  # fmt: skip
    real = "budget " if on.budget == data.budget else ""
    pilots = f", {count} pilot{'s' if count != 1 else ''}" if count else ""
    ax.set_title(f"{real}{format_flops(on.budget)} FLOPs{pilots}", fontsize=9)
    ax.set_xlim(0, 1)
    ax.set_xlabel("update fraction ρ")
    _tidy(ax)


def rho_star(data: ReportData, target: str | None = None, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """ρ* against budget for each model and over all (left), and the regime's probabilities (right)."""
    slices = data.slices_of(target or data.target)
    left, right = _axes(axes, 2, width=3.6, height=3.0)
    budgets = np.array([on.budget for on in slices])
    for m, (name, _) in enumerate(data.models):
        style = look(data, name)
        found = [(on.budget, line.rho_star) for on in slices for line in on.lines if line.model == name]
        if not found:
            continue
        shift = 1.07 ** (m - (len(data.models) - 1) / 2)
        x = np.array([b for b, _ in found]) * shift
        mid = np.array([s["mean"] for _, s in found])
        ends = np.array([[s["mean"] - s["lo"], s["hi"] - s["mean"]] for _, s in found]).T
        left.errorbar(
            x, mid, yerr=ends, color=style.colour, linestyle=style.dash, marker=style.mark, markersize=4.5,
            linewidth=1.3, elinewidth=0.9, capsize=2,
        )  # fmt: skip
    star = [on.rho_star for on in slices]
    left.fill_between(budgets, [s["lo"] for s in star], [s["hi"] for s in star], color="k", alpha=0.08, linewidth=0)
    left.plot(budgets, [s["mean"] for s in star], color="k", linewidth=2.4, label="all models")
    _flops_axis(left, budgets)
    left.set_ylim(0, 1)
    left.set_ylabel("ρ*")
    left.set_title(f"optimum for {plain(target or data.target)}", fontsize=9)
    _model_legend(left, data)
    base = np.zeros(len(slices))
    for regime, (colour, hatch) in REGIME_LOOKS.items():
        share = np.array([on.regimes.get(regime, 0.0) for on in slices])
        right.bar(
            range(len(slices)), share, bottom=base, color=colour, hatch=hatch, edgecolor="white", width=0.7,
            label=regime,
        )  # fmt: skip
        base += share
    right.set_xticks(range(len(slices)), [format_flops(b) for b in budgets], fontsize=8)
    right.set_ylim(0, 1)
    right.set_xlabel("FLOPs")
    right.set_ylabel("probability of the regime")
    right.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, columnspacing=1.0)
    for ax in (left, right):
        _tidy(ax)
    return [left, right]


def simplex(data: ReportData, ax: Axes | None = None) -> Axes:
    """Allocations in barycentric coordinates: the line of each model, the pilots, the recommended recipe."""
    ax = _axes(None if ax is None else [ax], 1, width=5.2, height=4.6)[0]
    height = np.sqrt(3) / 2

    def place(sigma: Any, rho: Any, phi: Any) -> tuple[Any, Any]:
        # learning on top, search left, reward right
        return 0.5 * np.asarray(rho) + np.asarray(phi), height * np.asarray(rho)

    ax.plot([0, 1, 0.5, 0], [0, 0, height, 0], color="k", linewidth=1)
    for share in (0.2, 0.4, 0.6, 0.8):
        rest = 1 - share
        for ends in (
            ((rest, share, 0), (0, share, rest)),
            ((share, rest, 0), (share, 0, rest)),
            ((rest, 0, share), (0, rest, share)),
        ):
            (x0, y0), (x1, y1) = (place(*end) for end in ends)
            ax.plot([x0, x1], [y0, y1], color="0.88", linewidth=0.7, zorder=0)
        # Learning is read on the right edge, search on the bottom; reward is what is left.
        for shares, dx, dy in (((0, share, rest), 0.03, 0.0), ((share, 0, rest), 0.0, -0.03)):
            text_x, text_y = place(*shares)
            ax.text(text_x + dx, text_y + dy, f"{share:.1f}", fontsize=7, color=GREY, ha="center", va="center")
    for model, _, start, end in data.paths:
        style = look(data, model)
        (x0, y0), (x1, y1) = place(*start), place(*end)
        ax.plot([x0, x1], [y0, y1], color=style.colour, linestyle=style.dash, linewidth=1.6)
    for run in data.runs:
        if run.flops > 0:
            style = look(data, run.model)
            x, y = place(*run.shares)
            edge = style.colour if style.mark == "x" else "white"
            ax.plot(
                x, y, style.mark, color=style.colour, markersize=5, markeredgecolor=edge, markeredgewidth=0.6, zorder=3
            )
    star = data.decision["recommendation"]["shares"]
    at = place(star["search"], star["learning"], star["reward"])
    ax.plot(*at, "*", color="k", markersize=14, markeredgecolor="white", zorder=5, label="recommended")
    for text, x, y, side in (("learning ρ", 0.5, height + 0.03, "center"), ("search σ", -0.02, -0.05, "left"),
                             ("reward φ", 1.02, -0.05, "right")):  # fmt: skip
        ax.text(x, y, text, ha=side, fontsize=10)
    _model_legend(ax, data, loc="upper left")
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def curves(data: ReportData, target: str | None = None, ax: Axes | None = None) -> Axes:
    """Learning curves of the pilots under the reward decided on; runs that did not stay healthy are grey."""
    name = target or data.target
    ax = _axes(None if ax is None else [ax], 1, width=5.6, height=3.6)[0]
    shown = [run for run in data.runs if name in run.curves and run.reward == data.reward]
    many = len(shown) > 40
    paid = [x for run in shown for x in run.curves[name][0] if x > 0]
    floor = min(paid, default=1.0) / 2
    for run in evenly(shown, MAX_CURVES):
        style = look(data, run.model) if run.status == "ok" else Look(GREY, ":", "x")
        flops, value, _ = run.curves[name]
        ax.plot(
            np.maximum(flops, floor), value, color=style.colour, linestyle=style.dash, markersize=2.5,
            marker="" if many else style.mark, linewidth=0.8 if many else 1.0, alpha=0.6 if many else 0.85,
        )  # fmt: skip
    _flops_axis(ax, paid)
    ax.set_ylabel(plain(name))
    if not shown:
        _nothing(ax, f"no record under reward {data.reward} has a curve of {plain(name)}")
    _model_legend(ax, data)
    _tidy(ax)
    return ax


def calibration(data: ReportData, target: str | None = None, ax: Axes | None = None) -> Axes:
    """Final values as measured against as predicted from all other runs, with 90 % intervals."""
    name = target or data.target
    ax = _axes(None if ax is None else [ax], 1, width=4.2, height=4.0)[0]
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    checks = [check for check in data.checks["checks"] if check["target"] == name]
    for covered, mark, colour, words in (
        (True, "o", COLOURS[1], "inside its interval"),
        (False, "X", COLOURS[0], "outside"),
    ):
        mine = [check for check in checks if check["covered"] is covered]
        if mine:
            x = np.array([c["mean"] for c in mine])
            spread = np.array([[c["mean"] - c["lo"], c["hi"] - c["mean"]] for c in mine]).T
            ax.errorbar(
                x, [c["observed"] for c in mine], xerr=spread, fmt=mark, color=colour, markersize=5, elinewidth=0.8,
                markeredgecolor="k", markeredgewidth=0.5, label=f"{words} ({len(mine)})",
            )  # fmt: skip
    if checks:
        ax.legend(fontsize=8, frameon=False, loc="upper left")
    else:
        _nothing(ax, f"no run of {plain(name)} can be left out")
    every = [check[key] for check in checks for key in ("lo", "hi", "observed")] or [0.0, 1.0]
    room = 0.05 * (max(every) - min(every)) + 0.01
    ends = max(0.0, min(every) - room), min(1.0, max(every) + room)
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)
    ax.set_aspect("equal")
    ax.set_xlabel(f"predicted {plain(name)}")
    ax.set_ylabel("measured")
    _tidy(ax)
    return ax


def _on_slice(run: Run, on: Slice) -> bool:
    return run.flops > 0 and bool(abs(np.log(run.flops / on.budget)) <= NEAR_SLICE)


def _axes(
    given: Sequence[Axes] | None, count: int, *, width: float, height: float, sharey: bool = False
) -> list[Axes]:
    """The axes given, or new ones side by side, at most four in a row."""
    if given is not None:
        if len(given) != count:
            raise ValueError(f"axes: found {len(given)}; allowed is {count}, one per panel")
        return list(given)
    from matplotlib.figure import Figure

    columns = min(max(count, 1), 4)
    rows = -(-max(count, 1) // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    made = np.atleast_1d(figure.subplots(rows, columns, sharey=sharey)).ravel()
    for extra in made[count:]:
        extra.set_visible(False)
    return list(made[:count])


def _flops_axis(ax: Axes, values: Sequence[float] | np.ndarray) -> None:
    """A log axis with ticks as people type budgets: decades if three fit, else finer."""
    ax.set_xscale("log")
    ax.set_xlabel("FLOPs")
    if not len(values):
        return
    low, high = min(values) / 1.15, max(values) * 1.15
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7)):
        exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        ticks = [m * 10.0**e for e in exponents for m in steps if low <= m * 10.0**e <= high]
        if len(ticks) >= 3:
            break
    ax.set_xticks(ticks, [format_flops(t) for t in ticks])
    ax.minorticks_off()


def _model_legend(ax: Axes, data: ReportData, *, loc: Any = "best") -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look(data, name).colour, linestyle=look(data, name).dash, marker=look(data, name).mark,
               markersize=4, label=plain(name, 40))
        for name, _ in data.models
    ]  # fmt: skip
    own, _ = ax.get_legend_handles_labels()
    ax.legend(handles=[*handles, *own], fontsize=7, frameon=False, loc=loc, handlelength=3)


def _nothing(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY, fontsize=9)


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.92", linewidth=0.7)
    ax.set_axisbelow(True)
