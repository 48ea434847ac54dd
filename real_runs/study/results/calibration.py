"""The surrogate against settings that it was not shown: leave one setting out.

All seeds of one (model, reward, ρ, budget, rank) are left out together, at whatever rate, and each of their final
values is predicted with a 90 % interval for a single fresh run: in closed form with hyperparameters held
(`surrogate.left_out`), widened as the surrogate widens itself (`surrogate.calibration`). One thing is taken back: where
the fit doubts a left-out run it has given it a larger noise, which a prediction made beforehand could not know. It gets
the mean noise of all other runs instead.
`refitted` does the same by fitting again without the setting, hyperparameters included: slower, and the check on this.

Every target is fitted by itself. A joint fit answers about as well, and thins every curve to its last point.

`anatomy` takes the error apart: standardised errors say whether intervals are too wide or narrow, their mean per group
whether the trend is off, and the spread of seeds beside the noise term whether the noise is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from race.ladders import Ladder
from race.records import PilotRecord
from real_runs.study.results.evidence import only, slice_key, usable
from real_runs.study.results.statistics import share_of
from surrogate import Surrogate
from surrogate.calibration import errors_left_out
from surrogate.kernels import noise_block
from surrogate.left_out import LeftOut, shares
from surrogate.link import latent_sd, to_latent, to_value
from surrogate.posterior import Posterior, standard_draws

FloatArray = npt.NDArray[np.float64]
LEVEL = 0.9
POINTS = 1200  # curve points per fit: three to four per curve of a whole study

Setting = tuple[str, str, float, int, int]


def setting_of(record: PilotRecord) -> Setting:
    """(reward, model, ρ, budget, rank): what is left out together."""
    key = slice_key(record)
    return (key.reward, key.model, record.spec.rho, key.budget, key.rank)


@dataclass(frozen=True)
class Forecast:
    """One left-out run: predicted and measured. ``z`` is the standardised latent error, ``noise`` the part of the
    predicted latent variance that a fresh run of a known setting would have; ``widened`` the surrogate's own factor on
    its standard deviations."""

    record: str
    setting: Setting
    target: str
    measured: float
    mean: float
    lo: float
    hi: float
    z: float
    noise: float
    widened: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measurement."""
        return self.lo <= self.measured <= self.hi

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        reward, model, rho, budget, rank = self.setting
        about = {"reward": reward, "model": model, "rho": rho, "budget": budget, "rank": rank}
        found = {name: getattr(self, name) for name in vars(self) if name != "setting"}
        return {**about, **found, "covered": self.covered}


def leave_one_setting_out(
    records: Iterable[PilotRecord], rungs: Ladder, target: str, *, level: float = LEVEL, points: int = POINTS
) -> list[Forecast]:
    """Forecast the end of every healthy run from all other settings; in closed form, for one target."""
    fitted, by_id = _fit(records, rungs, target, points)
    return [] if fitted is None else _left_out(fitted, by_id, target, level)


def means_left_out(fitted: Surrogate) -> dict[str, Any]:
    """How often the mean over the seeds of a setting lies inside its own 90 % interval, from all other settings.

    Less noise than in a single run: this is where an expected value that is wrong would show.
    """
    posterior = _posterior(fitted)
    squares = errors_left_out(posterior.components, posterior.weights, fitted.state.data) / posterior.spread**2
    inside = squares <= NormalDist().inv_cdf(0.5 + LEVEL / 2) ** 2
    return {"means_covered": share_of(int(inside.sum()), len(inside)) if len(inside) else None}


