"""What ``race study pack`` and ``race study check`` do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from race.records import PilotRecord
    from race.store import LoadedRecords


def pack_study(
    out: Path, to: Path, name: str | None, fit: bool, stages: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the records of the study in ``out``, or of some of its stages, to the file ``to``; what ``--json`` says."""
    from race.packed import SUFFIX, pack, read_pack

    if not to.name.endswith(SUFFIX) or to.name == SUFFIX:
        raise InvalidInput(f"to: found {to}; allowed is a file that ends in {SUFFIX}")
    if not to.parent.is_dir():
        raise InvalidInput(f"to: found {to}, whose folder {to.parent} does not exist; make it first")
    loaded = _records(out)
    records = _of_stages(loaded.require(), stages)
    studies = sorted({str(record.provenance.get("study", "")) for record in records} - {""})
    if name is None and len(studies) != 1:
        raise InvalidInput(f"name: missing, and the records name {', '.join(studies) or 'no study'}; give --name")
    written = pack(records, name=name or studies[0], rates=_tuned(out))
    try:
        to.write_bytes(written)
    except OSError as error:
        raise CannotDo(f"to: cannot write {to}: {error.strerror}") from None
    kept = read_pack(to)
    folder = None
    if fit:
        from planner.reporting import ladder_of, reward_of
        from surrogate.prefitted import fit_pack

        folder = fit_pack(kept, ladder_of(kept.records), reward_of(kept.records))
    flops = {
        phase: sum(getattr(record.flops, phase) for record in records)
        for phase in ("search", "learning", "reward", "total")
    }
    return {
        "name": kept.name,
        "file": str(to),
        "bytes": len(written),
        "sha256": kept.sha256,
        "records": len(kept.records),
        "health": dict(Counter(record.health.status for record in records).most_common()),
        "stages": dict(sorted(Counter(s for r in records for s in r.provenance.get("stages", [])).items())),
        "flops": {**flops, "eval": sum(record.eval_flops for record in records)},
        "rates": kept.rates is not None,
        "surrogate": None if folder is None else str(folder),
        "skipped": [str(problem) for problem in loaded.problems],
    }


def check_study(out: Path, against: Path) -> dict[str, Any]:
    """Compare the records in ``out`` with those of a packed study."""
    from race.cli.sources import find_pack
    from real_runs.study.compare import compare

    pack = find_pack(against)
    found = compare({record.id: record for record in _records(out).require()}, pack)
    return {"against": pack.name, **found.to_dict()}


def _records(out: Path) -> LoadedRecords:
    from race.store import Store

    return Store(out / "records").records()


def _of_stages(records: Sequence[PilotRecord], stages: Sequence[str]) -> list[PilotRecord]:
    known = sorted({stage for record in records for stage in record.provenance.get("stages", [])})
    for stage in stages:
        if stage not in known:
            raise InvalidInput(f"stage: found {stage}; the records have {', '.join(known) or 'none'}")
    return [r for r in records if not stages or set(stages) & set(r.provenance.get("stages", []))]


def _tuned(out: Path) -> dict[str, Any] | None:
    """``rates.json`` of the study, checked; ``None`` where nothing was tuned."""
    from real_runs.study import Rates

    path = out / "rates.json"
    return Rates.read(path).to_dict() if path.exists() else None
