"""What the columns of the tables mean, one legend per kind of block."""

from __future__ import annotations

LEGENDS = {
    "curves": (
        "Mean ± standard deviation over seeds (runs); bold: best arm of the slice."
    ),
    "peaks": (
        "ρ*: vertex of the parabola in logit ρ through the best arm and its neighbours, with a 95 % "
        "interval by bootstrap of residuals. p(flat): F test that all arms have one mean. “Spans the "
        "grid”: the interval holds both ends of the grid, so the slice does not say where its optimum is."
    ),
    "rewards": (
        "At one update ratio: what the difference would be if both reward systems had their optimum at the "
        "update ratio of sparse's, so that only the price of feedback moved ρ."
    ),
    "targets": (
        "Bootstrapped with each run's targets kept together. Lost: value of the second target at its own "
        "best arm minus at the first's, on the means (never negative); cross-validated: arms chosen on "
        "all seeds but one and judged on that one, so that noise averages out."
    ),
    "learning": (
        "Lowest, best and highest ρ of each slice. Gain in the second half: pass@1 at the end minus at "
        "half of the FLOPs. Silent groups: share of groups whose rewards were all equal. Training − held- "
        "out: accuracy on the newest rollouts minus held-out pass@1."
    ),
    "regimes": (
        "Pilots are recorded runs stopped at the evaluation nearest to a tenth of the budget, one per setting; they "
        "share no run with the truth. As good: a regime with a bootstrap probability of at least 0.1. Trials of one "
        "slice share their truth, so the intervals are for trials, not for slices."
    ),
    "calibration": (
        "Every run predicted from all other settings, with an interval for a single fresh run. z: "
        "standardised latent error (sd 1 if intervals are right). Noise sd stated / seed sd measured: "
        "latent spread between runs of one setting, as the surrogate believes and as the runs show. "
        "Widened: factor that the surrogate put on its own intervals. Of setting means: the mean over the seeds of a "
        "setting, with an interval for such a mean."
    ),
    "replay": (
        "As good: an arm whose mean differs from the best one's by no more than the grid's own noise (95 % "
        "bootstrap interval of the difference). Lost: what the arm recommended at half of the grid's FLOPs "
        "falls short of the best one, in the full grid's means, on average; fresh seeds: in the means of later runs "
        "that no method has seen, for the reward systems that have some. “race” decides on any ρ and is "
        "moved to the nearest arm; “race, of arms” takes the arm with the greatest posterior mean. The same "
        "arm as the full grid is also the same noise: whoever averages the same whole runs repeats it. Race's "
        "decision: from the runs that the method has chosen, the planner names the model and regime that it names "
        "from the whole grid, and a ρ inside the whole grid's 90 % interval of ρ*; asked at "
        "1/8, 1/4, 3/8 and 1/2 of the grid's FLOPs, in the first replays only."
    ),
    "prior": (
        "Nothing: no record at all. Base models: told the evaluations before the first step, and nothing "
        "else."
    ),
}
