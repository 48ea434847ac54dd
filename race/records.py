"""Pilot specs and records: what was asked for, what was measured.

A record is the only thing that passes between runners, stores, surrogates and planners, so it says everything
about a run that any of them needs, in plain JSON with a schema version. All target values lie in [0, 1]; a
native reward on another scale is min-max normalised by whoever writes the record, with the scale kept in
``provenance["native_range"]``.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from race.allocation import Allocation, allocation_from_dict
from race.checks import check_object, check_real, check_whole
from race.errors import InvalidInput
from race.recipe import Recipe
from race.rewards import check_target

SCHEMA = "race.pilot/1"

Evidence = Literal["real", "imported", "simulated"]
Status = Literal["ok", "collapsed", "diverged", "failed", "timeout"]
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)
STATUSES: tuple[Status, ...] = get_args(Status)

# Also a file name: ASCII only, because file systems disagree on how to spell the rest.
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True)
class PilotSpec:
    """One setting to run: a model, a recipe, a FLOP budget and a seed.

    Attributes
    ----------
    model, params
        Name on the ladder and parameter count; the latter keeps a record usable off the ladder.
    recipe
        With the reward system and the update ratio.
    rho
        The update fraction the recipe was solved for.
    budget
        FLOPs the run may spend, C_total; evaluation comes on top.
    seed
        Seeds sampling, data order and initialisation of the adapter.
    targets
        What the run should evaluate.
    """

    model: str
    params: int
    recipe: Recipe
    rho: float
    budget: int
    seed: int = 0
    targets: tuple[str, ...] = ("native",)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise InvalidInput(f"spec.model: found {self.model!r}; allowed is a model name")
        check_whole("spec.params", self.params, low=1, high=1e18)
        check_real("spec.rho", self.rho, low=0, high=1)
        check_whole("spec.budget", self.budget, low=1, high=1e30)
        check_whole("spec.seed", self.seed, low=0, high=2**63 - 1)
        for target in self.targets:
            check_target(target)

    @property
    def reward(self) -> str:
        """The reward system's name."""
        return self.recipe.reward

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "recipe": self.recipe.to_dict(), "targets": list(self.targets)}

    @classmethod
    def from_dict(cls, data: Any, *, where: str = "spec") -> PilotSpec:
        """Build from plain JSON types, checking every field."""
        values = check_object(
            where, data, required=("model", "params", "recipe", "rho", "budget"), optional=("seed", "targets")
        )
        values["recipe"] = Recipe.from_dict(values["recipe"], where=f"{where}.recipe")
        values["targets"] = _list(values.get("targets", ("native",)), f"{where}.targets")
        return cls(**values)


@dataclass(frozen=True)
class Curve:
    """One target along one run.

    Attributes
    ----------
    step
        Optimisation step of each point, strictly increasing; 0 is the base model.
    flops
        C_total spent up to each point, non-decreasing.
    value
        In [0, 1].
    se
        Standard error of each value from the evaluation alone (0 where exact); seeds come on top.
    """

    step: tuple[int, ...]
    flops: tuple[float, ...]
    value: tuple[float, ...]
    se: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.step), len(self.flops), len(self.value), len(self.se)}
        if len(lengths) != 1 or not self.step:
            raise InvalidInput(
                f"curve: found {len(self.step)} steps, {len(self.flops)} flops, {len(self.value)} values and "
                f"{len(self.se)} standard errors; allowed is at least one point with all four"
            )
        for name, low, high in (("step", 0, 1e12), ("flops", 0, 1e31), ("value", 0, 1), ("se", 0, 1)):
            check = check_whole if name == "step" else check_real
            for item in getattr(self, name):
                check(f"curve.{name}", item, low=low, high=high)
        if any(b <= a for a, b in zip(self.step, self.step[1:], strict=False)):
            raise InvalidInput("curve.step: found steps that do not increase; allowed is strictly increasing")
        if any(b < a for a, b in zip(self.flops, self.flops[1:], strict=False)):
            raise InvalidInput("curve.flops: found a decrease; allowed is non-decreasing cumulative FLOPs")

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def from_dict(cls, data: Any, *, where: str) -> Curve:
        """Build from four parallel lists."""
        values = check_object(where, data, required=("step", "flops", "value", "se"))
        return cls(**{name: _list(items, f"{where}.{name}") for name, items in values.items()})


# Flags of a run that was asked to end: by whoever ran it, because it could no longer matter, or because its loop ended.
STOPPED, PRUNED, ENDED = "stopped", "pruned", "ended"


@dataclass(frozen=True)
class Health:
    """How a run went. Anything but ``ok`` keeps its measured FLOPs and says why."""

    status: Status = "ok"
    reason: str = ""
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise InvalidInput(f"health.status: found {self.status!r}; allowed are {', '.join(STATUSES)}")
        if not isinstance(self.reason, str):
            raise InvalidInput(f"health.reason: found {self.reason!r}; allowed is text")
        if not all(isinstance(flag, str) for flag in self.flags):
            raise InvalidInput(f"health.flags: found {self.flags!r}; allowed is a list of words")
        if self.status != "ok" and not self.reason:
            raise InvalidInput(f"health.reason: missing; a run that is {self.status} says why")


