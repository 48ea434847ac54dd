"""What a pilot has cost when its runner did not come to a proper end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from race.records import PilotRecord
from real_runs.executors._base import Job
from real_runs.executors.folder import JobFolder
from real_runs.executors.readings import bill, note_restart
from real_runs.executors.results import planned_shares


def charged_in_full(record: PilotRecord) -> PilotRecord:
    """A failed run whose last attempt told nothing, with all of its budget as lost work: it may have spent it."""
    job = Job(record.id, record.spec, Path())
    return replace(record, provenance={**record.provenance, "lost_flops": _in_full(job)})


def exit_code(record: PilotRecord) -> object:
    """How the runner ended; ``None`` where that is not known or there was none."""
    about = record.provenance.get("executor", {})
    return about.get("exit_code") if isinstance(about, Mapping) else None


def spent_before(job: Job) -> float:
    """FLOPs that attempts at a job which has not ended have spent; all of its budget for each that has not told."""
    folder = JobFolder.of(job)
    if not _started(job, folder):
        return 0.0
    found, told = bill(folder, planned_shares(job))
    return float(found.total if told else found.total + job.spec.budget)


def start_again(job: Job) -> None:
    """Keep in the job's folder what its last attempt is charged, if it told nothing, before there is another one."""
    folder = JobFolder.of(job)
    if _started(job, folder):
        _, told = bill(folder, planned_shares(job))
        note_restart(folder, {} if told else _in_full(job))


def _started(job: Job, folder: JobFolder) -> bool:
    """Whether an attempt was started, and the job has not ended."""
    return folder.prepare(job) is None and folder.stdout.exists()


def _in_full(job: Job) -> dict[str, float]:
    return {phase: share * job.spec.budget for phase, share in planned_shares(job).items()}
