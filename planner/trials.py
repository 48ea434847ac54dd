"""Pilots <-> Optuna trials: the study is the loop's memory, and the only one.

A trial's parameters are the choice on the axes of `PilotSpace`; its user attributes carry the full spec and, once
there is one, the full record, so that a study alone is enough to resume. What the parameters mean is frozen in the
study's own user attributes and checked whenever a study is picked up again.

    axis      distribution                     meaning
    model     int, 0 .. M-1                    ladder rung, ascending in size (ordered, so not a category)
    reward    category                         reward system; only when several are compared
    rho       float in the union of ranges     update fraction; moved into the model's own range where outside
    size      int, 0 .. L-1                    index into the list of pilot sizes, ascending
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from planner.progress import Pilot, PilotState, Progress
from planner.seeds import trial_seed
from planner.space import Cell, PilotSpace
from race.allocation import Allocation, unit_costs
from race.checks import check_real, check_whole
from race.errors import InvalidInput
from race.records import Curve, PilotRecord, PilotSpec

SPACE, SPEC, RECORD, RECORD_ID = "race:space", "race:spec", "race:record", "race:record_id"
NOTE, REPLACES, WITHDRAWN, EXTRA = "race:note", "race:replaces", "race:withdrawn", "race:extra"

# The standard error assumed for a bare float returned by somebody's own objective: about 500 graded problems.
ASSUMED_SE = 0.02


def distributions(space: PilotSpace) -> dict[str, BaseDistribution]:
    """The search space of a pilot, fixed for the life of a study."""
    low, high = space.rho_bounds
    axes: dict[str, BaseDistribution] = {
        "model": IntDistribution(0, len(space.models) - 1),
        "rho": FloatDistribution(low, high),
        "size": IntDistribution(0, len(space.sizes) - 1),
    }
    if len(space.rewards) > 1:
        axes["reward"] = CategoricalDistribution(space.rewards)
    return axes


def params_of(cell: Cell, space: PilotSpace) -> dict[str, Any]:
    """Trial parameters of a cell."""
    params: dict[str, Any] = {"model": cell.model, "rho": cell.rho, "size": cell.size}
    if len(space.rewards) > 1:
        params["reward"] = space.rewards[cell.reward]
    return params


def cell_of(params: Mapping[str, Any], space: PilotSpace) -> Cell:
    """The runnable cell nearest to a trial's parameters (see `PilotSpace.nearest`)."""
    reward = space.rewards.index(params["reward"]) if "reward" in params else 0
    return space.nearest(int(params["model"]), reward, int(params["size"]), float(params["rho"]))


def check_fixed(params: Mapping[str, Any], space: PilotSpace) -> None:
    """Check axes given to ``enqueue_trial``. A rho that no recipe reaches is moved, so any fraction will do.

    Raises
    ------
    InvalidInput
        A model or size that is no index, a reward that is not compared, a rho that is no fraction.
    """
    for name, count in (("model", len(space.models)), ("size", len(space.sizes))):
        if name in params:
            listed = " (an index into the ladder, smallest model first)" if name == "model" else ""
            try:
                check_whole(f"enqueued {name}", params[name], low=0, high=count - 1)
            except InvalidInput as error:
                raise InvalidInput(f"{error}{listed}") from None
    if "rho" in params:
        check_real("enqueued rho", params["rho"], low=0, high=1)
    if len(space.rewards) > 1 and params.get("reward", space.rewards[0]) not in space.rewards:
        raise InvalidInput(f"enqueued reward: found {params['reward']!r}; allowed are {', '.join(space.rewards)}")


def freeze(study: Study, space: PilotSpace) -> None:
    """Write the space into a new study, or check it against the one a study was started with.

    Raises
    ------
    InvalidInput
        The study has several objectives, minimises, or was started with another space.
    """
    if study.directions != [StudyDirection.MAXIMIZE]:
        directions = ", ".join(d.name.lower() for d in study.directions)
        raise InvalidInput(
            f"study: its direction is {directions}; allowed is one objective to maximize, since a pilot's value "
            "is what the plan wants more of"
        )
    found = study.user_attrs.get(SPACE)
    if found is None:
        study.set_user_attr(SPACE, space.frozen())
    elif not isinstance(found, Mapping):
        raise InvalidInput(f"study: its {SPACE} attribute is {type(found).__name__}; allowed is an object")
    else:
        space.check_frozen(found)


