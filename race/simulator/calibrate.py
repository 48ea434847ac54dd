"""Calibrate the simulator on published numbers: ``python -m race.simulator.calibrate``.

Method: ensemble smoother with multiple data assimilation (Emerick and Reynolds 2013, Computers & Geosciences 55).
A large ensemble drawn from the prior is moved in a few Kalman-like steps, each of which sees the data with its
error inflated so that the steps together count every number once. Early steps are inflated most. Then each member's
nuisances (what published set-ups do not share) are refitted to its world, since a take-off is no straight line.

Why this and not least squares + Laplace: an optimum rho* is a kinked function of the parameters (reuse costs an
extra forward from a = 1 on), so its derivatives say little; most of the fifty-odd parameters are hardly constrained
and must keep their prior spread, also where the response is far from linear; and the result wanted is an ensemble
anyway, since a draw is a world. Why not ABC: eighty numbers reject everything. What it costs: the update is linear in
the ensemble's own covariances, so a sharply curved posterior is approximated.

The result is ``posterior.json`` beside this file: the ensemble on the unconstrained scale, rounded, as plain numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from race.simulator.ensemble import SCHEMA, Worlds, before_calibration, posterior
from race.simulator.parameters import NAMES, PARAMETERS
from race.simulator.sources import Family, families

FloatArray = npt.NDArray[np.float64]

MEMBERS = 2000
ROUNDS = 12
SHIPPED = 512


@dataclass(frozen=True, eq=False)
class Calibration:
    """An ensemble after calibration.

    Attributes
    ----------
    z
        World parameters on the unconstrained scale, shape (members, len(NAMES)).
    nuisance
        Each of shape (members,).
    """

    z: FloatArray
    nuisance: dict[str, FloatArray]

    @property
    def worlds(self) -> Worlds:
        """The ensemble as worlds."""
        return Worlds.from_unconstrained(self.z)


def calibrate(
    used: Sequence[Family],
    *,
    members: int = MEMBERS,
    rounds: int = ROUNDS,
    seed: int = 0,
    every: Sequence[Family] | None = None,
) -> Calibration:
    """Fit the ensemble to the families ``used``.

    Parameters
    ----------
    every
        Families whose nuisances to carry along (default: the used ones), so that a family left out can be
        predicted afterwards with nuisances from their prior.
    """
    rng = np.random.default_rng(seed)
    priors: dict[str, tuple[float, float]] = {}
    for family in every if every is not None else used:
        priors |= family.nuisances
    center, sd = before_calibration()
    mean = np.concatenate([center, [m for m, _ in priors.values()]])
    spread = np.concatenate([sd, [s for _, s in priors.values()]])
    z = mean + spread * _balanced(rng, members, mean.size)
    start = z
    observed = np.concatenate([f.observed for f in used]) if used else np.empty(0)
    error = np.concatenate([f.sd for f in used]) if used else np.empty(0)
    # Small steps first: far from the data the ensemble's linear picture of them is at its worst.
    share = 1.5 ** np.arange(rounds)
    for inflation in share.sum() / share if used else ():
        predicted = predict(_split(z, priors), used) / error
        noise = np.sqrt(inflation) * _balanced(rng, members, error.size)
        innovation = observed / error + noise - predicted
        dz, dy = z - z.mean(axis=0), predicted - predicted.mean(axis=0)
        cross, own = dz.T @ dy / (members - 1), dy.T @ dy / (members - 1)
        cross[~_related(cross, dz, dy)] = 0
        gain = np.linalg.solve(own + inflation * np.eye(error.size), cross.T)
        z = z + innovation @ gain
    return _refined(_split(z, priors), _split(start, priors), used, rng)


def predict(calibration: Calibration, used: Sequence[Family]) -> FloatArray:
    """Predictions of all numbers of ``used``, shape (members, numbers)."""
    worlds = calibration.worlds
    return np.concatenate([f.predict(worlds, calibration.nuisance) for f in used], axis=1)


def _refined(
    calibration: Calibration, start: Calibration, used: Sequence[Family], rng: np.random.Generator
) -> Calibration:
    """Refit each member's nuisances to its world: damped Gauss-Newton, all members at once.

    Each member minimises the misfit to its own perturbed numbers plus the distance to its own prior draw (randomised
    maximum likelihood, Oliver et al. 1996), so the refined nuisances are spread as a posterior is.
    """
    nuisance = dict(calibration.nuisance)
    groups: dict[tuple[str, ...], list[Family]] = {}
    for family in used:
        groups.setdefault(tuple(family.nuisances), []).append(family)
    for names, group in groups.items():
        # The optimum rho* has kinks, which a derivative does not see; its nuisances are hardly constrained anyway.
        if not names or any(f.name == "paper" for f in group):
            continue
        sd = np.array([group[0].nuisances[name][1] for name in names])
        error = np.concatenate([f.sd for f in group])
        target = np.concatenate([f.observed for f in group]) / error
        target = target + _balanced(rng, len(calibration.z), error.size)
        center = np.stack([start.nuisance[name] for name in names], axis=1) / sd
        x = np.stack([nuisance[name] for name in names], axis=1) / sd

        x = _minimise(partial(_misfit, calibration.worlds, group, names, sd, target, center), x)
        nuisance |= dict(zip(names, (x * sd).T, strict=True))
    return Calibration(calibration.z, nuisance)


def _misfit(
    worlds: Worlds,
    group: Sequence[Family],
    names: Sequence[str],
    sd: FloatArray,
    target: FloatArray,
    center: FloatArray,
    x: FloatArray,
) -> FloatArray:
    """Residuals of all members in units of their errors: numbers first, then nuisances ``x`` (members, k)."""
    nuisance = dict(zip(names, (x * sd).T, strict=True))
    predicted = np.concatenate([f.predict(worlds, nuisance) / f.sd for f in group], axis=1)
    return np.concatenate([predicted - target, x - center], axis=1)


def _minimise(
    misfit: Callable[[FloatArray], FloatArray], x: FloatArray, *, iterations: int = 6
) -> FloatArray:
    """Levenberg-Marquardt for many small problems at once: ``x`` (members, k) -> residuals (members, m)."""
    members, k = x.shape
    damping = np.full(members, 0.1)
    now = misfit(x)
    for _ in range(iterations):
        slope = np.stack([(misfit(x + 0.02 * unit) - now) / 0.02 for unit in np.eye(k)], axis=2)
        normal = np.einsum("nmi,nmj->nij", slope, slope)
        pull = np.einsum("nmi,nm->ni", slope, now)
        step = np.linalg.solve(normal + damping[:, None, None] * np.eye(k), -pull[..., None])[..., 0]
        trial = x + np.clip(step, -1, 1)
        then = misfit(trial)
        better = (then**2).sum(axis=1) < (now**2).sum(axis=1)
        x, now = np.where(better[:, None], trial, x), np.where(better[:, None], then, now)
        damping = np.where(better, damping / 4, damping * 8)
    return x


def _split(z: FloatArray, priors: dict[str, tuple[float, float]]) -> Calibration:
    k = len(NAMES)
    return Calibration(z[:, :k], {name: z[:, k + i] for i, name in enumerate(priors)})


def _related(cross: FloatArray, dz: FloatArray, dy: FloatArray) -> npt.NDArray[np.bool_]:
    """Parameters whose correlation with some number is beyond what chance gives; the others must not move."""
    correlation = cross / np.outer(dz.std(axis=0), np.maximum(dy.std(axis=0), 1e-12))
    out: npt.NDArray[np.bool_] = np.abs(correlation).max(axis=1) > 4 / np.sqrt(len(dz))
    return out


def _balanced(rng: np.random.Generator, members: int, size: int) -> FloatArray:
    """Standard normal draws whose sample mean is 0 and variance 1, column by column."""
    draws = rng.standard_normal((members, size))
    out: FloatArray = (draws - draws.mean(axis=0)) / draws.std(axis=0)
    return out


def table(used: Sequence[Family], calibration: Calibration) -> str:
    """Each published number, what the calibrated ensemble gives (mean, 90 % interval), and the residual."""
    lines = [f"{'':62}{'published':>10}{'simulated':>11}{'90 % interval':>19}{'residual':>10}"]
    for family in used:
        predicted = family.predict(calibration.worlds, calibration.nuisance)
        mean = predicted.mean(axis=0)
        low, high = np.quantile(predicted, (0.05, 0.95), axis=0)
        residual = mean - family.observed
        lines.append(f"\n{family.name}: RMSE {np.sqrt(np.mean(residual**2)):.4f}   [{family.source}]")
        for row in zip(family.labels, family.observed, mean, low, high, residual, strict=True):
            lines.append("  {:<60}{:>10.3f}{:>11.3f}{:>10.3f} to {:.3f}{:>10.3f}".format(*row))
    return "\n".join(lines)


def cross_validate(every: Sequence[Family], *, members: int = MEMBERS, seed: int = 0) -> Iterator[str]:
    """Leave each family out in turn and predict it: how many of its numbers lie in the 90 % interval.

    The interval is for the published number, so it includes that number's own error. Yields lines of a table.
    """
    rng = np.random.default_rng(seed)
    yield f"{'family left out':18}{'numbers':>8}{'in 90 % interval':>18}{'RMS error / predicted sd':>26}"
    for family in every:
        used = [f for f in every if f.name != family.name]
        held = calibrate(used, members=members, seed=seed, every=every)
        predicted = family.predict(held.worlds, held.nuisance)
        predicted = predicted + family.sd * rng.standard_normal(predicted.shape)
        low, high = np.quantile(predicted, (0.05, 0.95), axis=0)
        inside = (family.observed >= low) & (family.observed <= high)
        z = (family.observed - predicted.mean(axis=0)) / predicted.std(axis=0)
        yield f"{family.name:18}{inside.size:>8}{inside.mean():>18.0%}{np.sqrt(np.mean(z**2)):>26.2f}"


def constrained(calibration: Calibration) -> str:
    """How far the numbers narrowed each parameter: posterior over prior standard deviation."""
    _, sd = before_calibration()
    lines = [f"{'parameter':18}{'median':>10}{'90 % interval':>22}{'sd ratio':>10}  basis of the prior"]
    low, median, high = np.quantile(calibration.worlds.values, (0.05, 0.5, 0.95), axis=0)
    for i, p in enumerate(PARAMETERS):
        ratio = calibration.z[:, i].std() / sd[i]
        note = p.basis if ratio < 0.9 else f"{p.basis} (not narrowed: assumption)"
        lines.append(f"{p.name:18}{median[i]:>10.3g}{low[i]:>11.3g} to {high[i]:<9.3g}{ratio:>8.2f}  {note}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Calibrate, print the tables, write the ensemble."""
    parser = argparse.ArgumentParser(
        prog="python -m race.simulator.calibrate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("posterior.json"))
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--show", action="store_true", help="print the tables of the shipped ensemble, fit nothing"
    )
    what.add_argument(
        "--cross-validate", action="store_true", help="leave each family out in turn, write nothing"
    )
    args = parser.parse_args(argv)
    every = families()
    if args.cross_validate:
        for line in cross_validate(every, members=args.members, seed=args.seed):
            print(line, flush=True)
        return
    calibration = shipped() if args.show else calibrate(every, members=args.members, seed=args.seed)
    print(table(every, calibration))
    print()
    print(constrained(calibration))
    if not args.show:
        write(calibration, args.output)


def write(calibration: Calibration, path: Path) -> None:
    """Write the first members of the ensemble as JSON, four digits each, one member a line."""
    nuisance = np.stack(list(calibration.nuisance.values()), axis=1)
    blocks = {"parameters": list(NAMES), "nuisances": list(calibration.nuisance)}
    tables = {"members": calibration.z[:SHIPPED], "nuisance_members": nuisance[:SHIPPED]}
    parts = [f' "schema": {json.dumps(SCHEMA)}']
    parts += [f' "{name}": {json.dumps(value)}' for name, value in blocks.items()]
    for name, values in tables.items():
        rows = [json.dumps([float(f"{v:.4g}") for v in row], separators=(",", ":")) for row in values]
        parts.append(f' "{name}": [\n  ' + ",\n  ".join(rows) + "\n ]")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def shipped() -> Calibration:
    """The calibration that the package carries."""
    data = posterior()
    nuisance = np.array(data["nuisance_members"])
    return Calibration(
        np.array(data["members"]), {n: nuisance[:, i] for i, n in enumerate(data["nuisances"])}
    )


if __name__ == "__main__":
    main()
