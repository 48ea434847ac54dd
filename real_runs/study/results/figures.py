"""The pictures of a study, from its numbers (`real_runs.study.results.study.evaluate`).

A model has the same colour, dash and mark everywhere, those of `race.reports.figures`: told apart by colour-blind eyes
and in grey. A picture without data is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from race.reports.figures import COLOURS, DASHES, GREY, MARKS
from race.units import format_flops
from real_runs.study.results.replay import METHODS
from real_runs.study.results.summary import most_common

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = Mapping[str, Any]
REWARDS = ("sparse", "structured", "dense", "proxy-prm", "prm")
DPI = 110
_SHADES = ("#d9a441", "#c07a2c", "#8f5a58", "#5a4a86", "#1f2a6b")  # light to dark with ρ
_STYLES = {
    "race": ("-", 2.4), "race, of arms": ("-", 1.2),
    "grid": ("--", 1.3), "random": (":", 1.5), "tpe": ("-.", 1.3), "gp": ((0, (6, 2)), 1.3),
}  # fmt: skip


def draw_all(found: Found, folder: Path) -> list[Path]:
    """Write every picture that there is data for; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    written = []
    for name, draw in DRAWINGS.items():
        figure = draw(found)
        if figure is None:
            continue
        path = folder / f"{name}.png"
        _save(figure, path)
        plt.close(figure)
        written.append(path)
    return written


def _save(figure: Figure, path: Path) -> None:
    """As a PNG of few colours: a third of the size, and no eye sees it in a line drawing."""
    from io import BytesIO

    from PIL import Image

    full = BytesIO()
    figure.savefig(full, format="png", dpi=DPI)
    Image.open(full).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def _models(rows: Sequence[Found]) -> list[str]:
    names = {r["model"] for r in rows if r["model"] != "all"}
    order = ["nano-s", "nano-m", "nano-l"]
    return sorted(names, key=lambda n: (order.index(n) if n in order else len(order), n))


def _main(rows: Sequence[Found]) -> list[Found]:
    """Rows at the budget and rank that most have."""
    at = most_common(rows)
    return [r for r in rows if (r["budget"], r["rank"]) == at]


def _axes(rows: int, columns: int, size: tuple[float, float], **share: Any) -> tuple[Figure, Any]:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False, layout="constrained", **share
    )
    for ax in axes.ravel():
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes


def _legend(figure: Figure, ax: Any, models: Sequence[str]) -> None:
    """One legend below all panels, models by size: inside a panel it would lie on what is shown."""
    by_label = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    shown = [m for m in models if m in by_label]
    _below(figure, [by_label[m] for m in shown], shown)


def _below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    figure.legend(handles, labels, loc="outside lower center", ncols=max(len(labels), 1), frameon=False, fontsize=8)


def isoflop(found: Found) -> Figure | None:
    """Final value over ρ per reward system: means and seeds; the fixed rate thin and hollow."""
    rows = _main(found["curves"].get("pass@1", {}).get("tuned", []))
    targets = [t for t in ("native", "pass@1", "judge") if t in found["curves"]]
    if not rows:
        return None
    budget, rank, models = rows[0]["budget"], rows[0]["rank"], _models(rows)
    rewards = [r for r in REWARDS if any(row["reward"] == r for row in rows)]
    figure, axes = _axes(len(targets), len(rewards), (2.3, 2.0), sharex=True, sharey="row")
    for i, target in enumerate(targets):
        axes[i, 0].set_ylabel("native, min-max normalised" if target == "native" else target, fontsize=9)
        for kind in ("tuned", "fixed"):
            for row in found["curves"][target][kind]:
                if (row["budget"], row["rank"]) != (budget, rank) or row["reward"] not in rewards:
                    continue
                if target == "native" and kind == "fixed":
                    continue  # normalised within its own slices, so not on the scale of the tuned ones
                _arm_line(axes[i, rewards.index(row["reward"])], row, models.index(row["model"]), kind)
    for j, reward in enumerate(rewards):
        axes[0, j].set_title(reward, fontsize=9)
        axes[-1, j].set_xlabel("update fraction ρ", fontsize=9)
    _legend(figure, axes[0, 0], models)
    figure.suptitle(f"{format_flops(budget)} FLOPs, tuned rate (thin and hollow: fixed rate; dots: seeds)", fontsize=10)
    return figure


