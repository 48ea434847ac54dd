"""The card: what a logged run spent, by phase, with everything that had to be assumed and how much it matters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from race.allocation import Allocation, Attention, Regime, regime_of
from race.cards.account import Spent, Work, executed, spent, work_of
from race.cards.assumption import Assumption, Evidence
from race.cards.compare import Comparison, comparisons_of
from race.cards.ranges import Ranges, ranges_of
from race.cards.runlog import FloatArray, RunLog
from race.cards.settle import settle, settle_executed, values_of
from race.cards.waste import Waste, waste_of
from race.checks import check_real, check_whole
from race.errors import CannotDo, InvalidInput
from race.flops import Architecture
from race.hardware import HardwareCost, Range
from race.recipe import MAX_COUNT, MAX_UPDATE_RATIO, MIN_UPDATE_RATIO

SCHEMA = "race.card/1"
MAX_POINTS = 200
CostFunction = Callable[[Allocation], HardwareCost | None]


@dataclass(frozen=True)
class Card:
    """One run's compute report.

    Attributes
    ----------
    log
        The run.
    model, architecture
        The policy.
    attention
        Convention of every number that is not said to be executed.
    assumptions
        Every quantity, settled or not.
    ranges
        FLOPs by phase, best estimate and ranges.
    executed
        FLOPs of padded batches under full attention, what torch's counter sees; ``None`` when batches were not padded.
    waste, comparisons
        See `race.cards.waste` and `race.cards.compare`.
    spent, work, values
        By row, under the best estimate.
    hardware
        At the cheap end, the best estimate and the dear end; ``None`` when no GPU was named.
    """

    log: RunLog
    model: str
    architecture: Architecture
    attention: Attention
    assumptions: tuple[Assumption, ...]
    ranges: Ranges
    executed: Ranges | None
    waste: tuple[Waste, ...]
    comparisons: tuple[Comparison, ...]
    spent: Spent
    work: Work
    values: Mapping[str, Any]
    hardware: tuple[HardwareCost, HardwareCost, HardwareCost] | None = None

    @property
    def flops(self) -> Allocation:
        """Best estimate by phase."""
        return self.ranges.point

    @property
    def regime(self) -> Regime:
        """Where the best estimate's split lies. A split is not an optimum: it says what was bought, not what pays."""
        return regime_of(self.flops.rho, self.flops.sigma, self.flops.phi)

    @property
    def regimes(self) -> tuple[Regime, ...]:
        """Every regime that the assumptions allow, the best estimate's first."""
        found = [regime_of(a.rho, a.sigma, a.phi) for a in self.ranges.corners]
        return tuple(dict.fromkeys([self.regime, *found]))

    @property
    def tokens(self) -> dict[str, float]:
        """Samples and tokens of the run under the best estimate."""
        w = self.work
        return {
            "samples": float(w.generated.sum()),
            "prompt": float((w.generated * w.prompt).sum()),
            "completion": float((w.generated * w.completion).sum()),
            "trained": float((w.trained * (w.prompt + w.completion)).sum()),
            "mean_prompt": _average(w.prompt, w.generated),
            "mean_completion": _average(w.completion, w.generated),
        }

    @property
    def parts(self) -> dict[str, float]:
        """FLOPs of each pass under the best estimate, repeated steps included."""
        times = 1 + self.spent.redone
        names = ("prefill", "decode", "update", "old_logprobs", "reference", "reward")
        return {name: float(getattr(self.spent, name).sum()) * times for name in names}

    def curve(self, points: int = MAX_POINTS) -> list[dict[str, float | int | None]]:
        """Cumulative FLOPs by phase, with reward and lengths, at no more than ``points`` rows."""
        n = len(self.log.steps)
        at = np.unique(np.linspace(0, n - 1, min(points, n)).round().astype(int))
        phases = {p: np.cumsum(getattr(self.spent, p)) for p in ("search", "learning", "reward")}
        reward = self.log.series.get("reward")
        return [
            {
                "step": int(self.log.steps[i]),
                **{p: float(values[i]) for p, values in phases.items()},
                "total": float(sum(values[i] for values in phases.values())),
                "rho": _share(self.spent.learning[i], self.spent.total[i]),
                "completion_tokens": float(self.work.completion[i]),
                "value": None if reward is None or not np.isfinite(reward[i]) else float(reward[i]),
            }
            for i in at
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the schema is ``race.card/1``."""
        log, r = self.log, self.ranges
        return {
            "schema": SCHEMA,
            "source": {
                "file": log.file, "sha256": log.sha256, "container": log.container, "trainer": log.trainer,
                "releases": log.releases, "run": log.run, "config": sorted({k.source for k in log.config.values()}),
            },
            "model": self.model,
            "params": self.architecture.params(),
            "steps": log.total_steps,
            "convention": {"attention": self.attention, "counted": "matrix multiplications, 2*m*n*k each"},
            "flops": {**r.point.to_dict(), "range": _spans({**r.phases, "total": r.total})},
            "shares": {**r.point.shares, "range": _spans(r.shares)},
            "rho": r.point.rho,
            "regime": {"label": self.regime, "possible": list(self.regimes)},
            "passes": self.parts,
            "executed": None if self.executed is None else {
                **self.executed.point.to_dict(), "range": self.executed.total.to_dict(), "attention": "full",
            },
            "tokens": self.tokens,
            "waste": [
                {"name": w.name, "what": w.label, "share": w.share, "of": w.of, "flops": w.flops, "how": w.how}
                for w in self.waste
            ],
            "assumptions": self._assumptions(),
            "settled": {a.name: {"value": _settled(a), "source": a.source} for a in self.assumptions if a.settled},
            "trainer_figures": [c.to_dict() for c in self.comparisons],
            "curve": self.curve(),
            "hardware": None if self.hardware is None else hardware_dict(self.hardware),
            "notes": list(log.notes),
            "unknown_keys": list(log.unknown_keys),
        }  # fmt: skip

    def _assumptions(self) -> list[dict[str, Any]]:
        total = float(self.ranges.point.total)
        moves = [*self.ranges.moves, *(self.executed.moves if self.executed else ())]
        own = {a.name for a in self.assumptions}
        return [
            {
                "name": m.assumption.name, "what": m.assumption.label, "used": m.assumption.shown,
                "range": m.assumption.range_shown, "why": m.assumption.source,
                "total": {"lo": m.lo, "hi": m.hi}, "moves": {"lo": m.lo / total - 1, "hi": m.hi / total - 1},
            }
            for m in moves
            if m.assumption.name in own
        ]  # fmt: skip


def _spans(ranges: Mapping[str, Range]) -> dict[str, dict[str, float]]:
    return {name: value.to_dict() for name, value in ranges.items()}


def _settled(a: Assumption) -> str:
    return "as logged" if a.value is None and a.source.startswith("log") else a.shown


def _average(values: FloatArray, weights: FloatArray) -> float:
    """Weighted mean, without the last digits that summing in floats leaves."""
    return round(float(np.average(values, weights=np.maximum(weights, 1e-12))), 9)


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole > 0 else None


def architecture_of(log: RunLog, model: str | Architecture | None) -> tuple[str, Architecture]:
    """The policy: as named, else from the files beside the log.

    Raises
    ------
    InvalidInput
        Nothing says which model it was: FLOPs scale with it, so it is not guessed.
    """
    if isinstance(model, Architecture):
        return model.name, model
    if model is not None:
        return model, Architecture.from_config(model)
    beside, named = log.config.get("architecture"), log.config.get("model")
    if beside is not None:
        arch = Architecture.from_config(beside.value)
        return (str(named.value) if named is not None else _folder_name(arch, beside.value)), arch
    if named is not None:
        try:
            return str(named.value), Architecture.from_config(str(named.value))
        except (InvalidInput, CannotDo) as error:
            raise type(error)(f"{named.source}: {error}; or say which model it is (model)") from None
    raise InvalidInput(
        f"model: missing; {log.file} does not say which model was trained, and no config.json is beside it; allowed "
        "is a built-in name, a hub id, or the path of a config.json (--model)"
    )


def _folder_name(arch: Architecture, config: Any) -> str:
    """Name of a model that only its folder names: ``checkpoint-40`` is every run's, so the run's folder."""
    if isinstance(config, str) and re.fullmatch(r"checkpoint-\d+", arch.name):
        return Path(config).resolve().parent.parent.name or arch.name
    return arch.name


def card_of(
    log: RunLog,
    model: str | Architecture | None = None,
    *,
    given: Mapping[str, Any] | None = None,
    defaults: Mapping[str, str] | None = None,
    attention: Attention = "causal",
    cost: CostFunction | None = None,
) -> Card:
    """Price a run.

    Parameters
    ----------
    log
        The run.
    model
        The policy; by default what the files beside the log say.
    given
        What the user knows, in the words of `race.recipe.Recipe`; wins over log and config.
    defaults
        Why the trainer does things when nothing says otherwise (from its key table).
    attention
        ``causal`` (budgets) or ``full`` (what eager attention executes).
    cost
        Turns an allocation into GPU-hours, dollars and kWh.

    Raises
    ------
    InvalidInput
        The model is unknown, or what is given contradicts the log.
    """
    said = dict(given or {})
    _check_given(said)
    name, policy = architecture_of(log, model)
    evidence = Evidence(log, said, policy, _scorer(said), defaults)
    assumptions = settle(evidence)
    padded_too = settle_executed(evidence)

    def price(values: Mapping[str, Any]) -> Allocation:
        return spent(log, policy, values, attention=attention).allocation

    total = price(values_of(assumptions)).total
    if not 0 < total < math.inf:
        raise InvalidInput(
            f"{log.file}: {total:g} FLOPs come out of this; allowed is a run with samples and steps"
        )
    ranges = ranges_of(assumptions, price)
    values = values_of([*assumptions, *padded_too])
    needed = spent(log, policy, values, attention=attention)
    padded: Ranges | None = None
    like: Spent | None = None
    if padded_too:
        everything = [*(a for a in assumptions if a.name != "spread"), *padded_too]
        padded = ranges_of(everything, lambda v: executed(log, policy, v, attention="full").allocation)
        like = executed(log, policy, values, attention=attention)
    work = work_of(log, values)
    return Card(
        log=log,
        model=name,
        architecture=policy,
        attention=attention,
        assumptions=tuple(assumptions),
        ranges=ranges,
        executed=padded,
        waste=tuple(waste_of(log, policy, values, needed, like)),
        comparisons=tuple(comparisons_of(log, policy, values, work, needed, _peak(cost))),
        spent=needed,
        work=work,
        values=values,
        hardware=_hardware(ranges, cost),
    )


def _check_given(given: Mapping[str, Any]) -> None:
    """Refuse numbers that no run has: a card clips impossible values of a log's rows, and would clip these as well."""
    for word in ("prompts_per_step", "group_size"):
        if word in given:
            check_whole(word, given[word], low=1, high=MAX_COUNT)
    for word, low, high in (
        ("prompt_tokens", 1.0, 1e7),
        ("completion_tokens", 1.0, 1e7),
        ("update_ratio", MIN_UPDATE_RATIO, MAX_UPDATE_RATIO),
    ):
        if word in given:
            value = given[word]
            check_real(word, float(value) if isinstance(value, Fraction) else value, low=low, high=high)


def _scorer(given: Mapping[str, Any]) -> Architecture | None:
    """The reward model that the user names, or that the named reward system runs."""
    from race.rewards import reward_system

    named = given.get("reward_model")
    reward = given.get("reward")
    system = reward_system(reward) if reward is not None else None
    if named is None and system is not None:
        named = system.default_model
    elif named is not None and system is not None and not system.learned:
        raise InvalidInput(
            f"reward_model: found {named!r} with reward {reward!r}; rule-based rewards run no model, so drop one"
        )
    return None if named is None else Architecture.from_config(named)


def _peak(cost: CostFunction | None) -> tuple[float, int] | None:
    """Peak FLOP/s of one GPU and their number, if a GPU was named."""
    zero = cost(Allocation(0, 0, 0)) if cost is not None else None
    return None if zero is None else (zero.gpu.peak_flops, zero.count)


def _hardware(
    ranges: Ranges, cost: CostFunction | None
) -> tuple[HardwareCost, HardwareCost, HardwareCost] | None:
    if cost is None:
        return None
    ordered = sorted(ranges.corners, key=lambda a: float(a.total))
    found = [cost(a) for a in (ordered[0], ranges.point, ordered[-1])]
    low, point, high = found
    return None if low is None or point is None or high is None else (low, point, high)


def across(costs: Sequence[HardwareCost], what: str) -> Range | None:
    """A quantity of `HardwareCost` from the low end of the cheap run to the high end of the dear one."""
    low, point, high = (getattr(c, what) for c in costs)
    if low is None or point is None or high is None:
        return None
    return Range(min(low.lo, point.lo), point.point, max(high.hi, point.hi))


def hardware_dict(costs: Sequence[HardwareCost]) -> dict[str, Any]:
    """Plain JSON types, ranges over FLOPs, utilisation and prices together."""
    point = costs[1].to_dict()
    wide = {"gpu_hours": "total_gpu_hours", "wall_hours": "wall_hours", "dollars": "dollars", "kwh": "kwh"}
    found = {key: across(costs, what) for key, what in wide.items()}
    return {**point, **{key: None if value is None else value.to_dict() for key, value in found.items()}}


def seconds_of(log: RunLog) -> dict[str, float]:
    """Wall-clock seconds by phase, where the log has them for the steps it covers."""
    pairs = {
        "search": "seconds_search",
        "learning": "seconds_update",
        "reward": "seconds_reward",
        "step": "seconds_step",
    }
    found: dict[str, float] = {}
    for phase, name in pairs.items():
        if log.has(name):
            values: FloatArray = log.filled(name)
            found[phase] = float((values * log.covered).sum())
    return found