def _left_out(fitted: Surrogate, by_id: Mapping[str, PilotRecord], target: str, level: float) -> list[Forecast]:
    posterior = _posterior(fitted)
    views = [LeftOut(c) for c in posterior.components]
    groups: dict[Setting, list[int]] = {}
    for number, run in enumerate(fitted.runs):
        groups.setdefault(setting_of(by_id[run.record]), []).append(number)
    if len(groups) < 2:
        return []
    data, found = fitted.state.data, []
    for setting, runs in groups.items():
        blocks = [data.blocks[number] for number in runs]
        told = [view.predict(np.concatenate([np.arange(b.start, b.stop) for b in blocks])) for view in views]
        share = shares(told, posterior.components, posterior.weights)
        end, odd = -1, float(np.delete(fitted.state.inflation, runs).mean())
        for number, block in zip(runs, blocks, strict=True):
            end += block.stop - block.start
            means, variances, noise = [], [], 0.0
            for answer, component, weight in zip(told, posterior.components, share, strict=True):
                stated = float(component.noise_blocks[number][-1, -1])
                plain = odd * float(noise_block(data, block, component.hyper, fitted.state.variance)[-1, -1])
                means.append(answer.means[:, end])
                variances.append(max(float(answer.variances[end]) - stated + plain, 1e-12))
                noise += weight * plain * posterior.spread**2
            weights = [s * answer.weights for s, answer in zip(share, told, strict=True)]
            record = by_id[fitted.runs[number].record]
            latents = _draws(means, variances, weights, posterior.spread)
            found.append(_forecast(latents, noise, posterior.spread, record, setting, target, level))
    return found


def _draws(
    means: Sequence[FloatArray], variances: Sequence[float], weights: Sequence[FloatArray], spread: float
) -> FloatArray:
    """Stratified draws of one left-out measurement on the latent scale; one entry per component, arrays over worlds."""
    levels, order = standard_draws()
    mean, weight = np.concatenate(list(means)), np.concatenate(list(weights))
    sd = np.concatenate([np.full(len(m), np.sqrt(v)) for m, v in zip(means, variances, strict=True)])
    edges = np.cumsum(weight)
    pick = np.minimum(np.searchsorted(edges, order * edges[-1], side="right"), len(edges) - 1)
    centre = float(weight @ mean / edges[-1])
    return np.asarray(centre + spread * (mean[pick] + levels * sd[pick] - centre))


def refitted(
    records: Sequence[PilotRecord],
    rungs: Ladder,
    target: str,
    settings: Sequence[Setting],
    *,
    level: float = LEVEL,
    points: int = POINTS,
    told: Callable[[str], None] = lambda _: None,
) -> list[Forecast]:
    """As `leave_one_setting_out` for some settings, by fitting again without each: means and intervals only."""
    from race.simulator import Settings

    found = []
    for setting in settings:
        told(f"refit without {setting}, {target}")
        out = [r for r in records if setting_of(r) == setting and usable(r, [target]) and r.health.status == "ok"]
        fitted, _ = _fit([r for r in records if setting_of(r) != setting], rungs, target, points)
        if fitted is None:
            continue
        posterior = _posterior(fitted)
        white = float(np.dot(posterior.weights, [c.hyper.white**2 for c in posterior.components]))
        for record in out:
            at = Settings.build([(rungs[record.spec.model], record.spec.recipe, int(record.flops.total))])
            mean, variance = posterior.moments(fitted.points(at, target))
            evaluation = float(latent_sd(to_value(mean), np.array([record.curves[target].se[-1]]))[0]) ** 2
            # `run_variance` and `moments` are widened already.
            noise = fitted.run_variance + posterior.spread**2 * fitted.state.oddness * (white + evaluation)
            latents = _draws([mean], [float(variance[0, 0]) + noise], [np.ones(1)], 1.0)
            found.append(_forecast(latents, noise, posterior.spread, record, setting, target, level))
    return found


def _fit(
    records: Iterable[PilotRecord], rungs: Ladder, target: str, points: int
) -> tuple[Surrogate | None, dict[str, PilotRecord]]:
    shown = [only(r, [target]) for r in records if usable(r, [target])]
    if not shown:
        return None, {}
    recipe = rungs.recipe(shown[0].spec.reward)
    fitted = Surrogate.fit(shown, ladder=rungs, recipe=recipe, targets=(target,), points=points)
    return (fitted if fitted.runs else None), {r.id: r for r in shown}


def _posterior(fitted: Surrogate) -> Posterior:
    assert isinstance(fitted.state.posterior, Posterior)
    return fitted.state.posterior


def _forecast(
    latents: FloatArray,
    noise: float,
    widened: float,
    record: PilotRecord,
    setting: Setting,
    target: str,
    level: float,
) -> Forecast:
    values = to_value(latents)
    lo, hi = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    measured = record.curves[target].value[-1]
    z = (float(to_latent(measured)) - float(latents.mean())) / float(latents.std())
    stated = float(values.mean()), float(lo), float(hi)
    return Forecast(record.id, setting, target, measured, *stated, z, noise, widened)