def _arm_line(ax: Any, row: Found, model: int, kind: str) -> None:
    tuned = kind == "tuned"
    shown = row["normalised"] if "normalised" in row else row["mean"]
    look = {"color": COLOURS[model], "linestyle": DASHES[model], "marker": MARKS[model]}
    face = COLOURS[model] if tuned else "none"
    ax.plot(row["rho"], shown, linewidth=1.6 if tuned else 0.8, markersize=4, markerfacecolor=face,
            label=row["model"] if tuned else None, **look)  # fmt: skip
    if tuned and "normalised" not in row:
        for rho, values in zip(row["rho"], row["values"], strict=True):
            ax.plot([rho] * len(values), values, ".", color=COLOURS[model], markersize=2.5, alpha=0.6)


def rho_star(found: Found) -> Figure | None:
    """ρ* with 95 % intervals, per target."""
    rows = _main(found["peaks"]["tuned"])
    targets = [t for t in ("native", "pass@1", "judge") if any(r["target"] == t for r in rows)]
    if not rows:
        return None
    models, rewards = _models(rows), [r for r in REWARDS if any(row["reward"] == r for row in rows)]
    figure, axes = _axes(1, len(targets), (2.9, 0.5 * len(rewards) + 1.1), sharey=True, sharex=True)
    for ax, target in zip(axes[0], targets, strict=True):
        for row in rows:
            if row["target"] != target:
                continue
            k = models.index(row["model"])
            y = rewards.index(row["reward"]) + (k - (len(models) - 1) / 2) * 0.22
            lo, hi = row["lo_hi"] or (row["rho"], row["rho"])
            error = [[max(row["rho"] - lo, 0)], [max(hi - row["rho"], 0)]]
            label = row["model"] if row["reward"] == rewards[0] else None
            ax.errorbar(row["rho"], y, xerr=error, fmt=MARKS[k], color=COLOURS[k], markersize=5, label=label)
        ax.set_title(target, fontsize=9)
        ax.set_xlabel("ρ* [95 %]", fontsize=9)
        ax.axvline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    axes[0, 0].set_yticks(range(len(rewards)), rewards)
    axes[0, 0].invert_yaxis()
    _legend(figure, axes[0, 0], models)
    figure.suptitle("Right of the dotted line: update-heavy. A mark at an end of the grid is no vertex.", fontsize=9)
    return figure


def learning(found: Found) -> Figure | None:
    """pass@1 along the budget per ρ."""
    rows = _main(found["learning"]["arms"])
    if not rows:
        return None
    models, rewards = _models(rows), [r for r in ("sparse", "prm") if any(row["reward"] == r for row in rows)]
    if not rewards:
        return None
    figure, axes = _axes(len(rewards), len(models), (2.7, 2.1), sharex=True, sharey=True)
    for row in rows:
        if row["reward"] not in rewards:
            continue
        ax = axes[rewards.index(row["reward"]), models.index(row["model"])]
        place = sum(len(ax.get_lines()) >= n for n in range(1, len(_SHADES)))
        curve = row["curve"]
        ax.plot(curve["share"], curve["value"], color=_SHADES[place], linestyle=DASHES[place % len(DASHES)],
                marker=MARKS[place % len(MARKS)], markersize=3, markevery=3, linewidth=1.3,
                label=f"ρ {row['rho']:g}, a {row['update_ratio']:.2g}")  # fmt: skip
    for ax in axes.ravel():
        ax.legend(frameon=False, fontsize=6)
    for i, reward in enumerate(rewards):
        axes[i, 0].set_ylabel(f"{reward}: pass@1", fontsize=9)
    for j, model in enumerate(models):
        axes[0, j].set_title(model, fontsize=9)
        axes[-1, j].set_xlabel("share of the budget", fontsize=9)
    return figure


