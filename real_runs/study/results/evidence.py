"""Records of a study by stage, and the views of them that the analyses take.

A run's learning rate schedule is constant, so the beginning of a run *is* the run of a smaller budget: `cut` makes a
record of it. `relative` restates a learning rate as a multiple of the tuned one at that update ratio, which is what
`Recipe.learning_rate` means to the simulator and to the surrogate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from race.allocation import Allocation
from race.records import Curve, PilotRecord
from real_runs.grpo.health import HealthCounts, verdict
from real_runs.study.design import TUNING_STAGE, study_runs, tuning_runs
from real_runs.study.file import Study
from real_runs.study.frontier import SliceKey
from real_runs.study.tuning import Rates, tuned_rates

UNFINISHED = ("failed", "timeout")
USABLE = ("ok", "collapsed")


@dataclass(frozen=True)
class StudyRecords:
    """A study's records as they stand.

    Attributes
    ----------
    finished
        One record per run that came to an end, by run id, sorted.
    failed
        Tries that did not.
    foreign
        Ids of records that no stage of the study knows.
    rates
        The tuned rates that the stages used: those given, or what tuning chose; ``None`` until tuning is over.
    chosen
        What the tuning runs at hand choose; ``None`` until all are there.
    """

    study: Study
    finished: Mapping[str, PilotRecord]
    failed: tuple[PilotRecord, ...]
    foreign: tuple[str, ...]
    rates: Rates | None
    chosen: Rates | None = None

    @classmethod
    def sort(cls, study: Study, records: Iterable[PilotRecord], *, rates: Rates | None = None) -> StudyRecords:
        """Sort records; ``rates`` are those that the stages used, by default what tuning chose."""
        finished: dict[str, PilotRecord] = {}
        failed = []
        for record in sorted(records, key=lambda r: r.id):
            if record.health.status in UNFINISHED:
                failed.append(record)
            else:
                finished[_run_of(record.id)] = record
        ended = {**{_run_of(r.id): r for r in failed}, **finished}
        tuning = tuning_runs(study)
        complete = bool(tuning) and all(run.id in ended for run in tuning)
        chosen = tuned_rates(study, tuning, ended) if complete else None
        names = {stage.name for stage in study.stages} | {TUNING_STAGE}
        foreign = tuple(r for r, record in finished.items() if not names & set(stages_of(record)))
        return cls(study, finished, tuple(failed), foreign, rates or chosen, chosen)

    def stage(self, *names: str) -> list[PilotRecord]:
        """Finished runs of any of these stages, each once."""
        return [r for r in self.finished.values() if set(names) & set(stages_of(r))]

    @property
    def tuned(self) -> list[PilotRecord]:
        """Finished runs at tuned rates, of stages that were planned from the start."""
        return self.stage(*(s.name for s in self.study.stages if s.rate == "tuned" and not s.later))

    @property
    def later(self) -> list[PilotRecord]:
        """Finished runs at tuned rates that only stages decided on later have."""
        known = {record.id for record in self.tuned}
        found = self.stage(*(s.name for s in self.study.stages if s.rate == "tuned" and s.later))
        return [record for record in found if record.id not in known]

    @property
    def measured(self) -> list[PilotRecord]:
        """Finished runs of all stages but tuning."""
        return self.stage(*(stage.name for stage in self.study.stages))

    def planned(self) -> dict[str, int]:
        """Runs that each stage asks for, tuning first."""
        found = {TUNING_STAGE: len(tuning_runs(self.study))} if self.study.tuning else {}
        for run in study_runs(self.study, self.rates):
            for stage in run.stages:
                found[stage] = found.get(stage, 0) + 1
        return found


def stages_of(record: PilotRecord) -> tuple[str, ...]:
    """Stages that a record was made for, as the study wrote them down."""
    found = record.provenance.get("stages", ())
    return tuple(str(s) for s in found) if isinstance(found, Sequence) and not isinstance(found, str) else ()


def _run_of(record_id: str) -> str:
    head, mark, number = record_id.rpartition("_try")
    return head if mark and number.isdigit() else record_id


def slice_key(record: PilotRecord) -> SliceKey:
    """The IsoFLOP slice that a run belongs to."""
    spec = record.spec
    return SliceKey(spec.reward, spec.model, spec.budget, spec.recipe.lora.rank if spec.recipe.lora else 0)


def usable(record: PilotRecord, targets: Sequence[str]) -> bool:
    """Whether the run has an outcome for all ``targets``; a collapsed run has what it ended at."""
    return record.health.status in USABLE and all(t in record.curves for t in targets)


def final(record: PilotRecord, target: str) -> float:
    """Value at the end of the run."""
    return record.curves[target].value[-1]


def only(record: PilotRecord, targets: Sequence[str]) -> PilotRecord:
    """The record with no other curves than those of ``targets``."""
    return replace(record, curves={t: c for t, c in record.curves.items() if t in targets})


def relative(record: PilotRecord, rates: Rates | None) -> PilotRecord:
    """The record with its learning rate as a multiple of the tuned one; unchanged where nothing was tuned."""
    recipe = record.spec.recipe
    if rates is None or record.spec.model not in rates.table:
        return record
    rate = float(f"{recipe.learning_rate / rates.at(record.spec.model, recipe.update_ratio):.4g}")
    return replace(record, spec=replace(record.spec, recipe=replace(recipe, learning_rate=rate)))


def points_of(record: PilotRecord) -> tuple[float, ...]:
    """FLOPs at every evaluation after the base model, the same for all targets of a run."""
    curve = next(iter(record.curves.values()))
    return tuple(f for f in curve.flops if f > 0)


def cut(record: PilotRecord, flops: float) -> PilotRecord | None:
    """The run stopped at its last evaluation at or below ``flops``; ``None`` when there is none after the base model.

    FLOPs by phase are taken in proportion: every step of a run is made the same way. Health is judged again, by what
    was seen until then.
    """
    curves: dict[str, Curve] = {}
    for target, curve in record.curves.items():
        n = sum(f <= flops * (1 + 1e-9) for f in curve.flops)
        if n == 0 or curve.flops[n - 1] <= 0:
            return None
        curves[target] = Curve(curve.step[:n], curve.flops[:n], curve.value[:n], curve.se[:n])
    if not curves:
        return None
    spent = max(c.flops[-1] for c in curves.values())
    step = max(c.step[-1] for c in curves.values())
    if spent >= record.flops.total:
        return record
    share = spent / record.flops.total
    search, reward = int(record.flops.search * share), int(record.flops.reward * share)
    phases = Allocation(search, int(spent) - search - reward, reward)
    about: dict[str, Any] = {k: v for k, v in record.provenance.items() if k not in ("training", "lost_flops")}
    return replace(
        record,
        spec=replace(record.spec, budget=int(spent)),
        flops=phases,
        curves=curves,
        health=verdict(HealthCounts(), curves, ()),
        provenance={**about, "cut_from": record.id},
        steps=step,
        seconds={},
        eval_flops=0,
        id=f"{record.id}_at{step}",
    )