def value_of(record: PilotRecord, target: str) -> float | None:
    """What a trial reports: the last value of the target's curve, or ``None`` when there is none."""
    curve = record.curves.get(target)
    return None if curve is None else float(curve.value[-1])


def read(
    study: Study,
    space: PilotSpace,
    *,
    seed: int,
    skip: int | None = None,
    found: Sequence[FrozenTrial] | None = None,
    known: dict[int, Pilot] | None = None,
) -> Progress:
    """All pilots of a study; trials that are none of ours, or cannot be read, are named in the notes.

    Parameters
    ----------
    skip
        Number of the trial being sampled right now, which is no pilot yet.
    found
        The study's trials, for a caller that has just read them.
    known
        Pilots of finished trials read before, by number; those read now are added. Finished trials never change.
    """
    pilots, notes = [], []
    everything = study.get_trials(deepcopy=False) if found is None else found
    # A late record has taken over the charge of the trial that was given up.
    replaced = {trial.user_attrs.get(REPLACES) for trial in everything}
    for trial in everything:
        if trial.number in (skip, *replaced) or trial.state == TrialState.WAITING:
            continue
        if trial.user_attrs.get(WITHDRAWN):  # never started: it has cost nothing
            continue
        if known is not None and trial.number in known:
            pilots.append(known[trial.number])
            continue
        try:
            pilot = _pilot(trial, space, seed)
        except InvalidInput as error:
            notes.append(f"trial {trial.number} of the study is skipped: {error}")
            continue
        if pilot is None:
            if trial.state != TrialState.FAIL:
                notes.append(f"trial {trial.number} of the study is skipped: it has no model, rho and size")
            continue
        pilots.append(pilot)
        if pilot.state == "lost" and (wrong := off_scale(trial.values)) is not None:
            notes.append(f"trial {trial.number} of the study taught nothing: {wrong}")
        elif known is not None and trial.state.is_finished():
            known[trial.number] = pilot
    return Progress(tuple(pilots), notes=tuple(notes))


def off_scale(values: Sequence[float] | None) -> str | None:
    """What is wrong with the value an objective returned, if anything is."""
    if not values or 0 <= values[0] <= 1:
        return None
    return f"value: found {values[0]!r}; allowed is a target value in [0, 1] (min-max normalise other scales)"


def _pilot(trial: FrozenTrial, space: PilotSpace, seed: int) -> Pilot | None:
    stored = trial.user_attrs.get(SPEC)
    if stored is not None:
        spec = PilotSpec.from_dict(stored, where=f"trial {trial.number} {SPEC}")
    elif {"model", "rho", "size"} <= trial.params.keys():
        spec = space.spec(cell_of(trial.params, space), seed=trial_seed(seed, trial.number))
    else:
        return None
    record = trial.user_attrs.get(RECORD)
    extra = float(trial.user_attrs.get(EXTRA, 0.0))
    if record is not None:
        told = PilotRecord.from_dict(record, where=f"trial {trial.number} {RECORD}")
        return Pilot(trial.number, spec, "finished", told, extra)
    # A run whose value is on another scale was run all the same: it teaches nothing and stays charged.
    if trial.state.is_finished() and trial.values and off_scale(trial.values) is None:
        return Pilot(trial.number, spec, "finished", _bare_record(trial, spec, space))
    state: PilotState = "lost" if trial.state.is_finished() else "running"
    return Pilot(trial.number, spec, state, extra=extra)


def _bare_record(trial: FrozenTrial, spec: PilotSpec, space: PilotSpace) -> PilotRecord:
    """A record for an objective that returned a number in [0, 1] and nothing else."""
    value = float(trial.values[0])
    arch = space.ladder[spec.model].architecture
    sigma, rho, phi = (float(x) for x in unit_costs(arch, spec.recipe).shares(spec.recipe.update_ratio))
    step = unit_costs(arch, spec.recipe).step(spec.recipe.prompts_per_step, spec.recipe.samples_per_step)
    steps = max(1, int(spec.budget // step.total))
    return PilotRecord(
        spec=spec,
        flops=Allocation(sigma * spec.budget, rho * spec.budget, phi * spec.budget),
        curves={space.target: Curve((steps,), (float(spec.budget),), (value,), (ASSUMED_SE,))},
        evidence="real",
        steps=steps,
        provenance={"source": "objective value", "se": "assumed"},
        id=f"trial-{trial.number}",
    )
