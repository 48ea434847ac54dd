"""One IsoFLOP slice with all its targets, and bootstrap draws that keep a run's targets together.

With three seeds per arm, resampling an arm's own seeds would understate the spread, so residuals are pooled over the
arms of a slice and widened by sqrt(n / (n - 1)). A residual is a whole run's, one number per target, so that what a
lucky seed does to native and to pass@1 at once stays together in differences between targets. A slice with one seed
per arm borrows the residuals of slices that differ from it in LoRA rank or budget alone, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from race.allocation import Regime, regime_of, unit_costs
from race.ladders import Ladder
from race.records import PilotRecord
from real_runs.study.frontier import Interval, SliceKey, optimum
from real_runs.study.results.evidence import final, slice_key, usable
from real_runs.study.results.statistics import flat_p

FloatArray = npt.NDArray[np.float64]
DRAWS = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Response:
    """Final values over one slice.

    Attributes
    ----------
    rhos
        Planned update fractions, ascending, shape (A,).
    values
        Per arm, shape (seeds, T): final value of each run for each target.
    runs
        The records behind them.
    borrowed
        Residuals of other slices, shape (n, T), used where this slice has none.
    """

    key: SliceKey
    targets: tuple[str, ...]
    rhos: FloatArray
    values: tuple[FloatArray, ...]
    runs: tuple[tuple[PilotRecord, ...], ...]
    borrowed: FloatArray | None = None

    @property
    def means(self) -> FloatArray:
        """Means over seeds, shape (A, T)."""
        return np.stack([found.mean(axis=0) for found in self.values])

    @property
    def residuals(self) -> FloatArray:
        """Widened residuals of all arms with two seeds or more, shape (n, T)."""
        found = [
            (v - v.mean(axis=0)) * np.sqrt(len(v) / (len(v) - 1)) for v in self.values if len(v) > 1
        ]
        return np.concatenate(found) if found else np.empty((0, len(self.targets)))

    @property
    def pool(self) -> FloatArray | None:
        """What the bootstrap draws from: own residuals, else borrowed ones, else nothing."""
        own = self.residuals
        return own if len(own) else self.borrowed

    @property
    def run_sd(self) -> FloatArray | None:
        """Standard deviation between runs of one setting, pooled over arms, shape (T,)."""
        own = self.residuals
        return np.sqrt((own**2).mean(axis=0)) if len(own) else None

    def column(self, target: str) -> int:
        """Index of a target."""
        return self.targets.index(target)

    def arms(self, target: str) -> list[FloatArray]:
        """Final values of one target per arm."""
        return [v[:, self.column(target)] for v in self.values]

    def draws(self, n: int = DRAWS, seed: int = 0) -> FloatArray | None:
        """Bootstrap draws of the arms' means, shape (n, A, T); ``None`` without residuals."""
        pool = self.pool
        if pool is None or not len(pool):
            return None
        rng = np.random.default_rng(seed)
        return np.stack(
            [v.mean(axis=0) + pool[rng.integers(len(pool), size=(n, len(v)))].mean(axis=1) for v in self.values],
            axis=1,
        )

    def best(self, target: str) -> int:
        """Index of the arm with the greatest mean."""
        return int(self.means[:, self.column(target)].argmax())

    def rho_star(self, target: str) -> float:
        """The optimum ρ*."""
        return float(optimum(self.rhos, self.means[None, :, self.column(target)])[0])


def responses(records: Iterable[PilotRecord], targets: Sequence[str]) -> dict[SliceKey, Response]:
    """One response per slice, from runs that have an outcome for all ``targets``; sorted by key."""
    found: dict[SliceKey, dict[float, list[PilotRecord]]] = {}
    for record in sorted(records, key=lambda r: r.id):
        if usable(record, targets):
            found.setdefault(slice_key(record), {}).setdefault(record.spec.rho, []).append(record)
    out = {}
    for key, arms in sorted(found.items()):
        rhos = sorted(arms)
        values = tuple(np.array([[final(r, t) for t in targets] for r in arms[rho]]) for rho in rhos)
        out[key] = Response(key, tuple(targets), np.array(rhos), values, tuple(tuple(arms[rho]) for rho in rhos))
    return {key: response if len(response.residuals) else _borrowing(response, out) for key, response in out.items()}


