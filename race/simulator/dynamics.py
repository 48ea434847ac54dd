"""Mean-field dynamics of GRPO: how a policy's state moves along a run.

Notation (W worlds, n settings; everything broadcasts to (W, n))
    theta   competence, logits: a problem of difficulty delta is solved with p = sigmoid(theta - delta)
    f       format competence as a probability; an answer counts when it is right and readable
    d       drift from the base policy, sqrt(KL)
    S, G    samples and group size per step     a   update ratio    U   lr * max(a, 1), the drive of a step
    B       noise scale in samples (McCandlish et al. 2018, arXiv 1812.06162)

One step changes theta by  r (theta_max - theta)  with

    r = eta(N) gain_r rank kl * staleness * exploration * signal / (1/U + B_r / (S Y signal))

Two things limit a step, and their times add: the drive U (how far one may move on one batch) and the samples
behind it. For a = lr = 1 the bracket is McCandlish's 1 / (1 + B/S).

    signal       right/wrong: the share of groups that teach anything, 1 - p^G - (1-p)^G, times how much such a
                 group teaches, (4 p (1-p))^(1/2 - 1/G), which is the mean size of GRPO's normalised advantages:
                 exact at G = 2 (all of it) and at large G (its standard deviation). Scores: variance-like.
    Y            samples' worth got from one generated sample: y / (1 + (y/cap_r)^m)^(1/m), y = lr a. Below the
                 cap, training on fewer samples wastes rollouts in proportion; above it, passes add nothing.
    staleness    1 / (1 + ((U - 1)+ / stale)^2)
    caution      e^caution multiplies cap_r and stale: "tuned" learning rates differ in how near they are to the
                 largest useful one, and a cautious one leaves more to be had from a second pass
    exploration  D / (D + explore U), D distinct rollouts so far: many updates on few rollouts memorise them
    theta_max    ceiling; gradient noise lowers the headroom by (1 + lr^2 B_r / (S Y1))^-noise_floor, Y1 from the
                 first pass alone; stale samples by sqrt(staleness); the same holds for format
    drift        grows with what is trained on, y, not with what is learned from it:
                 dd = drift r (y/Y) [(theta_max - theta) / headroom + EXPLOIT bias_r]; its share 1 - Y/y is wasted

Integration: exponential midpoint rule on nodes evenly spaced in ln(1 + step), so one grid serves ten steps and
a million. What is left out, on purpose: momentum, warm-up, length growth, finite prompt sets, and the change of
costs during a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from race.errors import InvalidInput
from race.simulator.difficulty import average, classes, sigmoid
from race.simulator.ensemble import Worlds
from race.simulator.rewards import bias_of, by_reward, continuous_share, noise_of
from race.simulator.settings import Settings
from race.simulator.targets import State, evaluate

FloatArray = npt.NDArray[np.float64]

REFERENCE_PARAMS = 3.09e9  # Qwen2.5-3B, the middle of the default ladder
SIZE_REACH = 3.5
FORMAT_CEILING = 4.5  # logits: 1.1 % unreadable answers never go away
SCORE_FLOOR = 0.3  # spread that scores keep among answers that are equally right
DRIFT_LIMIT = 10.0  # sqrt(KL); 100 nats is as far as Gao et al. (2022) let any policy go
EXPLOIT = 0.1  # drift that goes on for the sake of a reward's bias once there is nothing left to learn
NODES = 20
_BLOCK = 4096  # runs integrated at once; larger blocks fall out of the cache


@dataclass(frozen=True)
class Curves:
    """Learning curves.

    Attributes
    ----------
    flops
        C_total spent, shape (n, points).
    values
        Per target, shape (W, n, points).
    drift
        sqrt(KL), shape (W, n, points).
    collapse
        As `collapse_probability` at the end of the budget, shape (W, n).
    """

    flops: FloatArray
    values: dict[str, FloatArray]
    drift: FloatArray
    collapse: FloatArray


def simulate(
    worlds: Worlds, settings: Settings, *, targets: Sequence[str] = ("native", "pass@1", "judge")
) -> dict[str, FloatArray]:
    """Expected final values of runs that stay healthy, per target, in [0, 1], shape (W, n).

    Collapse is not averaged in: `simulate_with_collapse` gives it beside the values.
    """
    return simulate_with_collapse(worlds, settings, targets=targets)[0]


def simulate_with_collapse(
    worlds: Worlds, settings: Settings, *, targets: Sequence[str]
) -> tuple[dict[str, FloatArray], FloatArray]:
    """What `simulate` and `collapse_probability` give, from one simulation."""
    out = {target: np.empty((len(worlds), len(settings))) for target in targets}
    collapse = np.empty((len(worlds), len(settings)))
    for rows, cols, w, s in _blocks(worlds, settings):
        run = _Run(w, s)
        state = run.integrate()[-1]
        collapse[rows, cols] = run.collapse(state)
        for target, values in out.items():
            values[rows, cols] = evaluate(w, s, state, target)
    return out, collapse


def simulate_curves(
    worlds: Worlds,
    settings: Settings,
    *,
    points: int | npt.ArrayLike = 12,
    targets: Sequence[str] = ("native", "pass@1", "judge"),
) -> Curves:
    """Learning curves at ``points`` fractions of the budget (an int: that many, evenly spaced from 0 to 1).

    The last of evenly spaced points equals `simulate`.
    """
    share = np.linspace(0, 1, points) if isinstance(points, int) else np.asarray(points, dtype=np.float64)
    if share.ndim != 1 or share.size < 1 or not np.all((share >= 0) & (share <= 1)):
        raise InvalidInput(
            "points: allowed are a whole number of at least 1, or fractions of the budget in [0, 1]"
        )
    shape = (len(worlds), len(settings), share.size)
    values = {target: np.empty(shape) for target in targets}
    drift, collapse = np.empty(shape), np.empty(shape[:2])
    for rows, cols, w, s in _blocks(worlds, settings):
        run = _Run(w, s)
        states = run.integrate()
        collapse[rows, cols] = run.collapse(states[-1])
        # All points of all settings in one table, point-major, so that each target is read once.
        state, each = _at(states, s.steps, share), s[np.tile(np.arange(len(s)), share.size)]
        block = (len(w), share.size, len(s))
        drift[rows, cols] = state.drift.reshape(block).swapaxes(1, 2)
        for target in targets:
            values[target][rows, cols] = evaluate(w, each, state, target).reshape(block).swapaxes(1, 2)
    return Curves(settings.budget[:, None] * share, values, drift, collapse)


def collapse_probability(worlds: Worlds, settings: Settings) -> FloatArray:
    """Probability that a run collapses before its budget is spent, shape (W, n).

    1 - exp(-hazard d): the hazard per unit of drift grows with the drive (learning rate x passes) and with
    the reward's bias. Shape from IsoCompute's learning-rate sweep (4x the tuned rate collapses) and PURE
    (a learned reward alone is hacked within some hundred steps).
    """
    return simulate_with_collapse(worlds, settings, targets=())[1]


def _blocks(worlds: Worlds, settings: Settings) -> Iterator[tuple[slice, slice, Worlds, Settings]]:
    width = max(1, min(len(settings), _BLOCK))
    height = max(1, _BLOCK // width)
    for i in range(0, len(worlds), height):
        for j in range(0, len(settings), width):
            rows, cols = slice(i, i + height), slice(j, j + width)
            yield rows, cols, worlds[rows], settings[cols]


class _Run:
    """Everything about a block of runs that does not change along them, and the integrator."""

    def __init__(self, w: Worlds, s: Settings) -> None:
        c = w.column
        x = size(s.params)
        # -- base policy
        self.theta0 = c("theta0") + (c("theta0_slope") + c("task_slope")) * x
        self.phi0 = np.minimum(c("format0") + c("format_slope") * x, FORMAT_CEILING)
        # -- reward system
        gain, room = np.exp(by_reward(w, s, "gain")), np.exp(c("caution"))
        cap = c("reuse_cap") * room * np.exp(by_reward(w, s, "cap"))
        self.continuous = continuous_share(s)
        # -- drive, samples, reuse
        y = s.lr * s.a
        drive = s.lr * np.maximum(s.a, 1.0)
        m = c("reuse_bend")
        worth = y / (1 + (y / cap) ** m) ** (1 / m)
        self.overtrain = y / worth
        self.waste = 1 - worth / y
        noise = noise_of(w, s)
        self.per_drive = 1 / drive
        self.per_sample = noise / (s.samples * worth)
        n0 = c("eta_n0")
        speed = (1 + n0 / REFERENCE_PARAMS) / (1 + n0 / (REFERENCE_PARAMS * np.exp(x)))
        stale = 1 / (1 + (np.maximum(drive - 1, 0) / (c("stale") * room)) ** 2)
        rank = 1 / (1 + c("rank_half") / s.rank)
        brake = 1 + c("kl_brake") * s.kl
        self.eta = c("eta") * np.exp(c("setup_rate")) * speed * gain * stale * rank / brake**0.25
        self.drift_gain = c("drift") / brake * self.overtrain
        self.memorise = c("explore") * drive / s.samples  # in steps
        once = np.minimum(y, s.lr)  # passes do not average noise away: only the first one counts here
        once = once / (1 + (once / cap) ** m) ** (1 / m)
        floor = (1 + s.lr**2 * noise / (s.samples * once)) ** -c("noise_floor")
        headroom = c("headroom") * np.exp(c("headroom_slope") * x) * floor * np.sqrt(stale)
        self.ceiling, self.headroom = self.theta0 + headroom, headroom
        self.exploit = EXPLOIT * bias_of(w, s)
        self.format_ceiling = self.phi0 + (FORMAT_CEILING - self.phi0) * floor * np.sqrt(stale)
        self.format_rate = c("format_rate")
        self.hazard = c("collapse") * drive**2.6 / room * (1 + 8 * bias_of(w, s) * (self.continuous > 0))
        self.delta = classes(c("difficulty_sd")) - c("task_shift")
        self.group, self.magnitude = s.group, 0.5 - 1 / s.group
        doublings = np.log2(s.group)  # of groups that are all one power of two
        same = doublings.size and np.ptp(doublings) == 0 and doublings[0] == np.round(doublings[0])
        self.doublings = int(doublings[0]) if same else None
        self.steps = s.steps
        self.shape = (len(w), len(s))
        self.scratch = tuple(np.empty((len(self.delta), *self.shape)) for _ in range(3))

    def collapse(self, end: State) -> FloatArray:
        """Probability of a collapse on the way to ``end``."""
        out: FloatArray = -np.expm1(-self.hazard * end.drift)
        return out

    def rate(self, theta: FloatArray, phi: FloatArray, t: FloatArray) -> FloatArray:
        """r at one moment, per step."""
        signal = self.signal(theta, phi)
        explored = t / (t + self.memorise)
        return self.eta * explored * signal / (self.per_drive + self.per_sample / signal)

    def signal(self, theta: FloatArray, phi: FloatArray) -> FloatArray:
        """Share of the groups' possible teaching that happens, in (0, 1]."""
        # In three arrays that live as long as the run: fresh ones of this size cost as much as the arithmetic.
        p, fail, variance = self.scratch
        np.subtract(self.delta, theta, out=p)
        np.exp(np.minimum(p, 500.0, out=p), out=p)
        p += 1
        np.divide(1, p, out=p)
        p *= sigmoid(phi)
        np.subtract(1, p, out=fail)
        np.multiply(p, fail, out=variance)
        variance *= 4
        np.maximum(variance, 1e-12, out=variance)
        spread = average(variance) if self.continuous.any() else None
        for base in (p, fail):
            if self.doublings is None:
                base **= self.group
            else:  # squaring costs a third of a power
                for _ in range(self.doublings):
                    base *= base
        p += fail
        np.subtract(1, p, out=p)
        variance **= self.magnitude
        p *= variance
        out = average(p)
        if spread is not None:
            scores = (1 - 1 / self.group) * (SCORE_FLOOR + (1 - SCORE_FLOOR) * spread)
            out = out + self.continuous * (scores - out)
        return np.maximum(out, 1e-9)

    def integrate(self) -> list[State]:
        """States at nodes evenly spaced in ln(1 + step), the first at step 0 and the last at the budget."""
        theta = np.broadcast_to(self.theta0, self.shape).copy()
        phi = np.broadcast_to(self.phi0, self.shape).copy()
        drift = np.zeros(self.shape)
        states = [State(theta, phi, drift, self.waste)]
        times = np.expm1(np.linspace(0, 1, NODES + 1)[:, None] * np.log1p(self.steps))
        for t0, t1 in pairwise(times):
            half = (t1 - t0) / 2
            r = self.rate(theta, phi, t0 + half / 2)
            mid_theta = self.ceiling - (self.ceiling - theta) * np.exp(-r * half)
            mid_phi = self.format_ceiling - (self.format_ceiling - phi) * np.exp(-self.format_rate * r * half)
            r = self.rate(mid_theta, mid_phi, t0 + half)
            theta = self.ceiling - (self.ceiling - theta) * np.exp(-r * 2 * half)
            phi = self.format_ceiling - (self.format_ceiling - phi) * np.exp(-self.format_rate * r * 2 * half)
            pull = (self.ceiling - mid_theta) / self.headroom + self.exploit
            drift = drift + self.drift_gain * pull * r * 2 * half
            states.append(State(theta, phi, -DRIFT_LIMIT * np.expm1(-drift / DRIFT_LIMIT), self.waste))
        return states


def _at(states: Sequence[State], steps: FloatArray, share: FloatArray) -> State:
    """State at fractions of the run, linear in ln(1 + step) between nodes; columns are point-major."""
    total = np.log1p(steps)
    u = np.log1p(share[:, None] * steps) / np.maximum(total, 1e-300) * NODES
    low = np.clip(np.floor(u).astype(int), 0, NODES - 1).ravel()
    mix = u.ravel() - low
    cols = np.tile(np.arange(steps.size), share.size)

    def read(name: str) -> FloatArray:
        nodes = np.stack([getattr(state, name) for state in states])
        out: FloatArray = nodes[low, :, cols].T * (1 - mix) + nodes[low + 1, :, cols].T * mix
        return out

    return State(read("theta"), read("phi"), read("drift"), states[0].waste[:, cols])


def size(params: FloatArray) -> FloatArray:
    """x, the bent log-size of `race.simulator.parameters`."""
    return SIZE_REACH * np.tanh(np.log(params / REFERENCE_PARAMS) / SIZE_REACH)
