"""``race report``: one self-contained page of the decision, the evidence and what-if."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.options import (
    HardwareOptions,
    RecipeOptions,
    SeedOption,
    hardware_options,
    preferred,
    recipe_options,
    split_targets,
)
from race.cli.output import JsonFlag, emit, note
from race.cli.sources import StoresArgument, gather_evidence
from race.cli.threads import one_thread
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.reporting import Gathered
    from race.records import PilotRecord

BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", help="FLOPs to decide about; default: ten times the largest pilot.", show_default=False
    ),
]
RewardOption = Annotated[
    str | None,
    typer.Option("--reward", help="Reward system; default: most records' own.", show_default=False),
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Target decided on; default: native, or the first in evidence.", show_default=False),
]
LadderOption = Annotated[
    str | None,
    typer.Option(
        "--ladder", help="qwen2.5, qwen3, nano, or models by commas; default: the records' own.", show_default=False
    ),
]
SurrogateOption = Annotated[
    Path | None,
    typer.Option(
        "--surrogate", help="Ask this saved surrogate (race fit) instead of fitting one.", show_default=False
    ),
]


@dataclass(frozen=True)
class Asked:
    """What was asked for on the command line, before defaults."""

    store: Sequence[Path]
    budget: str | None
    reward: str | None
    target: str | None
    ladder: str | None
    surrogate: Path | None
    recipe: RecipeOptions
    seed: int


@one_thread
@hardware_options
@recipe_options
def report(
    recipe: RecipeOptions,
    hardware: HardwareOptions,
    store: StoresArgument,
    out: Annotated[Path, typer.Option("--out", help="The page to write, such as report.html.")],
    budget: BudgetOption = None,
    reward: RewardOption = None,
    target: TargetOption = None,
    ladder: LadderOption = None,
    surrogate: SurrogateOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """One self-contained HTML page: decision, figures, evidence, calibration, what-if.

    Beside PAGE.html the fitted surrogate is kept in PAGE.surrogate, for race query; with --surrogate nothing is fitted.
    """
    from planner.reporting import with_cost
    from race.reports.page import build_page
    from race.reports.words import headline, other_rewards
    from surrogate.files import check_writable

    hardware.check()
    _check_out(out)
    beside = out.with_suffix(".surrogate")
    if surrogate is None:
        check_writable(beside)
    asked = Asked(store, budget, reward, target, ladder, surrogate, recipe, seed)
    found, fitted = gather_report(asked, saved=str(surrogate or beside))
    data = with_cost(found.data, hardware.cost(found.decision.sized.plan.flops))
    page = build_page(data)
    written = [str(out)]
    if surrogate is None:
        fitted.save(beside)
        written.append(str(beside))
    _write(out, page)
    answer = {
        "files": written,
        "bytes": len(page.encode("utf-8")),
        "budget": data.budget,
        "reward": data.reward,
        "target": data.target,
        "evidence": dict(data.decision["evidence"]),
        "notes": [text for text in (data.budget_note, *other_rewards(data.runs, data.reward), *data.notes) if text],
        "skipped": list(data.skipped),
    }
    emit(answer, as_json, lambda console: console.print(f"[bold]{out}[/bold]\n{headline(data)}", soft_wrap=False))
    if data.budget_note:
        note(data.budget_note)
    for problem in data.skipped:
        note(f"skipped {problem}")


def gather_report(asked: Asked, *, saved: str, interactive: bool = True) -> tuple[Gathered, Any]:
    """A report's data and the surrogate behind it, with every default filled in."""
    from planner.reporting import budget_of, gather, ladder_of, reward_of
    from planner.space import PilotSpace
    from race.ladders import ladder as choose_ladder
    from race.units import format_flops, parse_budget
    from surrogate import Surrogate

    evidence = gather_evidence(asked.store)
    records, problems = evidence.records, evidence.problems
    if not records:
        raise CannotDo("store: none was named; a report needs records")
    if asked.budget is None:
        flops = budget_of(records)
        said = (
            f"no --budget was given: {format_flops(flops)} FLOPs is ten times the largest pilot, as if pilots had "
            "taken the usual tenth of it"
        )
    else:
        flops, said = parse_budget(asked.budget), ""
    if asked.surrogate is not None:
        if asked.ladder is not None:
            raise InvalidInput("ladder: given with --surrogate, which keeps the ladder it was fitted on; drop one")
        fitted = Surrogate.load(asked.surrogate)
        rungs, base = fitted.ladder, fitted.recipe
        used = asked.recipe.reward(asked.reward, default=base.reward)
        recipe = asked.recipe.build(rungs.under(base, used))
    else:
        rungs = ladder_of(records) if asked.ladder is None else choose_ladder(asked.ladder)
        used = asked.recipe.reward(asked.reward, default=reward_of(records))
        recipe = asked.recipe.build(rungs.recipe(used))
        fitted = Surrogate.fit(
            records, ladder=rungs, recipe=recipe, targets=_targets(records, asked.target), seed=asked.seed
        )
    first = split_targets(asked.target) if asked.target is not None else preferred(fitted.targets)
    space = PilotSpace.build(
        rungs,
        budget=flops,
        reward=used,
        target=list(dict.fromkeys((*(_named(fitted, t) for t in first), *fitted.targets))),
        recipe=recipe,
    )
    found = gather(
        records,
        fitted,
        space,
        store=", ".join(str(path) for path in asked.store),
        saved=saved,
        budget_note=said,
        skipped=problems,
        interactive=interactive,
        seed=asked.seed,
    )
    return found, fitted


def _targets(records: Sequence[PilotRecord], asked: str | None) -> list[str]:
    """As ``race fit`` has them: all in evidence, or what was asked for where nothing is."""
    present = sorted({name for record in records for name in record.curves})
    asked_for = split_targets(asked) if asked is not None else []
    targets = list(dict.fromkeys((*present, *(t for t in asked_for if t != "pass@1" or not _benchmarks(present)))))
    if not targets:
        raise CannotDo("store: no record has a learning curve; add pilots that ran, or name --target for the prior")
    return targets


def _benchmarks(present: Sequence[str]) -> list[str]:
    return [name for name in present if name.startswith("pass@1")]


def _named(fitted: Any, target: str) -> str:
    from surrogate.evidence import resolve_target

    return str(resolve_target(target, fitted.targets))


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise InvalidInput(f"out: found {out}, which is a folder; allowed is a file such as {out / 'report.html'}")
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(f"out: found {out}; allowed is a file that ends in .html")
    if not out.parent.is_dir():
        raise InvalidInput(f"out: found {out}, whose folder {out.parent} does not exist; make it first")


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotDo(f"out: cannot write {out}: {error.strerror}") from None
