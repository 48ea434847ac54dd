"""From what a runner left behind to a record that can be trusted, or one that says why there is none."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from race.allocation import Allocation, size_run
from race.errors import InvalidInput, RaceError
from race.flops import Architecture
from race.records import SCHEMA, STOPPED, Curve, Evidence, Health, PilotRecord, Status
from race.units import MAX_BUDGET, format_flops
from real_runs.executors._base import Job
from real_runs.executors.folder import JobFolder, difference
from real_runs.executors.readings import MOST_OF_BUDGET, PHASES, bill, readings_of

# Less than a hundredth of the budget is another unit or another run.
LEAST_OF_BUDGET = 0.01
_MOST_BYTES = 64 << 20
_MOST_CHARACTERS = 600


class RefusedResult(Exception):
    """What a runner gave as its record is none."""


def read_result(job: Job, *, evidence: Evidence) -> PilotRecord:
    """The record that a runner left in ``result.json``, or as the last JSON object on its stdout.

    A runner may leave out what is known anyway: ``schema``, ``id``, ``spec``, ``evidence`` and a ``health`` of ok.

    Raises
    ------
    RefusedResult
        There is none, it is garbage, or it cannot be about this job.
    """
    folder = JobFolder.of(job)
    data, where = _found(folder)
    filled = {
        "schema": SCHEMA, "id": job.id, "evidence": evidence, "spec": job.spec.to_dict(), "health": {"status": "ok"},
        **data,
    }  # fmt: skip
    _check_numbers(filled.get("flops"), where)
    try:
        json.dumps(filled, allow_nan=False)
        record = PilotRecord.from_dict(filled, where=where)
    except (InvalidInput, ValueError, TypeError, RecursionError) as error:
        raise RefusedResult(f"not a record: {error}") from None
    _check(record, job, where)
    missing = [target for target in job.spec.targets if target not in record.curves]
    flags = tuple(f"missing-target:{target}" for target in missing)
    health = replace(record.health, flags=(*record.health.flags, *flags))
    return replace(record, id=job.id, health=health, provenance={**record.provenance, "run_id": record.id})


def last_json_object(text: str) -> dict[str, Any] | None:
    """The last complete JSON object in ``text`` that is not part of another one, whatever is around it.

    One that has ``flops`` wins over later ones that have not: loggers print summaries when they close.
    """
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            end = at + 1
        except RecursionError:
            # Thousands of brackets that do not close: not a record, and each of them would be tried in turn.
            end = text.find("\n", at)
            if end < 0:
                break
        else:
            if "flops" in value or found is None or "flops" not in found:
                found = value
        at = text.find("{", end)
    return found


def broken_record(
    job: Job,
    status: Status,
    reason: str,
    *,
    evidence: Evidence,
    flags: tuple[str, ...] = (),
    started: bool = True,
) -> PilotRecord:
    """The record of a job that came to no proper end: what it spent and measured so far, and the reason.

    A job that was stopped after it had measured something is a ``timeout`` to those who learn from it: its curve is
    that of a healthy run, only shorter. ``flops-unknown`` flags a job that was ``started`` and whose last attempt
    told nothing.
    """
    folder = JobFolder.of(job)
    flops, told = bill(folder, planned_shares(job))
    readings = readings_of(folder)
    readings.spent()
    curves = readings.curves()
    if STOPPED in flags and any(len(curve) > 1 for curve in curves.values()):
        status = "timeout"
    if started and not told:
        flags = (*flags, "flops-unknown")
    return PilotRecord(
        spec=job.spec,
        flops=flops,
        curves=curves,
        evidence=evidence,
        health=Health(status, _in_brief(reason), flags),
        steps=readings.steps,
        id=job.id,
    )


def _in_brief(reason: str) -> str:
    """On one line, and without the megabytes that a runner may have printed."""
    said = " ".join(reason.split())
    return said if len(said) <= _MOST_CHARACTERS else f"{said[: _MOST_CHARACTERS - 3]}..."


def charged(record: PilotRecord, job: Job, attempts: int) -> PilotRecord:
    """With what crashes made the job do again, where the runner does not say so itself."""
    if attempts < 2 or record.spent > record.flops.total:
        return record
    spent, told = bill(JobFolder.of(job), planned_shares(job))
    # What an attempt has not told is in its record alone.
    own = dict.fromkeys(PHASES, 0.0) if not told else {phase: getattr(record.flops, phase) for phase in PHASES}
    lost = {phase: max(0, getattr(spent, phase) - own[phase]) for phase in PHASES}
    if not sum(lost.values()):
        return record
    return replace(record, provenance={**record.provenance, "lost_flops": lost})


def signed(record: PilotRecord, **facts: Any) -> PilotRecord:
    """With where and how it was run, in ``provenance["executor"]``."""
    about = {"host": socket.gethostname(), **facts}
    return replace(record, provenance={**record.provenance, "executor": about})


def planned_shares(job: Job) -> Mapping[str, float]:
    """How the recipe splits FLOPs, for a runner that does not."""
    spec = job.spec
    try:
        return size_run(Architecture.from_config(spec.model), spec.recipe, spec.budget).flops.shares
    except RaceError:
        # A model that the accounting does not know: search + learning by the spec's own update fraction.
        return {"search": 1 - spec.rho, "learning": spec.rho, "reward": 0.0}


def last_line(path: Path, since: int = 0) -> str:
    """The last line after a position in a log that says something, at most 300 characters."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(since, size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else ""


