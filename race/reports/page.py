"""One self-contained HTML page: no network, no cookie, nothing executed but its own two scripts.

What a record says is never trusted: text is escaped where it is put into markup, data travel in a JSON element that
cannot be closed from within (`race.reports.payload`), and the page's Content-Security-Policy admits the two inlined
scripts by their hash and nothing else, so that even a hole in the first two would execute nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from race.errors import CannotDo
from race.reports.data import ReportData, Run
from race.reports.payload import MAX_CHECKS, MAX_PILOTS, drawn_curves, embed, evenly, payload
from race.reports.words import (
    RISKY,
    evidence_words,
    gaps,
    headline,
    other_rewards,
    plain,
    short_id,
    three,
    would_flip,
)
from race.units import format_flops

MAX_ROWS = 200  # of the evidence table
_HOLE = re.compile(r"\{\{(\w+)\}\}")
DISCLAIMER = (
    "RACE is a diagnostic: it says where the optimum is likely to lie, it does not promise a better held-out result."
)


def build_page(data: ReportData) -> str:
    """The page as one string of HTML.

    Raises
    ------
    CannotDo
        plotly's script, which is inlined, is not installed.
    """
    plotly, script = plotly_script(), page_script()
    used = sum(run.used for run in data.runs)
    title = f"{format_flops(data.budget)} FLOPs, reward {data.reward}, target {data.target}"
    measured = data.decision["evidence"].get("real", 0) + data.decision["evidence"].get("imported", 0)
    what_if = data.what_if is not None
    return _fill(
        asset("page.html"),
        {
            "csp": _policy(plotly, script),
            "title": escape(title),
            "css": asset("page.css"),
            "headline": escape(headline(data)),
            "evidence_class": "" if measured else "unmeasured",
            "evidence": escape("Evidence: " + evidence_words(data.decision["evidence"])),
            "decision": _decision(data),
            "what_if": asset("what_if.html") if what_if else "",
            "what_if_link": '\n<li><a href="#whatif">What if</a></li>' if what_if else "",
            "simplex_note": (", the circle the what-if setting." if what_if else ".")
            + _drawn_note(len(data.runs), MAX_PILOTS, "pilots"),
            "target_options": "".join(f"<option>{escape(t)}</option>" for t in data.targets),
            "isoflop_note": _strangers_note(data) + _drawn_note(len(data.runs), MAX_PILOTS, "pilots"),
            "curves_note": _curves_note(data.runs) + _strangers_note(data),
            "curves_reward": _curves_reward(data),
            "evidence_table": _evidence(data, used),
            "calibration": _calibration(data),
            "assumptions": _assumptions(data.assumptions),
            "footer": escape(DISCLAIMER),
            "data": embed(payload(data)),
            "plotly": plotly,
            "script": script,
        },
    )


def asset(name: str) -> str:
    """One of the page's parts, as text."""
    return files("race.reports").joinpath("assets", name).read_text(encoding="utf-8")


def page_script() -> str:
    """The page's own script: arithmetic, figures, what-if."""
    parts = [asset(name) for name in ("accounting.js", "charts.js", "page.js")]
    return "(() => {\n" + "\n".join(parts) + "})();"


def plotly_script() -> str:
    """plotly.js as the plotly package carries it."""
    try:
        found = files("plotly").joinpath("package_data", "plotly.min.js")
        text = found.read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError):
        raise CannotDo(
            "report: plotly, whose script the page inlines, is not installed; run pip install plotly"
        ) from None
    # A backslash before the slash changes nothing inside a script's strings, and closes no element.
    return text.replace("</script", "<\\/script")


def _policy(*scripts: str) -> str:
    hashes = (hashlib.sha256(s.encode("utf-8")).digest() for s in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(h).decode('ascii')}'" for h in hashes)
    # Styles are inline because plotly sets them on what it draws.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _fill(template: str, parts: dict[str, str]) -> str:
    """Put every part into its hole, once: holes inside parts stay as they are."""
    return _HOLE.sub(lambda match: parts[match[1]], template)


