"""What of the records enters the fit, in which form, and what does not and why.

* A run that collapsed, diverged or failed says nothing about the response of a healthy run: it is left out,
  counted and noted. One stopped early by a time limit keeps its curve.
* Simulated records are an illustration of what the simulator believes, and the simulator is in the prior
  already: as soon as one real or imported record is there they are left out, so that no number of them
  can outweigh it. Alone they are fitted, and the evidence counts say that they are all there is.
* The same run twice (the same id, the same spec and curves, or the same measurements of the same model and recipe
  under another seed, budget or assumed length) counts once.
* Curves are thinned to points even in log FLOPs, the first and the last among them; each is the average of what was
  measured nearby. For ``native``, measured on fresh samples each time, averaging reduces the standard error; for
  evaluations on one fixed question set it does not, and nearby is nearer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from race.errors import CannotDo, InvalidInput
from race.ladders import Ladder, LadderModel
from race.ladders import model as built_in_model
from race.records import ENDED, EVIDENCE, PRUNED, STOPPED, Curve, PilotRecord
from surrogate.points import FloatArray

POINTS_PER_CURVE = 12
TOTAL_POINTS = 2400
UNHEALTHY = ("collapsed", "diverged", "failed")
COLLAPSED = ("collapsed", "diverged")
# Width in log FLOPs of what is averaged into one point: of evaluations, and of a log that has something for every step,
# where averaging gains more. The mean of a wider stretch lies below a curve that levels off, most of all at its end,
# which is what a fit is asked about.
_WINDOW, _WINDOW_LOG = 0.1, 0.5
_LOG = 4 * POINTS_PER_CURVE
_DISTINCT = 4  # different values on a curve from which on it is its own fingerprint
# A curve that ends this many standard errors, and this much, below its start has fallen.
_FALL_SES = 3.0
_FALL = 0.02


@dataclass(frozen=True)
class ThinCurve:
    """A learning curve after thinning; arrays of one length, FLOPs strictly increasing."""

    flops: FloatArray
    value: FloatArray
    se: FloatArray


@dataclass(frozen=True)
class Run:
    """One healthy run with at least one usable curve."""

    record: PilotRecord
    model: LadderModel
    curves: Mapping[str, ThinCurve]

    @property
    def end(self) -> float:
        """FLOPs at the last point of any curve; 1 if only the base model was evaluated."""
        return max(*(float(curve.flops[-1]) for curve in self.curves.values()), 1.0)


@dataclass(frozen=True)
class Outcome:
    """How one run ended: what was run, and whether it collapsed (or diverged)."""

    model: LadderModel
    record: PilotRecord
    collapsed: bool


@dataclass(frozen=True)
class Evidence:
    """What entered and what did not.

    Attributes
    ----------
    runs
        Healthy runs, each once.
    counts
        Records that entered, by kind: real, imported, simulated.
    unhealthy
        Records left out by health status.
    notes
        Plain words on everything left out.
    outcomes
        Runs that ended well or collapsed, for the risk of collapse.
    """

    runs: tuple[Run, ...]
    counts: Mapping[str, int]
    unhealthy: Mapping[str, int]
    notes: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Targets that have at least one curve, sorted."""
        return tuple(sorted({target for run in self.runs for target in run.curves}))

    @property
    def points(self) -> int:
        """Curve points that entered."""
        return sum(len(curve.flops) for run in self.runs for curve in run.curves.values())


