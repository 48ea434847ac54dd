"""A card as Markdown for a model card and as LaTeX for a paper. Both hold the same rows, from `rows_of`."""

from __future__ import annotations

from collections.abc import Sequence

from race.cards.card import Card, across
from race.hardware import Range
from race.units import format_flops

_PHASES = {"search": "search (rollouts)", "learning": "learning (updates)", "reward": "reward (scoring)"}
_PARTS = {
    "prefill": "prompts read",
    "decode": "completions decoded",
    "update": "forward and backward",
    "old_logprobs": "old log-probs",
    "reference": "reference log-probs",
}
Row = tuple[str, str, str]


def span(range_: Range, form: str = "flops") -> str:
    """``9.1e17 to 1.2e18``, or nothing when both ends read the same."""
    low, high = (_number(v, form) for v in (range_.lo, range_.hi))
    return "" if low == high else f"{low} to {high}"


def _number(value: float, form: str) -> str:
    if form == "flops":
        return format_flops(value)
    if form == "share":
        return f"{value:.1%}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def split_rows(card: Card) -> list[tuple[str, str, str, str]]:
    """Phase, FLOPs, share, range of the share; the total last with the range of its FLOPs."""
    found = []
    for phase, label in _PHASES.items():
        flops = float(getattr(card.flops, phase))
        found.append(
            (
                label,
                format_flops(flops),
                _number(card.flops.shares[phase], "share"),
                span(card.ranges.shares[phase], "share"),
            )
        )
    found.append(("total", format_flops(card.flops.total), "100.0%", span(card.ranges.total)))
    return found


def part_words(card: Card) -> str:
    """The passes that the phases consist of, as shares of the total."""
    total = float(card.flops.total)
    return ", ".join(f"{_PARTS[n]} {v / total:.1%}" for n, v in card.parts.items() if n in _PARTS and v > 0)


def fact_rows(card: Card) -> list[tuple[str, str]]:
    """What was run and found, besides the split."""
    log, tokens = card.log, card.tokens
    lora = next(a for a in card.assumptions if a.name == "lora")
    facts = [
        ("model", f"{card.model}, {card.architecture.params():,} parameters; {_trained(lora.shown)}"),
        ("trainer", f"{log.title}{f' {log.releases}' if log.releases else ''} ({_source(card)})"),
        (
            "steps",
            f"{log.total_steps:,}" + (f", and {log.redone} again after a resume" if log.redone else ""),
        ),
        (
            "samples",
            f"{tokens['samples']:,.0f} completions; mean lengths {tokens['mean_prompt']:.1f} + "
            f"{tokens['mean_completion']:.1f} tokens; {tokens['trained']:,.0f} tokens trained on, passes counted",
        ),
        ("rho", f"{card.flops.rho:.3f}" + (f" ({_rho(card)})" if _rho(card) else "")),
        ("regime of the split", card.regime + _others(card)),
    ]
    if card.executed is not None:
        facts.append(
            ("executed", f"{format_flops(card.executed.point.total)} with padding and full attention "
             f"({span(card.executed.total)})")
        )  # fmt: skip
    if card.hardware is not None:
        facts += _hardware_rows(card)
    return facts


def _source(card: Card) -> str:
    log = card.log
    return log.file if log.container == log.file else f"{log.container}: {log.file}"


def _trained(shown: str) -> str:
    return "all weights trained" if shown == "none" else shown


def _rho(card: Card) -> str:
    r = card.ranges.shares["learning"]
    return "" if f"{r.lo:.3f}" == f"{r.hi:.3f}" else f"{r.lo:.3f} to {r.hi:.3f}"


def _others(card: Card) -> str:
    others = card.regimes[1:]
    return f"; {' or '.join(others)} within the ranges" if others else ""


def _hardware_rows(card: Card) -> list[tuple[str, str]]:
    assert card.hardware is not None
    found = [("GPU", f"{card.hardware[1].count} x {card.hardware[1].gpu.name}")]
    for label, what in (("GPU-hours", "total_gpu_hours"), ("dollars", "dollars"), ("kWh", "kwh")):
        value = across(card.hardware, what)
        words = "no price known" if value is None else f"{_number(value.point, '')} ({span(value, '')})"
        found.append((label, words))
    return found


