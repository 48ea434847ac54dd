"""Alien worlds: responses that the simulator's own dynamics cannot produce.

A planner that only does well where its own model is right is not to be trusted. Each family writes the final value
as  v = base(N) + lift(N) g  with another g in [0, 1]; costs act as everywhere, through the steps a budget buys.

    D   distinct samples generated, T S        U   samples trained on, a D        T   steps

    ridge         a power law in steps times a heavy-tailed, lopsided ridge in ln a (Lorentz-like, no Gaussian)
    twotime       a fast gain from updates and a slow one from distinct rollouts, less forgetting under reuse
    threshold     nothing, then everything: a logistic step in the scarcer of updates and rollouts, then a plateau
    flattop       piecewise linear in rho itself: a tent with a flat top, times a logarithm of the budget
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from race.rewards import REWARD_SYSTEMS
from race.simulator.pilot import Response
from race.simulator.settings import REWARDS, Settings

FloatArray = npt.NDArray[np.float64]
Numbers = Mapping[str, float]

FAMILIES: tuple[str, ...] = ("ridge", "twotime", "threshold", "flattop")
_LEARNED = np.array([REWARD_SYSTEMS[r].learned for r in REWARDS])


@dataclass(frozen=True)
class Alien:
    """One alien world: a family and its numbers (a flat table, so that it can be printed and compared)."""

    family: str
    numbers: Numbers

    @classmethod
    def draw(cls, family: str, number: int) -> Alien:
        """The ``number``-th world of a family."""
        rng = np.random.default_rng([zlib.crc32(family.encode()), number])
        numbers = {
            # ladder: base grows by `base_slope` logits per e-fold of size, lift shrinks or grows mildly
            "base": rng.normal(-0.8, 0.6),
            "base_slope": rng.normal(0.35, 0.25),
            "lift": rng.uniform(0.15, 0.6),
            "lift_slope": rng.normal(0.0, 0.15),
            # scale in samples at which things happen, in powers of ten; larger models need fewer
            "scale": rng.uniform(3.0, 4.6),
            "scale_slope": rng.normal(-0.3, 0.2),
            # balance of updates and rollouts: ln a at which they matter alike, lower for learned rewards
            "balance": rng.normal(0.0, 0.7),
            "balance_learned": rng.normal(-0.3, 0.5),
            "balance_judge": -abs(rng.normal(0.3, 0.3)),
            "balance_pass": rng.normal(0.2, 0.3),
            "shape": rng.uniform(0.0, 1.0),
            "skew": rng.uniform(-0.5, 0.5),
            "collapse": rng.uniform(0.0, 0.08),
            "seed_sd": float(np.exp(rng.normal(np.log(0.07), 0.3))),
        }  # fmt: skip
        return cls(family, {key: float(value) for key, value in numbers.items()})

    def expected(self, settings: Settings, target: str) -> FloatArray:
        """Final value in [0, 1], shape (n,)."""
        z = self.numbers
        x = np.clip(np.log(settings.params / 3.09e9), -3.5, 3.5)
        easier = {"native": 0.0, "judge": 0.6}.get(target, 1.2)
        base = 1 / (1 + np.exp(-(z["base"] + easier + z["base_slope"] * x)))
        lift = np.clip(z["lift"] * np.exp(z["lift_slope"] * x), 0, 1) * (1 - base)
        balance = np.full(len(settings), z["balance"])
        balance = balance + z["balance_learned"] * _LEARNED[settings.reward]
        balance = balance + {"native": 0.0, "judge": z["balance_judge"]}.get(target, z["balance_pass"])
        scale = 10.0 ** (z["scale"] + z["scale_slope"] * x / np.log(10))
        out: FloatArray = np.clip(base + lift * _SHAPES[self.family](settings, z, balance, scale), 0, 1)
        return out

    def response(self, settings: Settings, share: FloatArray, targets: Sequence[str]) -> Response:
        """A noiseless run of a table of one setting, at fractions of its budget."""
        along = settings[np.zeros(share.size, dtype=np.int64)]
        # A budget of nothing is the base model; a millionth of a step stands in for it.
        along = along.with_budget(np.maximum(settings.budget[0] * share, 1e-6 * settings.step_flops[0]))
        drift = np.sqrt(0.1 * along.lr * along.a * along.steps / (along.steps + 200))
        drive = float(settings.lr[0] * max(settings.a[0], 1.0))
        return Response(
            {target: self.expected(along, target) for target in targets},
            drift,
            1 - float(np.exp(-self.numbers["collapse"] * drive**2 / 4)),
            self.numbers["seed_sd"],
        )


def _volumes(settings: Settings) -> tuple[FloatArray, FloatArray]:
    distinct = settings.steps * settings.samples
    return distinct, distinct * settings.a


def _ridge(s: Settings, z: Numbers, balance: FloatArray, scale: FloatArray) -> FloatArray:
    distinct, _ = _volumes(s)
    growth = 1 - (1 + distinct / scale) ** -(0.4 + 0.8 * z["shape"])
    offset = np.log(s.a) - balance
    width = np.where(offset < 0, 1.2 * np.exp(z["skew"]), 1.2 * np.exp(-z["skew"]))
    out: FloatArray = growth / (1 + np.abs(offset / width) ** 1.5)
    return out


def _twotime(s: Settings, z: Numbers, balance: FloatArray, scale: FloatArray) -> FloatArray:
    distinct, updates = _volumes(s)
    fast = 1 - np.exp(-updates / (0.3 * scale * np.exp(balance)))
    slow = 1 - np.exp(-distinct / (2 * scale))
    weight = 0.35 + 0.4 * z["shape"]
    forgetting = 1 / (1 + 0.05 * np.exp(z["skew"]) * np.maximum(s.a / np.exp(balance) - 1, 0) ** 2)
    out: FloatArray = (weight * fast + (1 - weight) * slow) * forgetting
    return out


def _threshold(s: Settings, z: Numbers, balance: FloatArray, scale: FloatArray) -> FloatArray:
    distinct, updates = _volumes(s)
    p = 2.0 + 2 * z["shape"]
    scarcer = (distinct**-p + (updates / np.exp(balance)) ** -p) ** (-1 / p)
    steep = 2.0 + np.exp(z["skew"])
    out: FloatArray = 1 / (1 + (scarcer / scale) ** -steep)
    return out


def _flattop(s: Settings, z: Numbers, balance: FloatArray, scale: FloatArray) -> FloatArray:
    distinct, updates = _volumes(s)
    center = 1 / (1 + np.exp(-(0.7 + 1.1 * balance)))
    half = 0.04 + 0.12 * z["shape"]
    below = np.maximum(center - half - s.rho, 0) / (0.45 * np.exp(z["skew"]))
    above = np.maximum(s.rho - center - half, 0) / (0.45 * np.exp(-z["skew"]))
    # In spent compute, counted in generated-and-trained samples so that larger models get fewer of them.
    growth = np.log1p((distinct + updates) / scale) / np.log1p(1e3)
    out: FloatArray = np.clip(growth, 0, 1) * np.clip(1 - below - above, 0, 1)
    return out


_SHAPES: dict[str, Callable[[Settings, Numbers, FloatArray, FloatArray], FloatArray]] = {
    "ridge": _ridge,
    "twotime": _twotime,
    "threshold": _threshold,
    "flattop": _flattop,
}