def _borrowing(response: Response, others: dict[SliceKey, Response]) -> Response:
    key = response.key
    near = [r for k, r in others.items() if (k.reward, k.model) == (key.reward, key.model) and len(r.residuals)]
    near.sort(key=lambda r: r.key.budget != key.budget)
    if not near:
        return response
    same = [r.residuals for r in near if (r.key.budget == key.budget) == (near[0].key.budget == key.budget)]
    return replace(response, borrowed=np.concatenate(same))


@dataclass(frozen=True)
class Peak:
    """Where one target of one slice peaks, and how sure that is.

    Attributes
    ----------
    rho
        ρ* with its interval; without residuals the interval is ``None``.
    best_rho, best_value
        The best arm and its mean.
    p_best
        Bootstrap probability of each arm being the best, in the order of the arms.
    p_flat
        p of the F test that all arms have one mean.
    within_noise
        True when the interval holds both ends of the grid: the slice does not say where its optimum is.
    """

    key: SliceKey
    target: str
    rho: float
    interval: Interval | None
    rhos: tuple[float, ...]
    best_rho: float
    best_value: float
    p_best: tuple[float, ...] | None
    p_flat: float | None
    within_noise: bool | None
    borrowed: bool
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        found = {name: getattr(self, name) for name in vars(self) if name not in ("key", "interval")}
        ends = None if self.interval is None else [self.interval.lo, self.interval.hi]
        return {**vars(self.key), **found, "lo_hi": ends}


def peak(response: Response, target: str, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> Peak:
    """Read one target's optimum off a slice."""
    at = response.rho_star(target)
    drawn = response.draws(draws, seed)
    interval, p_best, within = None, None, None
    if drawn is not None and len(response.rhos) > 1:
        one = drawn[:, :, response.column(target)]
        interval = Interval.of(at, optimum(response.rhos, one), level)
        p_best = tuple((np.bincount(one.argmax(axis=1), minlength=one.shape[1]) / len(one)).tolist())
        within = interval.lo <= response.rhos[0] + 1e-9 and interval.hi >= response.rhos[-1] - 1e-9
    best = response.best(target)
    return Peak(
        response.key, target, at, interval, tuple(response.rhos.tolist()), float(response.rhos[best]),
        float(response.means[best, response.column(target)]), p_best, flat_p(response.arms(target)), within,
        response.borrowed is not None, sum(len(v) for v in response.values),
    )  # fmt: skip


def difference_draws(
    first: Response, second: Response, target: str, *, draws: int = DRAWS, seed: int = 0
) -> FloatArray | None:
    """Bootstrap draws of ρ*(first) - ρ*(second), whose runs are independent; ``None`` without residuals."""
    a, b = first.draws(draws, 2 * seed), second.draws(draws, 2 * seed + 1)
    if a is None or b is None:
        return None
    found: FloatArray = optimum(first.rhos, a[:, :, first.column(target)]) - optimum(
        second.rhos, b[:, :, second.column(target)]
    )
    return found


def difference(
    first: Response, second: Response, target: str, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0
) -> Interval | None:
    """ρ* of ``first`` minus ρ* of ``second``, whose runs are independent; ``None`` without residuals."""
    gaps = difference_draws(first, second, target, draws=draws, seed=seed)
    if gaps is None:
        return None
    return Interval.of(first.rho_star(target) - second.rho_star(target), gaps, level)


def regimes(rungs: Ladder, key: SliceKey, recipe_of: PilotRecord, rhos: npt.ArrayLike) -> list[Regime]:
    """Regime of each update fraction on a slice; ``recipe_of`` is any of its runs."""
    costs = unit_costs(rungs[key.model].architecture, recipe_of.spec.recipe.with_update_ratio(1.0))
    at = np.atleast_1d(np.asarray(rhos, dtype=np.float64))
    sigma, rho, phi = costs.shares(costs.update_ratio(np.clip(at, *costs.rho_range)))
    return [regime_of(float(r), float(s), float(f)) for s, r, f in zip(sigma, rho, phi, strict=True)]