def _decision(data: ReportData) -> str:
    decision = data.decision
    advice, regime = decision["recommendation"], decision["regime"]
    recipe, shares, rho, value = advice["recipe"], advice["shares"], advice["rho"], advice["value"]
    odds = _odds(regime["probabilities"])
    left = recipe["last_step_prompts"]
    last = f" (+ a last one of {left} prompt{'s' if left != 1 else ''})" if left else ""
    rows = [
        ("Regime", f"<strong>{escape(regime['label'])}</strong> ({escape(odds)})"),
        ("Model", f"<strong>{escape(advice['model'])}</strong> (best: {escape(_odds(decision['models']))})"),
        (
            "ρ",
            f"<strong>{rho['mean']:.2f}</strong> of this run is learning; the optimum lies in {rho['lo']:.2f} to "
            f"{rho['hi']:.2f} (90 %)",
        ),
        (
            "Value",
            f"{escape(data.target)} <strong>{value['mean']:.3f}</strong> (90 %: {value['lo']:.3f} to "
            f"{value['hi']:.3f}) expected at this setting; expected regret {advice['regret']['mean']:.3f}",
        ),
        ("Collapse", _risk(advice["collapse_risk"])),
        (
            "Recipe",
            f"{recipe['steps']:,} steps of {recipe['prompts_per_step']} prompts × {recipe['group_size']} rollouts"
            f"{last}, {recipe['prompt_tokens']:g} + {recipe['completion_tokens']:g} tokens, update ratio a = "
            f"{advice['update_ratio']:.3g}",
        ),
        (
            "FLOPs",
            f"{format_flops(advice['flops']['total'])} ({advice['flops']['total'] / data.budget:.1%} of the budget)",
        ),
        *_cost_rows(data.cost),
    ]
    notes = [data.budget_note] if data.budget_note else []
    notes += [*other_rewards(data.runs, data.reward), *data.notes, *gaps(data.runs, data.targets)]
    notes += [f"skipped {text}" for text in data.skipped]
    return (
        _split(shares)
        + '<dl class="facts">'
        + "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in rows)
        + "</dl>"
        + '<h3>What to know</h3><ul class="notes">'
        + "".join(f"<li>{escape(plain(note, 600))}</li>" for note in notes[:40])
        + (f"<li>and {len(notes) - 40} more notes</li>" if len(notes) > 40 else "")
        + "</ul>"
        + _minds(data)
    )


def _risk(probability: float) -> str:
    said = f"probability {probability:.2f} that such a run does not stay healthy; the value is that of one that does"
    return said if probability < RISKY else f'<span class="warn">{said}</span>'


def _odds(probabilities: Any) -> str:
    ordered = sorted(probabilities.items(), key=lambda item: -item[1])
    return ", ".join(f"{plain(name)} {p:.2f}" for i, (name, p) in enumerate(ordered) if p >= 0.005 or i == 0)


def _split(shares: dict[str, float]) -> str:
    parts = "".join(
        f'<div class="{phase}" style="flex:{share:.4f} 1 0"><span>{phase} {share:.0%}</span></div>'
        for phase, share in shares.items()
        if share > 0
    )
    said = ", ".join(f"{phase} {share:.1%}" for phase, share in shares.items())
    return f'<div class="split" role="img" aria-label="Shares: {said}">{parts}</div>'


def _cost_rows(cost: Any) -> list[tuple[str, str]]:
    if cost is None:
        return []

    def span(value: Any) -> str:
        return f"{three(value['point'])} ({three(value['lo'])} to {three(value['hi'])})"

    dollars = span(cost["dollars"]) if cost["dollars"] else "no dated price known"
    return [
        ("Hardware", f"{cost['count']} × {escape(cost['gpu'])}"),
        ("GPU-hours", span(cost["gpu_hours"])),
        ("Dollars", dollars),
        ("kWh", span(cost["kwh"])),
    ]


def _minds(data: ReportData) -> str:
    head = "<h3>What would change this decision</h3>"
    if not data.minds:
        return head + "<p>The pilot budget, a tenth of this budget, pays for no pilot.</p>"
    if data.minds[0]["probability"] < 0.005:
        return head + f"<p>No single pilot of up to {format_flops(data.largest_pilot)} FLOPs would.</p>"
    rows = [
        [
            plain(m["model"]),
            f"{m['rho']:.2f}",
            f"{format_flops(m['budget'])} ({m['budget'] / data.budget:.1%})",
            f"{m['probability']:.2f}",
            f"{m['to']['model']}, {m['to']['regime']}",
            f"{m['flips_if']['direction']} {m['flips_if']['value']:.3f}",
            f"{m['expected']['mean']:.3f} ({m['expected']['lo']:.3f} to {m['expected']['hi']:.3f})",
        ]
        for m in data.minds
        if m["probability"] >= 0.005
    ]
    names = ["Pilot", "ρ", "FLOPs (of the budget)", "P(flip)", "to", f"if {data.target} ends", "expected"]
    return (
        head
        + f"<p>{escape(would_flip(data.minds[0], data.target))}</p>"
        + _table(names, rows, numeric={1, 2, 3}, about="Pilots that could change the decision")
    )


