"""The formulas on the concept pages, written out here a second time and compared with the code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.acquisition import expected_gain
from race.ladders import ladder
from race.simulator import Settings, Worlds, collapse_probability, simulate
from race.simulator.difficulty import CLASSES, WEIGHTS
from race.simulator.parameters import NAMES
from surrogate import kernels, risk
from surrogate.hyperparameters import PRIOR_MEAN, Hyperparameters
from surrogate.points import Points

SUFFIX = {"sparse": "sparse", "structured": "structured", "dense": "dense", "proxy-prm": "proxy", "prm": "prm"}
QUALITY_AT = 7e9


def sigmoid(x: float | np.ndarray) -> float | np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(x)))


def walk(world: dict[str, float], s: Settings, reward: str, scorer: float) -> dict[str, float]:
    """docs/concepts/simulator.md, one explicit step after another."""
    w, suffix = world, SUFFIX[reward]
    learned, relative = reward in ("proxy-prm", "prm"), reward != "sparse"
    quality = (scorer / QUALITY_AT) ** -w["rm_size"] if learned else 1.0
    x = 3.5 * math.tanh(math.log(s.params[0] / 3.09e9) / 3.5)
    lr, a, S, G = s.lr[0], s.a[0], s.samples[0], s.group[0]
    U, y = lr * max(a, 1), lr * a
    caution = math.exp(w["caution"])
    cap = w["reuse_cap"] * caution * math.exp(w[f"cap_{suffix}"] if relative else 0)
    m = w["reuse_bend"]

    def worth(y: float) -> float:
        return y / (1 + (y / cap) ** m) ** (1 / m)

    B = w["b_noise"] * math.exp(w["setup_noise"] + (w[f"noise_{suffix}"] if relative else 0)) * quality
    bias = w[f"bias_{suffix}"] * quality
    Y = worth(y)
    n0 = w["eta_n0"]
    speed = (1 + n0 / 3.09e9) / (1 + n0 / (3.09e9 * math.exp(x)))
    stale = 1 / (1 + (max(U - 1, 0) / (w["stale"] * caution)) ** 2)
    eta = w["eta"] * math.exp(w["setup_rate"]) * speed * math.exp(w[f"gain_{suffix}"] if relative else 0) * stale
    eta *= s.rank[0] / (s.rank[0] + w["rank_half"])
    brake = 1 + w["kl_brake"] * s.kl[0]
    eta /= brake**0.25
    floor = (1 + lr**2 * B / (S * worth(min(y, lr)))) ** -w["noise_floor"] * math.sqrt(stale)
    theta0 = w["theta0"] + (w["theta0_slope"] + w["task_slope"]) * x
    headroom = w["headroom"] * math.exp(w["headroom_slope"] * x) * floor
    phi0 = min(w["format0"] + w["format_slope"] * x, 4.5)
    phi_max = phi0 + (4.5 - phi0) * floor
    delta = w["difficulty_sd"] * CLASSES - w["task_shift"]
    graded = {"sparse": 0.0, "structured": 0.0, "dense": 0.5}.get(reward, 1.0)
    theta, phi, d, t = theta0, phi0, 0.0, 0.0
    while t < s.steps[0]:
        dt = min(0.02 * (1 + t), s.steps[0] - t)
        p = sigmoid(theta - delta) * sigmoid(phi)
        groups = WEIGHTS @ ((1 - p**G - (1 - p) ** G) * (4 * p * (1 - p)) ** (0.5 - 1 / G))
        scores = (1 - 1 / G) * (0.3 + 0.7 * (WEIGHTS @ (4 * p * (1 - p))))
        signal = (1 - graded) * groups + graded * scores
        middle = t + dt / 2
        explored = middle / (middle + w["explore"] * U / S)
        r = eta * explored * signal / (1 / U + B / (S * Y * signal))
        d += w["drift"] / brake * (y / Y) * ((theta0 + headroom - theta) / headroom + 0.1 * bias) * r * dt
        theta += r * (theta0 + headroom - theta) * dt
        phi += w["format_rate"] * r * (phi_max - phi) * dt
        t += dt
    d = 10 * (1 - math.exp(-d / 10))
    f, late = float(sigmoid(phi)), bias * d**2 / w["over_scale"]

    def solved(theta: float, spread: float = 1.0) -> float:
        return float(WEIGHTS @ sigmoid(theta - spread * w["difficulty_sd"] * CLASSES))

    hazard = w["collapse"] * U**2.6 / caution * (1 + 8 * bias * (graded > 0))
    native = {
        "sparse": f * solved(theta + w["task_shift"]),
        "structured": 0.2 * f + 0.8 * f * solved(theta + w["task_shift"]),
        "dense": f * solved(theta + w["task_shift"] + w["dense_shift"] + w["hack"] * late),
    }.get(reward, solved(theta + w["task_shift"] + w["process_shift"] + w["hack"] * late))
    sharper = theta + w["pass_shift"] + w["sharpen"] * (1 - math.exp(-d)) - w["spill"] * late
    return {
        "native": native,
        "pass@1": f * solved(sharper, 0.75),
        "judge": solved(theta + w["task_shift"] + w["judge_shift"] - late - bias * d * (1 - Y / y)),
        "collapse": 1 - math.exp(-hazard * d),
    }


@pytest.mark.parametrize("reward", sorted(SUFFIX))
@pytest.mark.parametrize(("ratio", "kl"), [(0.25, False), (1.0, True), (5.0, False)])
def test_the_simulator_is_what_its_page_says(reward: str, ratio: float, kl: bool) -> None:
    rungs = ladder("qwen2.5")
    recipe = rungs.recipe(reward, update_ratio=ratio, kl=kl)
    worlds = Worlds.prior(3, seed=5)
    settings = Settings.build([(rungs.models[0], recipe, 3 * 10**17)])
    found = simulate(worlds, settings)
    collapse = collapse_probability(worlds, settings)
    for i in range(len(worlds)):
        world = dict(zip(NAMES, worlds.values[i], strict=True))
        by_hand = walk(world, settings, reward, float(settings.reward_params[0]))
        for target in ("native", "pass@1", "judge"):
            assert found[target][i, 0] == pytest.approx(by_hand[target], abs=0.01), target
        assert collapse[i, 0] == pytest.approx(by_hand["collapse"], abs=0.02)


def matern(*scaled: float) -> float:
    r = math.sqrt(5 * sum(v**2 for v in scaled))
    return (1 + r + r**2 / 3) * math.exp(-r)


def test_the_residual_is_what_its_page_says() -> None:
    x = np.array([[21.0, -0.4, 40.0], [21.0, 0.9, 38.0], [22.5, 0.3, 41.0]])
    recipe = np.array([[0.0], [0.5], [0.5]])
    reward, target, gain = np.array([0, 0, 4]), np.array([0, 1, 0]), np.array([1.2, 0.7, 2.0])
    points = Points(x, recipe, reward, target, np.zeros((2, 3)), gain)
    h = Hyperparameters(PRIOR_MEAN)
    found = kernels.residual(points, points, h)
    for i in range(3):
        for j in range(3):
            size, rho, budget = np.abs(x[i] - x[j]) / h.lengths
            other = float(abs(recipe[i, 0] - recipe[j, 0]))
            same = float(size == 0)
            expected = h.level**2 * (1 + matern(size) + same) / 3
            both = gain[i] * gain[j]
            expected += both * h.trend**2 * (matern(size, budget, other) + same * matern(budget, other)) / 2
            expected += both * h.shape**2 * (matern(rho, other) + matern(size, rho, budget, other)) / 2
            expected *= 1.0 if reward[i] == reward[j] else h.reward_correlation
            expected *= 1.0 if target[i] == target[j] else h.target_correlation
            assert found[i, j] == pytest.approx(expected, rel=1e-9)


def test_the_risk_of_collapse_is_what_its_page_says() -> None:
    """One world, one run that collapsed: logit p + b with b ~ N(0, 2^2), by quadrature."""
    seen, asked = 0.1, 0.3
    b = np.linspace(-20, 20, 20001)
    weight = np.exp(-0.5 * (b / 2) ** 2) * sigmoid(math.log(seen / (1 - seen)) + b)
    expected = float((weight * sigmoid(math.log(asked / (1 - asked)) + b)).sum() / weight.sum())
    found = risk.collapse_risk(np.array([[seen]]), np.array([1.0]), np.array([[asked]]))
    assert found[0] == pytest.approx(expected, abs=2e-3)


def test_the_gain_is_what_its_page_says() -> None:
    rng = np.random.default_rng(3)
    mean, swing = rng.normal(0.5, 0.02, 6), rng.normal(0, 0.03, (6, 2))
    z = np.random.default_rng(0).standard_normal(200_000)
    by_hand = [(mean[:, None] + swing[:, [c]] * z).max(axis=0).mean() - mean.max() for c in range(2)]
    assert expected_gain(mean, swing) == pytest.approx(by_hand, rel=0.03)