def _against(rows: Sequence[Found], title: str) -> Figure | None:
    """Measured over predicted with intervals, one panel per target; a cross is outside its interval."""
    targets = [t for t in ("native", "pass@1", "judge") if any(r["target"] == t for r in rows)]
    if not targets:
        return None
    models = _models(rows)
    figure, axes = _axes(1, len(targets), (2.9, 2.8))
    for ax, target in zip(axes[0], targets, strict=True):
        mine = [r for r in rows if r["target"] == target]
        ends = [min(min(r["lo"], r["measured"]) for r in mine), max(max(r["hi"], r["measured"]) for r in mine)]
        ax.plot(ends, ends, color=GREY, linewidth=0.8, zorder=4)
        for k, model in enumerate(models):
            for inside, mark in ((True, MARKS[k]), (False, "x")):
                part = [r for r in mine if r["model"] == model and r["covered"] == inside]
                if not part:
                    continue
                x, y = [r["mean"] for r in part], [r["measured"] for r in part]
                reach = [[max(r["mean"] - r["lo"], 0) for r in part], [max(r["hi"] - r["mean"], 0) for r in part]]
                # Those outside are what one looks for: on top, and the others faint.
                look = {"alpha": 0.35, "markersize": 2.5} if inside else {"alpha": 1.0, "markersize": 4.5, "zorder": 3}
                ax.errorbar(x, y, xerr=reach, fmt=mark, color=COLOURS[k], elinewidth=0.35, **look)
        ax.set_title(target, fontsize=9)
        ax.set_xlabel("predicted [90 %]", fontsize=9)
    axes[0, 0].set_ylabel("measured", fontsize=9)
    for k, model in enumerate(models):
        axes[0, 0].plot([], [], MARKS[k], color=COLOURS[k], markersize=3.5, label=model)
    _legend(figure, axes[0, 0], models)
    figure.suptitle(title, fontsize=10)
    return figure


def calibration(found: Found) -> Figure | None:
    """Left-out runs against their predictions."""
    return _against(found["calibration"]["forecasts"], "Surrogate, one setting left out (×: outside)")


def prior(found: Found) -> Figure | None:
    """Settings against what the simulator said before any run."""
    return _against(found["prior"][0]["settings"], "Simulator prior, no run used (×: outside)")


def prior_bases(found: Found) -> Figure | None:
    """The same, told how good the base models are."""
    return _against(found["prior"][1]["settings"], "Simulator prior, told the base models (×: outside)")


def replay(found: Found) -> Figure | None:
    """Share of replays decided over the share of the grid's FLOPs."""
    runs, horizon = found["replay"]["runs"], found["replay"]["horizon"]
    if not runs:
        return None
    chosen = {r["method"]: r["size"] for r in found["replay"]["rows"]}
    questions = (
        ("arm", "the same arm"),
        ("arm_as_good", "an arm as good"),
        ("regime_as_good", "a regime as good"),
        ("decision", "race's decision, at 1/8, 1/4, ..."),
    )
    figure, axes = _axes(1, len(questions), (2.5, 2.6), sharey=True)
    at = np.linspace(0, horizon, 121)
    for ax, (question, title) in zip(axes[0], questions, strict=True):
        for number, method in enumerate(METHODS):
            of_method = [r for r in runs if r["method"] == method and r["size"] == chosen.get(method)]
            mine = [r[question] for r in of_method if question in r]
            if mine:
                reached = np.array([np.inf if v is None else v for v in mine])
                dash, width = _STYLES[method]
                colour, label = COLOURS[::-1][number % len(COLOURS)], _with_size(method, chosen[method])
                ax.plot(at, (reached[None, :] <= at[:, None]).mean(axis=1), linestyle=dash, linewidth=width,
                        color=colour, label=label)  # fmt: skip
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("share of the grid's FLOPs", fontsize=9)
        ax.set_ylim(0, 1.02)
    axes[0, 0].set_ylabel("replays decided for good", fontsize=9)
    _below(figure, *axes[0, 0].get_legend_handles_labels())
    return figure


def _with_size(method: str, size: float | None) -> str:
    return method if size is None else f"{method}, runs of {size:.2g} C"


DRAWINGS: dict[str, Callable[[Found], Any]] = {
    "isoflop": isoflop,
    "rho_star": rho_star,
    "learning": learning,
    "calibration": calibration,
    "prior": prior,
    "prior_bases": prior_bases,
    "replay": replay,
}
