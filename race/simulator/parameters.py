"""The simulator's parameters: what they mean, what was believed before calibration, and why.

A parameter lives on an unconstrained scale (its logarithm, or itself) on which the prior is normal with the
mean and standard deviation given here; ``log`` parameters give their mean as the median in natural units.
`race.simulator.calibrate` turns this prior and the published numbers into the posterior that ships with the
package. ``basis`` says where the prior comes from; "assumption" marks what no published number speaks to.

Size enters through x = ln(N / 3.09e9) (Qwen2.5-3B), bent so that |x| <= 3.5: no published curve says what
happens beyond a factor of 30 from the calibrated sizes, so extrapolation in size stops there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Parameter:
    """One uncertain quantity.

    Attributes
    ----------
    name
        As `Worlds` spells it.
    scale
        ``log`` (positive) or ``real``.
    center, sd
        Prior median in natural units, prior standard deviation on the unconstrained scale.
    meaning, basis
        What it is; where the prior comes from.
    """

    name: str
    scale: Literal["log", "real"]
    center: float
    sd: float
    meaning: str
    basis: str


_LAW = "fitted law of arXiv 2509.25300"
_ASSUMED = "assumption"

# fmt: off
PARAMETERS: tuple[Parameter, ...] = (
    # -- problems and base models ---------------------------------------------------------------------------
    Parameter("difficulty_sd", "log", 2.6, 0.20, "spread of problem difficulty, logits", _LAW),
    Parameter("theta0", "real", -3.2, 0.6, "competence of a 3B base on training problems, logits", _LAW),
    Parameter("theta0_slope", "real", 1.3, 0.3, "competence per unit of x", _LAW),
    Parameter("task_shift", "real", 0.0, 1.2, "how much easier the user's problems are than the law's", _ASSUMED),
    Parameter("task_slope", "real", 0.0, 0.6, "how much more size matters on the user's problems and ladder", _ASSUMED),
    Parameter("format0", "real", 1.5, 1.2, "format competence of a 3B base, logits", _ASSUMED),
    Parameter("format_slope", "real", 0.3, 0.3, "format competence per unit of x", _ASSUMED),
    Parameter("format_rate", "log", 10.0, 0.8, "how much faster format is learned than reasoning", "Qwen3 0.6B curve"),
    Parameter("headroom", "log", 3.5, 0.4, "ceiling minus base competence at 3B, logits", _LAW),
    Parameter("headroom_slope", "real", 0.2, 0.2, "growth of ln headroom per unit of x", _LAW),
    # -- speed ----------------------------------------------------------------------------------------------
    Parameter("eta", "log", 8e-3, 0.8, "fraction of headroom gained per noiseless step at 3B", _LAW),
    Parameter("eta_n0", "log", 10e9, 0.7, "size at which learning speed is half saturated", _LAW + ": N0"),
    Parameter("setup_rate", "real", 0.0, 1.5, "ln learning speed of the user's set-up over the published ones",
              "spread between published set-ups"),
    Parameter("setup_noise", "real", 0.0, 0.7, "ln noise scale of the user's task over the published ones",
              "assumption (the sweep's own scale moves 10-fold with the target)"),
    Parameter("b_noise", "log", 700.0, 0.9, "noise scale in samples, sparse reward",
              "critical batch sweep, median 1005 rollouts, one small model"),
    Parameter("noise_floor", "log", 0.12, 0.5, "how strongly gradient noise lowers the ceiling (exponent)",
              "IsoCompute plateaus by group size"),
    Parameter("reuse_cap", "log", 2.5, 0.5, "samples' worth that can be had from one sample by training on it",
              "epoch sweeps on MATH, one seed"),
    Parameter("reuse_bend", "log", 1.4, 0.3, "sharpness of that saturation", _ASSUMED),
    Parameter("stale", "log", 6.0, 0.5, "passes (x learning rate) at which old samples mislead",
              "AReaL and M2PO staleness tables"),
    Parameter("caution", "real", 0.0, 0.9, "ln room that the tuned learning rate leaves to further passes",
              "assumption (on a small real task the best a moved from 1 to 2-4 at a quarter of the rate)"),
    Parameter("explore", "log", 15.0, 0.8, "distinct rollouts per pass below which updates memorise", _ASSUMED),
    Parameter("rank_half", "log", 0.6, 0.6, "LoRA rank at half speed", "LoRA Without Regret: rank 1 suffices"),
    Parameter("kl_brake", "log", 0.5, 0.5, "how much beta > 0 slows drift", _ASSUMED),
    # -- reward systems, relative to sparse -----------------------------------------------------------------
    Parameter("gain_structured", "real", 0.0, 0.2, "ln learning speed over sparse", _ASSUMED),
    Parameter("gain_dense", "real", 0.2, 0.3, "ln learning speed over sparse", _ASSUMED),
    Parameter("gain_proxy", "real", 0.4, 0.5, "ln learning speed over sparse", _ASSUMED),
    Parameter("gain_prm", "real", 0.9, 0.4, "ln learning speed over sparse", "PURE: 30 % of the steps"),
    Parameter("cap_structured", "real", 0.0, 0.15, "ln reuse_cap over sparse", _ASSUMED),
    Parameter("cap_dense", "real", -0.45, 0.25, "ln reuse_cap over sparse", _ASSUMED),
    Parameter("cap_proxy", "real", -2.3, 0.6, "ln reuse_cap over sparse", "paper: rho* by reward system"),
    Parameter("cap_prm", "real", -1.8, 0.6, "ln reuse_cap over sparse", "paper: rho* by reward system"),
    Parameter("noise_structured", "real", 0.0, 0.2, "ln noise scale over sparse", _ASSUMED),
    Parameter("noise_dense", "real", -0.2, 0.3, "ln noise scale over sparse", _ASSUMED),
    Parameter("noise_proxy", "real", -0.2, 0.5, "ln noise scale over sparse", _ASSUMED),
    Parameter("noise_prm", "real", -0.5, 0.5, "ln noise scale over sparse", _ASSUMED),
    # -- drift, bias, over-optimisation ---------------------------------------------------------------------
    Parameter("drift", "log", 1.0, 0.4, "d = sqrt(KL) per unit of integrated progress", _ASSUMED),
    Parameter("bias_sparse", "log", 0.10, 0.5, "loss of process quality per unit of drift, logits", _ASSUMED),
    Parameter("bias_structured", "log", 0.12, 0.5, "loss of process quality per unit of d, logits", _ASSUMED),
    Parameter("bias_dense", "log", 1.00, 0.5, "loss of process quality per unit of d, logits", "paper: judge"),
    Parameter("bias_proxy", "log", 0.40, 0.5, "loss of process quality per unit of d, logits", _ASSUMED),
    Parameter("bias_prm", "log", 0.35, 0.5, "loss of process quality per unit of d, logits", "paper: judge"),
    Parameter("hack", "log", 0.3, 0.6, "share of the quadratic loss which the trained reward pays as a gain", _ASSUMED),
    Parameter("spill", "log", 0.15, 0.6, "share of the quadratic loss that reaches pass@1", _ASSUMED),
    Parameter("over_scale", "log", 2.5, 0.4, "d at which over-optimisation turns quadratic", "Gao et al. 2022"),
    Parameter("rm_size", "log", 0.15, 0.5, "exponent of reward-model size in bias and noise", "Gao et al. 2022"),
    Parameter("sharpen", "log", 0.5, 0.6, "logits of pass@1 gained by sharpening", _ASSUMED),
    # -- how targets read the state -------------------------------------------------------------------------
    Parameter("dense_shift", "real", 1.0, 0.5, "partial credit, as easier problems", _ASSUMED),
    Parameter("process_shift", "real", 2.0, 0.8, "process score, as easier problems", _ASSUMED),
    Parameter("judge_shift", "real", 2.0, 0.8, "judge score, as easier problems", _ASSUMED),
    Parameter("pass_shift", "real", 4.2, 1.2, "an unnamed benchmark, as easier problems", _ASSUMED),
    Parameter("gsm8k_shift", "real", 5.7, 0.7, "GSM8K, as easier problems", "verl baselines after GRPO"),
    Parameter("math500_shift", "real", 3.0, 0.7, "MATH-500, as easier problems", "PURE table"),
    # -- noise of single runs -------------------------------------------------------------------------------
    Parameter("seed_sd", "log", 0.07, 0.4, "seed-to-seed spread at the end of a run, logits",
              "PODS: 0.5-1.3 points over 10 runs"),
    Parameter("collapse", "log", 0.02, 0.7, "collapse hazard per unit of d on policy", "IsoCompute learning rates"),
)
# fmt: on

NAMES: tuple[str, ...] = tuple(p.name for p in PARAMETERS)
