"""One real budgeted run: a spec goes in, a record comes out, a folder keeps everything in between.

The same call resumes a run that was interrupted, and returns the record of one that is finished. Under torchrun or
accelerate, every process makes the same call (`real_runs.grpo.ranks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from race.records import PilotRecord, PilotSpec
from real_runs import require_runs_extra

require_runs_extra()

# After the check, so that a missing extra is named.
from real_runs.attempt import Attempt  # noqa: E402
from real_runs.config import RunOptions  # noqa: E402
from real_runs.contracts import Judge, Reward, Task  # noqa: E402
from real_runs.folder import RunFolder  # noqa: E402
from real_runs.grpo.ranks import Ranks  # noqa: E402
from real_runs.policy import PolicyFactory  # noqa: E402
from real_runs.progress import Progress, ProgressCallback  # noqa: E402

__all__ = ["PolicyFactory", "Progress", "ProgressCallback", "RunOptions", "run_pilot"]


def run_pilot(
    spec: PilotSpec,
    *,
    task: Task,
    reward: Reward,
    policy: PolicyFactory,
    out_dir: str | Path,
    judge: Judge | None = None,
    benchmarks: Mapping[str, Task] | None = None,
    options: RunOptions | None = None,
    progress: ProgressCallback | None = None,
) -> PilotRecord:
    """Run ``spec`` for real, within its budget, and return its record.

    Parameters
    ----------
    task, reward, judge
        Where problems come from, what is trained on, and the process score common to all reward systems.
    policy
        Builds the base model.
    out_dir
        The run's folder: new, or of the same run, which is then resumed.
    benchmarks
        Tasks behind targets such as ``pass@1:gsm8k``; plain ``pass@1`` is the task's own held-out set.
    progress
        Called after every step and evaluation; what it raises stops the run, resumably. `KeyboardInterrupt` lets the
        step end and be saved first.

    Raises
    ------
    InvalidInput
        A budget below one step, an option or target that does not fit, a folder of another run.
    CannotDo
        The folder cannot be written or read, or a part of the run broke its contract.
    """
    options = options or RunOptions()
    options.check_with(spec.recipe)
    folder = RunFolder(Path(out_dir))
    ranks = Ranks.from_environment()
    with folder.locked() if ranks.first else nullcontext():
        return Attempt(
            spec, task, reward, judge, dict(benchmarks or {}), options, progress, folder, policy, ranks
        ).go()
