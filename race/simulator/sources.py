"""Published numbers as predictions: what the simulator says each of them should be.

Every family of numbers comes from a set-up of its own (data, base models, learning rate, answer format). What
such a set-up does not share with others is a *nuisance*: its learning speed, its difficulty, its format. They are
fitted along with the world and thrown away; their prior spread is what a user's own set-up is unsure by.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from race.simulator.dynamics import simulate, simulate_curves
from race.simulator.ensemble import Worlds, data_file
from race.simulator.paper import paper_rhos
from race.simulator.settings import REWARDS, Settings

FloatArray = npt.NDArray[np.float64]
Predict = Callable[[Worlds, dict[str, FloatArray]], FloatArray]

# World parameters that belong to a set-up, not to GRPO.
SETUP = ("setup_rate", "setup_noise", "task_shift", "task_slope", "caution")
BENCHMARK_SPREAD = 0.75
# One set-up's ln learning speed around the typical one: published GRPO runs differ this much at equal batch.
_RATE = (0.0, 1.5)
_NOISE = (0.0, 0.7)


@dataclass(frozen=True)
class Family:
    """Numbers that come from one place.

    Attributes
    ----------
    name, source
        Key in ``published.json``, and where the numbers were published.
    labels, observed, sd
        One entry per number, M in all; ``sd`` holds reading, run-to-run and model error together.
    nuisances
        Name to prior (mean, sd).
    predict
        ``(worlds, nuisances each of shape (W,)) -> (W, M)``.
    """

    name: str
    source: str
    labels: tuple[str, ...]
    observed: FloatArray
    sd: FloatArray
    nuisances: dict[str, tuple[float, float]]
    predict: Predict


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The shipped numbers."""
    data: dict[str, Any] = json.loads(data_file("published.json"))
    return data


def families() -> tuple[Family, ...]:
    """All families, in the order of the table."""
    return (
        _law(), _group_size(), _qwen3(), _pods(), _epochs(), _critical_batch(), _process_speed(), _benchmarks(),
        _paper(),
    )  # fmt: skip


def runs(
    params: npt.ArrayLike,
    *,
    prompts: npt.ArrayLike,
    group: npt.ArrayLike,
    steps: npt.ArrayLike,
    a: npt.ArrayLike = 1.0,
    kl: float = 0.0,
    rank: float = np.inf,
    reward: str = "sparse",
) -> Settings:
    """Settings given in steps instead of FLOPs (one step costs 1), broadcast against each other.

    Published learning curves are read against steps, so their costs do not matter.
    """
    cols = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (params, prompts, group, steps, a))
    )
    n = cols[0].size
    zero, one = np.zeros(n), np.ones(n)
    return Settings(
        params=cols[0].copy(), reward=np.full(n, REWARDS.index(reward)),
        reward_params=np.full(n, 7e9) if reward in ("prm", "proxy-prm") else zero,
        prompts=cols[1].copy(), group=cols[2].copy(), a=cols[4].copy(), lr=one, kl=np.full(n, kl),
        rank=np.full(n, rank), search=one / 2, learning=one / 2, reward_cost=zero, budget=cols[3].copy(),
    )  # fmt: skip


def _native(worlds: Worlds, settings: Settings) -> FloatArray:
    return simulate(worlds, settings, targets=("native",))["native"]


def law_error(data: dict[str, Any], size: int, prompts_seen: npt.ArrayLike) -> FloatArray:
    """The published law's error rate of the size-th model after ``prompts_seen`` prompts."""
    seen = np.asarray(prompts_seen, dtype=np.float64)
    base = (data["N0"] / data["params"][size]) ** data["beta"]
    out: FloatArray = (base + data["B0"][size] / (seen + data["C0"][size])) ** data["alpha"]
    return out


