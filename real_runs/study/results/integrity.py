"""Are the records whole: every planned run there, no budget exceeded, every sum right?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.records import PilotRecord
from real_runs.ledger import read_ledger
from real_runs.study.results.evidence import StudyRecords, stages_of

PHASES = ("search", "learning", "reward")


@dataclass(frozen=True)
class Integrity:
    """What was counted.

    Attributes
    ----------
    runs
        Runs that came to an end, each once.
    planned, statuses
        Runs by stage, and of those there by health status.
    foreign
        Records that no stage knows.
    overruns
        Runs that spent more than their budget.
    least_used, least_used_run
        Smallest share of its budget that a run without a failure used.
    unequal_ends
        Runs whose last evaluation is not at the FLOPs they say they spent.
    ledgers, unequal_ledgers
        Ledger files read, and runs whose file disagrees with the record in any phase or in evaluation.
    without_ledger
        Runs whose file is not in the folder.
    """

    runs: int
    planned: dict[str, int]
    statuses: dict[str, dict[str, int]]
    failed: dict[str, int]
    foreign: tuple[str, ...]
    overruns: tuple[str, ...]
    least_used: float | None
    least_used_run: str | None
    spent: float
    unequal_ends: tuple[str, ...]
    ledgers: int
    unequal_ledgers: tuple[str, ...]
    without_ledger: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dict(vars(self))


def check(evidence: StudyRecords, jobs: Path | None = None) -> Integrity:
    """Count; ``jobs`` is the folder with each run's own ``<id>/run/ledger.jsonl``, where that is still there.

    A record's phases always add up to its total (reading one refuses anything else), so what is compared here is the
    total with the end of the learning curves, and both with the ledger.
    """
    runs = list(evidence.finished.values())
    statuses: dict[str, Counter[str]] = {}
    for record in runs:
        for stage in stages_of(record) or ("none",):
            statuses.setdefault(stage, Counter())[record.health.status] += 1
    used = {r.id: r.flops.total / r.spec.budget for r in runs if r.health.status in ("ok", "collapsed")}
    least = min(used, key=lambda i: used[i], default=None)
    found = {r.id: _ledger_agrees(r, jobs) for r in runs} if jobs is not None else {}
    return Integrity(
        runs=len(runs),
        planned=evidence.planned(),
        statuses={stage: dict(sorted(count.items())) for stage, count in sorted(statuses.items())},
        failed=dict(Counter(stage for r in evidence.failed for stage in stages_of(r))),
        foreign=evidence.foreign,
        overruns=tuple(r.id for r in (*runs, *evidence.failed) if r.flops.total > r.spec.budget),
        least_used=used[least] if least else None,
        least_used_run=least,
        spent=float(sum(r.spent for r in (*runs, *evidence.failed))),
        unequal_ends=tuple(_unequal_ends(runs)),
        ledgers=sum(agrees is not None for agrees in found.values()),
        unequal_ledgers=tuple(i for i, agrees in found.items() if agrees is False),
        without_ledger=sum(agrees is None for agrees in found.values()),
    )


def _unequal_ends(runs: Iterable[PilotRecord]) -> Iterable[str]:
    for record in runs:
        if any(curve.flops[-1] != record.flops.total for curve in record.curves.values()):
            yield record.id


def _ledger_agrees(record: PilotRecord, jobs: Path) -> bool | None:
    path = jobs / record.id / "run" / "ledger.jsonl"
    if not path.exists():
        return None
    useful = read_ledger(path).useful
    recorded = record.flops.to_dict()
    return all(getattr(useful, phase) == recorded[phase] for phase in PHASES) and useful.eval == record.eval_flops