def _curves_reward(data: ReportData) -> str:
    """What chooses the reward system of the learning curves, where there is a choice; native rewards share no scale."""
    names = list(dict.fromkeys(run.reward for run in data.runs if run.curves))
    if len(names) < 2:
        return ""
    options = "".join(
        f"<option{' selected' if name == data.reward else ''}>{escape(name)}</option>" for name in sorted(names)
    )
    return (
        '<p class="control inline"><label for="curves-reward">Reward system of these curves</label>\n'
        f'<select id="curves-reward">{options}</select></p>'
    )


def _curves_note(runs: Sequence[Run]) -> str:
    with_curves = sum(bool(run.curves) for run in runs)
    drawn = len(drawn_curves(runs))
    shown = f" {drawn} of {with_curves} are drawn, evenly chosen." if drawn < with_curves else ""
    return (
        "Every pilot from the base model to the end of its budget, by colour and mark of its model. Grey and dotted, "
        f"with crosses where there are few: the run did not stay healthy.{shown} Points before the first FLOP are "
        "drawn at the left edge."
    )


def _drawn_note(total: int, most: int, what: str) -> str:
    """How many are drawn, where that is not all of them."""
    return f" {most:,} of {total:,} {what} are drawn, evenly chosen." if total > most else ""


def _strangers_note(data: ReportData) -> str:
    """How runs of models off the ladder are drawn, where there are any."""
    known = {name.lower() for name, _ in data.models}
    others = {run.model.lower() for run in data.runs} - known
    return " Pentagons in the colour of this text: models that are not on the ladder." if others else ""


def _evidence(data: ReportData, used: int) -> str:
    rows = []
    for run in evenly(data.runs, MAX_ROWS):
        sigma, rho, phi = run.shares
        ends = ", ".join(f"{t} {value[0]:.2f} → {value[-1]:.2f}" for t, (_, value, _) in sorted(run.curves.items()))
        health = run.status if not run.reason else f"{run.status}: {plain(run.reason, 120)}"
        rows.append(
            [
                short_id(run.id), plain(run.model, 60), run.reward, run.evidence, f"{rho:.2f}", f"{sigma:.2f}",
                f"{phi:.2f}", format_flops(run.flops), f"{run.steps:,}", ends or "no curve", health,
                "yes" if run.used else "no",
            ]
        )  # fmt: skip
    names = ["Record", "Model", "Reward", "Evidence", "ρ", "σ", "φ", "FLOPs", "Steps"]
    names += ["First → last", "Health", "Fitted"]
    total = len(data.runs)
    shown = "" if total <= MAX_ROWS else f" {MAX_ROWS} of them are listed, evenly chosen."
    records = f"{total} record{'s' if total != 1 else ''}"
    counted = f"{records} in {plain(data.store)}, of which {used} entered the fit.{shown}"
    missing = "".join(f"<li>{escape(text)}</li>" for text in gaps(data.runs, data.targets))
    return (
        f"<p>{escape(counted)}</p>"
        + (f'<ul class="notes">{missing}</ul>' if missing else "")
        + _table(names, rows, numeric={4, 5, 6, 7, 8}, about="Records", high=True)
    )


def _calibration(data: ReportData) -> str:
    found = data.checks
    if not found["count"]:
        return "<p>Calibration needs at least one run to leave out; there is none.</p>"
    lead = (
        f"Each run's final values, predicted from all other runs: the 90 % intervals cover {found['coverage']:.0%} of "
        f"{found['count']} measurements; the root mean square error is {found['rmse']:.3f}, where the measurements "
        f"themselves spread by {found['spread']:.3f}." + _drawn_note(found["count"], MAX_CHECKS, "measurements")
    )
    return f"<p>{lead}</p>"


def _assumptions(items: Iterable[tuple[str, str]]) -> str:
    return (
        '<dl class="assume">'
        + "".join(f"<dt>{escape(title)}</dt><dd>{escape(text)}</dd>" for title, text in items)
        + "</dl>"
    )


def _table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: set[int], about: str, high: bool = False
) -> str:
    def cells(values: Sequence[str], tag: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        return "".join(
            f'<{tag}{scope} class="num">{escape(v)}</{tag}>' if i in numeric else f"<{tag}{scope}>{escape(v)}</{tag}>"
            for i, v in enumerate(values)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    kind = "scroll high" if high else "scroll"
    return (
        f'<div class="{kind}" tabindex="0" role="region" aria-label="{escape(about)}"><table><thead><tr>'
        f"{cells(names, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"
    )