def gather(records: Sequence[PilotRecord], ladder: Ladder, *, points: int | None = None) -> Evidence:
    """Sort records into what can be fitted and what cannot.

    Parameters
    ----------
    points
        Curve points in all above which curves are thinned further; `TOTAL_POINTS` by default.

    Raises
    ------
    InvalidInput
        Something that is no `PilotRecord`.
    """
    notes: list[str] = []
    kept = _once(records, notes)
    measured = [r for r in kept if r.evidence != "simulated"]
    if measured and len(measured) < len(kept):
        notes.append(
            f"{len(kept) - len(measured)} simulated record(s) left out: measured records are there, and the "
            "simulator is in the prior already"
        )
        kept = measured
    unhealthy = Counter(_what_became_of(r) for r in kept if r.health.status in UNHEALTHY)
    for status, count in sorted(unhealthy.items()):
        meaning = "counted as a risk" if status in COLLAPSED else "which says nothing about the setting"
        was = "stopped before they had measured anything" if status == "stopped" else status
        notes.append(f"{count} of {len(kept)} run(s) {was}: {meaning}, left out of the response")
    located = [(r, m) for r in kept if (m := _place(r, ladder, notes)) is not None]
    outcomes = tuple(
        Outcome(m, r, r.health.status in COLLAPSED) for r, m in located if r.health.status != "failed"
    )
    placed = [(r, m) for r, m in located if r.health.status not in UNHEALTHY]
    placed = _at_most(placed, notes)
    limit = min(max((points or TOTAL_POINTS) // max(sum(len(r.curves) for r, _ in placed), 1), 1), POINTS_PER_CURVE)
    runs = tuple(
        Run(record, model, {t: thin(c, limit, fresh=t == "native") for t, c in sorted(record.curves.items())})
        for record, model in placed
        if record.curves
    )
    notes += _falls(runs)
    counts = Counter(run.record.evidence for run in runs)
    by_kind = {str(kind): counts.get(kind, 0) for kind in EVIDENCE}
    return Evidence(runs, by_kind, {str(status): n for status, n in unhealthy.items()}, tuple(notes), outcomes)


def _once(records: Sequence[PilotRecord], notes: list[str]) -> list[PilotRecord]:
    seen: set[str] = set()
    kept = []
    for record in records:
        if not isinstance(record, PilotRecord):
            raise InvalidInput(f"records: found {type(record).__name__}; allowed are PilotRecord objects")
        content = repr((record.spec, sorted(record.curves.items()), record.health.status))
        # Failed runs carry no curve to tell them apart: only their id does.
        keys = {record.id, content, *_fingerprints(record)} if record.curves else {record.id}
        if keys & seen:
            continue
        seen |= keys
        kept.append(record)
    if len(kept) < len(records):
        notes.append(f"{len(records) - len(kept)} record(s) are copies of others and count once")
    return kept


def _fingerprints(record: PilotRecord) -> set[str]:
    """What only a copy of a measurement can share with it, one mark per curve.

    A log that is read twice, with another seed or other assumed lengths, gives another spec and other FLOPs, but the
    same values at the same steps of one recipe. Noise never repeats four different values digit by digit; curves with
    fewer (a flat 0 or 1, a single end point) may well be two runs.
    """
    spec, recipe = record.spec, record.spec.recipe
    run = (spec.model.lower(), recipe.reward, recipe.prompts_per_step, recipe.group_size, round(recipe.update_ratio, 6))
    return {
        repr((*run, target, curve.step, curve.value))
        for target, curve in record.curves.items()
        if len(set(curve.value)) >= _DISTINCT
    }


@lru_cache(maxsize=256)
def _known(name: str) -> LadderModel | None:
    """A model off the ladder by name, or ``None`` when its architecture cannot be had here: no table, no hub.

    Remembered, also when it is not found: thousands of records may name one model that a hub out of reach holds.
    """
    try:
        return built_in_model(name)
    except (InvalidInput, CannotDo):
        return None


def _place(record: PilotRecord, ladder: Ladder, notes: list[str]) -> LadderModel | None:
    """The model a record ran on, with the architecture that prices its recipe."""
    spec = record.spec
    if spec.model in ladder:
        return ladder[spec.model]
    found = _known(spec.model)
    if found is None:
        nearest = min(ladder.models, key=lambda m: abs(np.log(m.params / spec.params)))
        if not 0.5 <= spec.params / nearest.params <= 2:
            notes.append(
                f"record {record.id} skipped: model {spec.model!r} is neither on the ladder nor known, and no rung "
                f"is within a factor of two of its {spec.params:.3g} parameters"
            )
            return None
        notes.append(
            f"record {record.id}: model {spec.model!r} is not on the ladder; used at its own size, priced as "
            f"{nearest.name}"
        )
        return LadderModel(spec.model, nearest.architecture, spec.params)
    notes.append(f"record {record.id}: model {spec.model!r} is not on the ladder; used at its own size")
    return found


def _falls(runs: Sequence[Run]) -> list[str]:
    """A note per target on healthy runs that ended below their base model: there training hurt."""
    fallen: dict[str, list[str]] = {}
    for run in runs:
        for target, curve in run.curves.items():
            loss = curve.value[0] - curve.value[-1]
            error = float(np.hypot(curve.se[0], curve.se[-1]))
            # Only a curve that starts before training says where training started from.
            if curve.flops[0] == 0 and loss > max(_FALL, _FALL_SES * error):
                said = f"{run.record.id} ({run.model.name}, {curve.value[0]:.2f} to {curve.value[-1]:.2f})"
                fallen.setdefault(target, []).append(said)
    return [
        f"training hurt {target} in {len(who)} run(s) that are not marked as collapsed: {'; '.join(who[:3])}"
        + (" and others" if len(who) > 3 else "")
        + "; look at learning rate, update ratio and reward before a larger run"
        for target, who in sorted(fallen.items())
    ]


def _what_became_of(record: PilotRecord) -> str:
    """The status, but ``stopped`` for a run that was asked to end: it did not fail, somebody had seen enough."""
    asked = record.health.status == "failed" and bool({STOPPED, PRUNED, ENDED} & set(record.health.flags))
    return "stopped" if asked else record.health.status


def _at_most(
    placed: list[tuple[PilotRecord, LadderModel]], notes: list[str]
) -> list[tuple[PilotRecord, LadderModel]]:
    """Every k-th record where even one point per curve would be more than `TOTAL_POINTS`."""
    curves = sum(len(record.curves) for record, _ in placed)
    if curves <= TOTAL_POINTS:
        return placed
    every = -(-curves // TOTAL_POINTS)
    notes.append(
        f"{len(placed)} runs hold {curves} curves, more than the {TOTAL_POINTS} that are fitted at once: one run in "
        f"{every} is used; fit a subset of your choice to decide which"
    )
    return placed[::every]


def thin(curve: Curve, limit: int = POINTS_PER_CURVE, *, fresh: bool = False) -> ThinCurve:
    """At most ``limit`` points: the base model, then averages of narrow windows at places even in log FLOPs.

    The first and the last measurement have windows of their own, and one point is the last.

    Parameters
    ----------
    fresh
        True when each point was measured on new samples, so that averaging reduces the standard error.
    """
    flops = np.asarray(curve.flops, dtype=np.float64)
    value = np.asarray(curve.value, dtype=np.float64)
    se = _honest_se(value, np.asarray(curve.se, dtype=np.float64))
    paid = flops > 0
    groups = [np.flatnonzero(~paid)] if (~paid).any() else []
    later = np.flatnonzero(paid)
    places = limit - len(groups)
    if len(later):
        groups = groups if places > 0 else []
        width = _WINDOW_LOG if fresh and len(later) > _LOG else _WINDOW
        groups += [later[g] for g in _windows(np.log(flops[later]), max(places, 1), width)]
    return ThinCurve(
        np.array([np.exp(np.log(flops[g]).mean()) if flops[g[0]] > 0 else 0.0 for g in groups]),
        np.array([value[g].mean() for g in groups]),
        np.array([np.sqrt(np.mean(se[g] ** 2) / (len(g) if fresh else 1)) for g in groups]),
    )


def _windows(position: FloatArray, places: int, width: float) -> list[npt.NDArray[np.intp]]:
    """Indices of what is averaged at each of at most ``places`` places, which share no measurement."""
    distinct, label = np.unique(position, return_inverse=True)
    if len(distinct) <= places:
        return [np.flatnonzero(label == k) for k in range(len(distinct))]
    even = np.linspace(distinct[0], distinct[-1], places) if places > 1 else distinct[-1:]
    nearest = np.unique(np.abs(distinct[:, None] - even).argmin(axis=0))
    centres = distinct[nearest]
    # Every measurement belongs to the centre nearest to it, and counts where it is near enough.
    owner = np.abs(position[:, None] - centres).argmin(axis=1)
    near = np.abs(position - centres[owner]) <= width / 2
    return [np.flatnonzero(near & (owner == k)) for k in range(len(centres))]


def _honest_se(value: FloatArray, se: FloatArray) -> FloatArray:
    """Standard errors with those of measured 0 and 1 mended.

    sqrt(p (1 - p) / n) is zero there, which is the formula's failure and not certainty. Where other points of
    the curve reveal n, (k + 1) / (n + 2) takes the place of k / n.
    """
    inner = (se > 0) & (value > 0) & (value < 1)
    edge = (se == 0) & ((value == 0) | (value == 1))
    if not inner.any() or not edge.any():
        return se
    count = float(np.median(value[inner] * (1 - value[inner]) / se[inner] ** 2))
    p = (value[edge] * count + 1) / (count + 2)
    out = se.copy()
    out[edge] = np.sqrt(p * (1 - p) / (count + 2))
    return out


def resolve_target(target: str, present: Sequence[str]) -> str:
    """Name a queried target as the evidence names it.

    ``pass@1`` stands for the one benchmark in evidence; two of them are `InvalidInput`, because they
    are different questions.
    """
    if target != "pass@1" or target in present:
        return target
    benchmarks = sorted(t for t in present if t.startswith("pass@1:"))
    if len(benchmarks) > 1:
        raise InvalidInput(
            f"target: found 'pass@1', which the records hold on several benchmarks; allowed are {', '.join(benchmarks)}"
        )
    return benchmarks[0] if benchmarks else target