def summary(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """Coverage with its Wilson interval over runs, error, and standardised errors."""
    n = len(forecasts)
    if not n:
        return {"runs": 0}
    errors = np.array([f.measured - f.mean for f in forecasts])
    z = np.array([f.z for f in forecasts])
    return {
        "runs": n,
        "settings": len({f.setting for f in forecasts}),
        "coverage": share_of(sum(f.covered for f in forecasts), n),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "bias": float(errors.mean()),
        "spread": float(np.std([f.measured for f in forecasts])),
        "width": float(np.mean([f.hi - f.lo for f in forecasts])),
        "z_mean": float(z.mean()),
        "z_sd": float(z.std()),
        "noise_sd": float(np.sqrt(np.mean([f.noise for f in forecasts]))),
        "seed_sd": _seed_sd(forecasts),
        "widened": float(np.mean([f.widened for f in forecasts])),
    }


def _seed_sd(forecasts: Sequence[Forecast]) -> float | None:
    """Latent standard deviation between measured runs of one setting."""
    groups: dict[Setting, list[float]] = {}
    for f in forecasts:
        groups.setdefault(f.setting, []).append(float(to_latent(f.measured)))
    spread = [(float(np.var(g, ddof=1)), len(g) - 1) for g in groups.values() if len(g) > 1]
    free = sum(n for _, n in spread)
    return float(np.sqrt(sum(v * n for v, n in spread) / free)) if free else None


AXES = ("reward", "model", "rho", "budget", "rank")


def anatomy(forecasts: Sequence[Forecast]) -> list[dict[str, Any]]:
    """`summary` along every axis of a setting, and the settings that are furthest off."""
    rows = []
    for place, axis in enumerate(AXES):
        for value in sorted({f.setting[place] for f in forecasts}, key=lambda v: (str(type(v)), v)):
            rows.append({"axis": axis, "value": value, **summary([f for f in forecasts if f.setting[place] == value])})
    return rows


def furthest(forecasts: Sequence[Forecast], count: int = 8) -> list[dict[str, Any]]:
    """Settings whose mean standardised error is largest."""
    groups: dict[Setting, list[Forecast]] = {}
    for f in forecasts:
        groups.setdefault(f.setting, []).append(f)
    ranked = sorted(groups.items(), key=lambda item: -abs(float(np.mean([f.z for f in item[1]]))))
    return [
        {
            **dict(zip(AXES, setting, strict=True)),
            "z": float(np.mean([f.z for f in found])),
            "measured": float(np.mean([f.measured for f in found])),
            "predicted": float(np.mean([f.mean for f in found])),
        }
        for setting, found in ranked[:count]
    ]


def calibration(
    variants: Mapping[str, Sequence[PilotRecord]],
    rungs: Ladder,
    targets: Sequence[str],
    *,
    refits: int = 0,
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Every target under the first way of stating the records, which is taken apart; the last target under the others
    too, and for ``refits`` settings by fitting again."""
    rows: list[dict[str, Any]] = []
    out: dict[str, Any] = {"level": LEVEL, "rows": rows, "anatomy": {}, "furthest": {}, "forecasts": []}
    for place, (variant, records) in enumerate(variants.items()):
        for target in targets if place == 0 else targets[-1:]:
            told(f"leave one setting out, {target}, {variant}")
            fitted, by_id = _fit(records, rungs, target, POINTS)
            found = [] if fitted is None else _left_out(fitted, by_id, target, LEVEL)
            about = {"variant": variant, "target": target}
            means = {} if fitted is None else means_left_out(fitted)
            rows.append({**about, "left_out": "closed form", **summary(found), **means})
            if place or not found:
                continue
            out["anatomy"][target], out["furthest"][target] = anatomy(found), furthest(found)
            out["forecasts"] += [f.to_dict() for f in found]
            settings = sorted({f.setting for f in found})
            picked = settings[:: max(len(settings) // refits, 1)][:refits] if refits else []
            if picked and target == targets[-1]:
                again = refitted(records, rungs, target, picked, told=told)
                same = [f for f in found if f.setting in set(picked)]
                rows.append({**about, "left_out": "closed form, some", **summary(same)})
                rows.append({**about, "left_out": "the same, refitted", **summary(again)})
    out["not_scored"] = sum(r.health.status != "ok" for r in next(iter(variants.values()), ()))
    return out