def _setup(worlds: Worlds, z: dict[str, FloatArray], family: str, **known: float | FloatArray) -> Worlds:
    """Worlds with everything that belongs to a user's set-up replaced by that of a published one."""
    own = {
        "setup_rate": "rate",
        "setup_noise": "noise",
        "task_shift": "task",
        "format0": "format",
        "caution": "caution",
    }
    values: dict[str, float | FloatArray] = dict.fromkeys((*SETUP, "format_slope"), 0.0)
    values |= {p: z[f"{family}.{n}"] for p, n in own.items() if f"{family}.{n}" in z}
    return worlds.replace(**values | known)


def _benchmark(worlds: Worlds, name: str, shift: FloatArray) -> dict[str, FloatArray]:
    """Training on a benchmark's own problems: as hard and as mixed as the benchmark is."""
    return {
        "task_shift": worlds.column(f"{name}_shift")[:, 0] + shift,
        "difficulty_sd": BENCHMARK_SPREAD * worlds.column("difficulty_sd")[:, 0],
    }


def _as_law(worlds: Worlds, z: dict[str, FloatArray]) -> Worlds:
    return _setup(worlds, z, "law")


_LAW_NUISANCES = {"law.rate": _RATE, "law.noise": _NOISE, "law.format": (2.5, 0.8)}


def _law() -> Family:
    data = published()["law"]
    seen = np.array(data["prompts_seen"], dtype=np.float64)
    params = np.repeat(data["params"], seen.size)
    settings = runs(params, prompts=512, group=8, steps=np.tile(seen / 512, 3), kl=1)
    observed = np.concatenate([law_error(data, i, seen) for i in range(3)])
    labels = [f"error of {p / 1e9:g}B after {int(e)} prompts" for p in data["params"] for e in seen]
    return Family(
        "law", data["source"], tuple(labels), observed, np.full(observed.size, data["sd"]), _LAW_NUISANCES,
        lambda w, z: 1 - _native(_as_law(w, z), settings),
    )  # fmt: skip


def _group_size() -> Family:
    data = published()["group_size"]
    settings = runs(7e9, prompts=512, group=data["group"], steps=105, kl=1)
    return Family(
        "group_size", data["source"], tuple(f"error of 7B with groups of {g}" for g in data["group"]),
        np.array(data["error"]), np.full(len(data["group"]), data["sd"]), _LAW_NUISANCES,
        lambda w, z: 1 - _native(_as_law(w, z), settings),
    )  # fmt: skip


def _qwen3() -> Family:
    data = published()["qwen3"]
    step = np.array(data["step"], dtype=np.float64)
    names = [f"{p / 1e9:g}B" for p in data["params"]]
    nuisances = {"qwen3.rate": _RATE, "qwen3.noise": _NOISE, "qwen3.task": (0.0, 1.0)}
    # Strict over lenient accuracy before training: 0.6B 0.037 of 0.407, 1.7B 0.555 of 0.548, 4B 0.56 of 0.804.
    for name, start in zip(names, (-2.3, 3.5, 0.8), strict=True):
        nuisances |= {f"qwen3.skill.{name}": (0.0, 1.0), f"qwen3.format.{name}": (start, 0.7)}

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        out = []
        for name, params in zip(names, data["params"], strict=True):
            task = _benchmark(w, "gsm8k", z["qwen3.task"] + z[f"qwen3.skill.{name}"])
            own = _setup(w, z, "qwen3", **task, format0=z[f"qwen3.format.{name}"])
            out.append(_native(own, runs(params, prompts=512, group=3, steps=step, kl=1)))
        return np.concatenate(out, axis=1)

    sd = np.where(step < 8, data["sd_before_step_8"], data["sd"])
    return Family(
        "qwen3", data["source"],
        tuple(f"GSM8K accuracy of Qwen3-{name} at step {int(k)}" for name in names for k in step),
        np.concatenate([np.array(curve) for curve in data["accuracy"]]), np.tile(sd, 3), nuisances, predict,
    )  # fmt: skip