def _found(folder: JobFolder) -> tuple[dict[str, Any], str]:
    if folder.result.exists():
        try:
            data = json.loads(_text(folder.result))
        except (OSError, ValueError, RecursionError) as error:
            raise RefusedResult(f"its result file is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise RefusedResult(f"its result file holds a JSON {type(data).__name__}, not an object")
        return data, "result"
    try:
        data = last_json_object(_text(folder.stdout))
    except OSError:
        data = None
    if data is None:
        raise RefusedResult("it left no record: no result file, and no JSON object on stdout")
    return data, "stdout"


def _text(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_BYTES))
        return file.read().decode("utf-8", errors="replace")


def _check_numbers(flops: Any, where: str) -> None:
    """Said first and in its own words, since a wrong unit or sign is the most likely mistake of a new runner."""
    if not isinstance(flops, Mapping):
        raise RefusedResult(
            f"{where} is not a record: it has no flops object with {', '.join(PHASES)}"
            if flops is None
            else f"impossible FLOPs: {where}.flops is {_short(flops)}, not an object by phase"
        )
    for name, value in flops.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # Compared, not asked with isfinite: JSON has whole numbers that are no float.
        if not number or not 0 <= value <= MAX_BUDGET:
            raise RefusedResult(f"impossible FLOPs: {where}.flops.{name} is {_short(value)}")


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:57]}..."


def _check(record: PilotRecord, job: Job, where: str) -> None:
    different = difference(record.spec.to_dict(), job.spec.to_dict(), f"{where}.spec")
    if different:
        raise RefusedResult(f"it is about another pilot: {different}")
    total, budget, status = record.flops.total, job.spec.budget, record.health.status
    asked = f"the budget was {format_flops(budget)}"
    if total > MOST_OF_BUDGET * budget:
        raise RefusedResult(f"impossible FLOPs: {format_flops(total)} spent, {asked}")
    if status == "ok" and total <= 0:
        raise RefusedResult(f"impossible FLOPs: 0 spent by a run that says ok, {asked}")
    if status == "ok" and total < LEAST_OF_BUDGET * budget:
        raise RefusedResult(
            f"impossible FLOPs: {format_flops(total)} spent by a run that says ok, {asked}: is it in FLOPs?"
        )
    if status == "ok" and not set(job.spec.targets) & set(record.curves):
        raise RefusedResult(f"it has curves of none of the targets: {', '.join(job.spec.targets)}")
    for target, curve in record.curves.items():
        _check_curve(target, curve, record.flops)


def _check_curve(target: str, curve: Curve, flops: Allocation) -> None:
    # A summed float may differ in the last digits.
    if curve.flops[-1] > flops.total * 1.01:
        raise RefusedResult(
            f"impossible FLOPs: the curve of {target} ends at {format_flops(curve.flops[-1])}, "
            f"the record at {format_flops(flops.total)}"
        )