@dataclass(frozen=True)
class PilotRecord:
    """The outcome of one pilot.

    Attributes
    ----------
    spec
        What was asked for.
    flops
        What was spent by phase, measured or (for imported logs) reconstructed.
    curves
        Target name to learning curve; may be empty only for a failed run.
    health, evidence, provenance
        How it went, where it comes from, and free-form facts (source file, software versions, host, ...).
    eval_flops
        Metered beside the budget, never inside it.
    steps
        Optimisation steps done.
    seconds
        Wall time by phase, where measured.
    id
        Unique name; also the file name in a store.
    """

    spec: PilotSpec
    flops: Allocation
    curves: Mapping[str, Curve]
    evidence: Evidence
    health: Health = Health()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    eval_flops: int | float = 0
    steps: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE:
            raise InvalidInput(f"evidence: found {self.evidence!r}; allowed are {', '.join(EVIDENCE)}")
        if not self.curves and self.health.status == "ok":
            raise InvalidInput("curves: found none in a run that is ok; allowed is at least one target")
        for target in self.curves:
            check_target(target)
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise InvalidInput(
                f"id: found {self.id!r}; allowed are 1 to 128 ASCII letters, digits, '-' and '_'"
            )
        check_whole("steps", self.steps, low=0, high=1e12)
        check_real("eval_flops", self.eval_flops, low=0, high=1e31)
        for phase, seconds in self.seconds.items():
            check_real(f"seconds.{phase}", seconds, low=0, high=1e12)

    @property
    def spent(self) -> int | float:
        """FLOPs to charge for the run: ``flops``, and work that crashes made it do again beside them
        (``provenance["lost_flops"]`` by phase)."""
        lost = self.provenance.get("lost_flops")
        found = [lost.get(phase, 0) for phase in ("search", "learning", "reward")] if isinstance(lost, Mapping) else []
        numbers = [n for n in found if isinstance(n, (int, float)) and not isinstance(n, bool)]
        return self.flops.total + sum(n for n in numbers if 0 <= n < math.inf)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, with the schema version."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "evidence": self.evidence,
            "spec": self.spec.to_dict(),
            "steps": self.steps,
            "flops": {**self.flops.to_dict(), "eval": self.eval_flops},
            "curves": {
                target: {name: list(items) for name, items in asdict(curve).items()}
                for target, curve in self.curves.items()
            },
            "health": {**asdict(self.health), "flags": list(self.health.flags)},
            "seconds": dict(self.seconds),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Any, *, where: str = "record") -> PilotRecord:
        """Build from plain JSON types, checking every field.

        Raises
        ------
        InvalidInput
            Another schema version, an unknown or missing field, or a value out of range; named.
        """
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where}: found {type(data).__name__}; allowed is a JSON object")
        if data.get("schema") != SCHEMA:
            raise InvalidInput(f"{where}.schema: found {data.get('schema')!r}; allowed is {SCHEMA!r}")
        values = check_object(
            where,
            {k: v for k, v in data.items() if k != "schema"},
            required=("id", "evidence", "spec", "flops", "curves", "health"),
            optional=("steps", "seconds", "provenance"),
        )
        flops = check_object(
            f"{where}.flops",
            values.pop("flops"),
            required=("search", "learning", "reward"),
            optional=("total", "eval"),
        )
        health = check_object(
            f"{where}.health", values.pop("health"), required=("status",), optional=("reason", "flags")
        )
        curves = values.pop("curves")
        for name in ("seconds", "provenance"):
            if not isinstance(values.get(name, {}), Mapping):
                raise InvalidInput(f"{where}.{name}: allowed is an object")
        if not isinstance(curves, Mapping):
            raise InvalidInput(
                f"{where}.curves: found {type(curves).__name__}; allowed is an object by target"
            )
        allocation = allocation_from_dict(flops, where=f"{where}.flops")
        total = flops.get("total", allocation.total)
        check_real(f"{where}.flops.total", total, low=0, high=1e32)
        if not math.isclose(total, allocation.total, rel_tol=1e-9):
            raise InvalidInput(
                f"{where}.flops.total: found {total}, but the phases add up to {allocation.total}"
            )
        return cls(
            **{**values, "spec": PilotSpec.from_dict(values["spec"], where=f"{where}.spec")},
            flops=allocation,
            eval_flops=flops.get("eval", 0),
            curves={
                target: Curve.from_dict(curve, where=f"{where}.curves[{target}]")
                for target, curve in curves.items()
            },
            health=Health(
                health["status"],
                health.get("reason", ""),
                _list(health.get("flags", ()), f"{where}.health.flags"),
            ),
        )


def _list(value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidInput(f"{where}: found {type(value).__name__}; allowed is a list")
    return tuple(value)