def _pods() -> Family:
    data = published()["pods"]
    n = np.array(data["n"], dtype=np.float64)
    settings = runs(
        3.09e9,
        prompts=1,
        group=np.append(n, 16),
        a=16 / np.append(n, 16),
        steps=np.append(data["step"], 0),
        rank=64,
    )
    labels = [f"GSM8K accuracy of 3B, 16 of {int(k)}, step {t}" for k, t in zip(n, data["step"], strict=True)]

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        return _native(_setup(w, z, "pods", **_benchmark(w, "gsm8k", z["pods.task"])), settings)

    return Family(
        "pods", data["source"], (*labels, "GSM8K accuracy of 3B before training"),
        np.append(data["accuracy"], data["start"]), np.full(len(labels) + 1, data["sd"]),
        {"pods.rate": _RATE, "pods.noise": _NOISE, "pods.task": (0.0, 1.0), "pods.format": (0.8, 1.0)}, predict,
    )  # fmt: skip


def _epochs() -> Family:
    data = published()["epochs"]
    settings = runs(1.54e9, prompts=32, group=8, a=[*data["a"], 1], steps=[*data["step"], 0])
    labels = [
        f"MATH accuracy of 1.5B, a = {a}, step {k}" for a, k in zip(data["a"], data["step"], strict=True)
    ]

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        return _native(_setup(w, z, "epochs", **_benchmark(w, "math500", z["epochs.task"])), settings)

    return Family(
        "epochs", data["source"], (*labels, "MATH accuracy of 1.5B before training"),
        np.append(data["accuracy"], data["start"]), np.full(len(labels) + 1, data["sd"]),
        {"epochs.rate": _RATE, "epochs.noise": _NOISE, "epochs.task": (1.5, 1.2), "epochs.format": (-2.5, 1.2),
         "epochs.caution": (0.0, 0.5)}, predict,
    )  # fmt: skip


def _critical_batch() -> Family:
    data = published()["critical_batch"]
    prompts = np.array(data["prompts"], dtype=np.float64)
    sizes = np.append(np.unique(prompts), data["reference_prompts"])
    grid = np.geomspace(5, 6000, 30)
    share = np.append(0.0, grid / grid[-1])
    settings = runs(1.5e9, prompts=sizes, group=8, steps=grid[-1], kl=1)

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        own = _setup(w, z, "critical_batch", **_benchmark(w, "gsm8k", z["critical_batch.task"]), format0=3.0)
        curve = simulate_curves(own, settings, points=share, targets=("native",)).values["native"]
        out = [curve[:, 0, 0]]
        for target, p in zip(data["target"], prompts, strict=True):
            small, large = (_log_crossing(curve[:, k], target, grid) for k in (np.argmax(sizes == p), -1))
            out.append(small - large)
        return np.stack(out, axis=1)

    ratio = np.log(np.array(data["steps"]) / np.array(data["reference_steps"]))
    return Family(
        "critical_batch", data["source"],
        ("GSM8K accuracy of 1B before training",
         *(f"ln steps to {t:.0%}, {int(p)} prompts over {data['reference_prompts']}"
           for t, p in zip(data["target"], prompts, strict=True))),
        np.append(data["start"], ratio), np.append(0.04, np.full(ratio.size, data["sd"])),
        {"critical_batch.rate": _RATE, "critical_batch.noise": _NOISE, "critical_batch.task": (0.0, 1.5)}, predict,
    )  # fmt: skip


def _log_crossing(curve: FloatArray, target: float, grid: FloatArray) -> FloatArray:
    """ln of the step at which each curve (W, 1 + len(grid)) first reaches ``target``; the last step if never."""
    above = curve >= target
    first = np.where(above.any(axis=1), above.argmax(axis=1), curve.shape[1] - 1)
    first = np.maximum(first, 1)
    rows = np.arange(curve.shape[0])
    low, high = curve[rows, first - 1], curve[rows, first]
    mix = np.clip((target - low) / np.maximum(high - low, 1e-9), 0, 1)
    log_step = np.log(np.append(0.5 * grid[0], grid))
    out: FloatArray = log_step[first - 1] + mix * (log_step[first] - log_step[first - 1])
    return out