def waste_rows(card: Card) -> list[Row]:
    """Kind, share and FLOPs, and how it is known."""
    found = []
    for w in card.waste:
        if w.share is None or w.flops is None:
            found.append((w.label, "unknown", w.how))
        else:
            found.append((w.label, f"{w.share:.1%} of {w.of}, {format_flops(w.flops)} FLOPs", w.how))
    return found


def assumption_rows(card: Card) -> list[tuple[str, str, str, str, str]]:
    """What, value used, range, how the total moves, and why."""
    total = float(card.ranges.point.total)
    return [
        (
            m.assumption.label,
            m.assumption.shown,
            m.assumption.range_shown,
            moved(m.lo, m.hi, total),
            m.assumption.source,
        )
        for m in card.ranges.moves
    ]


def moved(low: float, high: float, total: float) -> str:
    """``-12.0% to +3.1%`` of the total."""
    return f"{low / total - 1:+.1%} to {high / total - 1:+.1%}" if total else "-"


def settled_rows(card: Card) -> list[Row]:
    """What the log, its config or the user settled: quantity, value, source."""
    return [
        (a.label, "as logged" if a.value is None and a.source.startswith("log") else a.shown, a.source)
        for a in card.assumptions
        if a.settled
    ]


def comparison_rows(card: Card) -> list[tuple[str, str, str, str]]:
    """Whose figure, FLOPs, ratio to ours, why."""
    return [
        (
            f"{c.name}, {c.of}",
            "-" if c.flops is None else format_flops(c.flops),
            "-" if c.ratio is None else f"{c.ratio:.2f}",
            c.why,
        )
        for c in card.comparisons
    ]


def markdown(card: Card) -> str:
    """A section for a model card."""
    lines = ["## Compute", ""]
    lines += _md_table(("phase", "FLOPs", "share", "range"), split_rows(card))
    lines += ["", *(f"- **{_md(name)}:** {_md(text)}" for name, text in fact_rows(card)), ""]
    lines += ["Of the total: " + part_words(card) + ".", ""] if part_words(card) else []
    assumed = assumption_rows(card)
    if assumed:
        lines += ["### Assumed", ""]
        lines += _md_table(("what", "used", "range", "moves the total by", "why"), assumed)
        lines.append("")
    lines += [
        "### Waste (kinds overlap)",
        "",
        *_md_table(("kind", "how much", "known from"), waste_rows(card)),
        "",
    ]
    lines += [f"- {_md(note)}" for note in card.log.notes]
    lines += [convention(card), ""]
    return "\n".join(lines)


def convention(card: Card) -> str:
    """What is counted, in one sentence."""
    return (
        f"Counted: matrix multiplications (2mnk), {card.attention} attention, every sample at its own length, no "
        "padding; evaluation is not included."
    )


def _md_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return [*lines, *("| " + " | ".join(_md(cell) for cell in row) + " |" for row in rows)]


def _md(text: str) -> str:
    for char in "|*_`<[":
        text = text.replace(char, "\\" + char)
    return text


def latex(card: Card) -> str:
    """A table for a paper; needs the booktabs package."""
    body = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in split_rows(card)]
    facts = "; ".join(f"{name}: {text}" for name, text in fact_rows(card) if name not in ("trainer",))
    assumed = "; ".join(f"{what}: {used} ({moves})" for what, used, _, moves, _ in assumption_rows(card))
    caption = f"Training compute. {facts}." + (
        f" Assumed (effect on the total): {assumed}." if assumed else ""
    )
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            r"\begin{tabular}{lrrr}",
            r"\toprule",
            r"phase & FLOPs & share & range \\",
            r"\midrule",
            *body[:-1],
            r"\midrule",
            body[-1],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{_tex(caption)} {_tex(convention(card))}}}",
            r"\label{tab:compute}",
            r"\end{table}",
            "",
        ]
    )


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in text)
