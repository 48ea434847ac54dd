"""Which running pilots are worth looking at, and when: a look costs a fit of the surrogate."""

from __future__ import annotations

import time
from dataclasses import replace

from planner.planner import Planner
from planner.progress import Progress
from planner.proposer import Proposer
from planner.pruning import MIN_DONE, Prune, check_running
from race.allocation import Allocation
from race.records import Curve, Evidence, PilotRecord
from real_runs.executors._base import Executor, Job
from real_runs.executors.results import planned_shares

# Looks may take this share of the loop's time.
SHARE = 0.1


class PruneChecks:
    """Looks at running pilots when they have measured something new, without taking much time for it."""

    def __init__(self, planner: Planner, executor: Executor) -> None:
        # A proposer of its own: its surrogate is fitted to other records than the loop's, and each keeps one.
        self._proposer: Proposer = replace(planner.proposer, _fitted=None)
        self._executor = executor
        self._seen: dict[str, int] = {}
        self._not_before = 0.0

    def look(self, jobs: list[Job], progress: Progress) -> tuple[Job, Prune] | None:
        """A pilot that should be stopped, if the one looked at now is."""
        if time.monotonic() < self._not_before:
            return None
        for job in jobs:
            curve = self._executor.curve(job)
            if curve is None or len(curve) < 3 or curve.flops[-1] < MIN_DONE * job.spec.budget:
                continue
            if self._seen.get(job.id) == len(curve):
                continue
            self._seen[job.id] = len(curve)
            started = time.monotonic()
            found = check_running(self._proposer, progress, job.spec, self._so_far(job, curve, progress))
            now = time.monotonic()
            self._not_before = now + (now - started) * (1 / SHARE - 1)
            return None if found is None else (job, found)
        return None

    def _so_far(self, job: Job, curve: Curve, progress: Progress) -> PilotRecord:
        spent = max(self._executor.progress(job) or 0.0, curve.flops[-1])
        shares = planned_shares(job)
        # What the finished pilots say they are: a measured record among simulated ones would push those out.
        kinds: list[Evidence] = [p.record.evidence for p in progress.pilots if p.record is not None]
        return PilotRecord(
            spec=job.spec,
            flops=Allocation(*(shares[phase] * spent for phase in ("search", "learning", "reward"))),
            curves={job.spec.targets[0]: curve},
            evidence=kinds[-1] if kinds else "real",
            steps=curve.step[-1],
            id=f"so-far-{len(curve)}-{job.id}"[:128],
        )