def _process_speed() -> Family:
    data = published()["process_speed"]
    steps = float(data["steps"])
    rules = runs(7.62e9, prompts=64, group=8, steps=[0, steps], kl=1)
    scored = runs(7.62e9, prompts=64, group=8, steps=[0, steps * data["ratio"]], kl=1, reward="prm")

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        own = _setup(w, z, "pure", format0=3.0)
        gains = []
        for settings in (rules, scored):
            value = simulate(own, settings, targets=("pass@1:math500",))["pass@1:math500"]
            gains.append(np.maximum(value[:, 1] - value[:, 0], 1e-6))
        return np.log(gains[1] / gains[0])[:, None]

    return Family(
        "process_speed", data["source"],
        ("ln gain of PRM at 30 % of the steps over gain of rules at all of them",),
        np.array([0.0]), np.array([data["sd"]]), {"pure.rate": _RATE, "pure.task": (2.0, 1.0)}, predict,
    )  # fmt: skip


def _benchmarks() -> Family:
    data = published()["benchmarks"]
    after = runs(data["params"], prompts=64, group=8, steps=300, rank=32)
    math = runs(7.62e9, prompts=64, group=8, steps=[0, 1000], kl=1)

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        own = _setup(w, z, "benchmarks", task_shift=2.0, format0=2.5)
        other = own.replace(setup_rate=z["benchmarks.math_rate"])
        gsm8k = simulate(own, after, targets=("pass@1:gsm8k",))["pass@1:gsm8k"]
        return np.concatenate(
            [gsm8k, simulate(other, math, targets=("pass@1:math500",))["pass@1:math500"]], axis=1
        )

    labels = (*(f"GSM8K of {p / 1e9:g}B after GRPO" for p in data["params"]),
              "MATH-500 of 7B before GRPO", "MATH-500 of 7B after GRPO")  # fmt: skip
    observed = np.array([*data["gsm8k_after"], data["math500_before"], data["math500_after"]])
    return Family("benchmarks", data["source"], labels, observed, np.full(observed.size, data["sd"]),
                  {"benchmarks.rate": _RATE, "benchmarks.math_rate": _RATE}, predict)  # fmt: skip


def _paper() -> Family:
    data = published()["paper"]
    labels, observed, sd = [], [], []
    for reward, rho in data["rho"].items():
        labels += [f"rho* of {reward}, largest model", f"rho* of {reward}, middle model"]
        observed += [rho, rho]
        sd += [data["sd"]] * 2
    pairs = [("pass_minus_judge", "judge"), ("pass_minus_native", "native")]
    for key, other in pairs:
        for reward, difference in data[key].items():
            labels.append(f"rho* of pass@1 less rho* of {other}, {reward}")
            observed.append(difference)
            sd.append(data["sd_difference"])

    def predict(w: Worlds, z: dict[str, FloatArray]) -> FloatArray:
        out, by_reward = [], {}
        own = _setup(w, z, "paper")
        for reward in data["rho"]:
            by_reward[reward] = rho = paper_rhos(own, reward, ("native", "pass@1", "judge"))
            out += [rho["native"][:, 2], rho["native"][:, 1]]
        for key, other in pairs:
            for reward in data[key]:
                rho = by_reward[reward]
                out.append((rho["pass@1"] - rho[other])[:, 2])
        return np.stack(out, axis=1)

    nuisances = {
        "paper.rate": _RATE,
        "paper.noise": _NOISE,
        "paper.task": (0.0, 1.0),
        "paper.format": (1.5, 1.0),
        "paper.caution": (0.0, 0.5),
    }
    return Family(
        "paper", data["source"], tuple(labels), np.array(observed), np.array(sd), nuisances, predict
    )
