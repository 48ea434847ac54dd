"""What a pilot has cost when its runner did not come to a proper end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from race.records import PilotRecord
from real_runs.executors._base import Job
from real_runs.executors.folder import JobFolder
from real_runs.executors.readings import bill
from real_runs.executors.results import planned_shares


def charged_in_full(record: PilotRecord) -> PilotRecord:
    """A failed run that told nothing about what it spent, with all of its budget as lost work: it may have spent it."""
    job = Job(record.id, record.spec, Path())
    rest = max(0.0, record.spec.budget - record.spent)
    lost = {phase: share * rest for phase, share in planned_shares(job).items()}
    return replace(record, provenance={**record.provenance, "lost_flops": lost})


def exit_code(record: PilotRecord) -> object:
    """How the runner ended; ``None`` where that is not known or there was none."""
    about = record.provenance.get("executor", {})
    return about.get("exit_code") if isinstance(about, Mapping) else None


def spent_before(job: Job) -> float:
    """FLOPs that attempts at a job which has not ended have spent; all of its budget when they have not told."""
    folder = JobFolder.of(job)
    if folder.prepare(job) is not None or not folder.stdout.exists():
        return 0.0  # ended, or not started yet
    found, known = bill(folder, planned_shares(job))
    return float(found.total if known else job.spec.budget)
