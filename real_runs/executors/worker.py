"""What runs on the nodes of a Ray cluster: one job per task, and the mailbox through which tasks and driver talk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from race.records import PilotSpec
from real_runs.executors._base import Job
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.local import LocalExecutor

_REPORT_EVERY = 0.5


class Mailbox:
    """What tasks and driver tell each other. Runs as a Ray actor."""

    def __init__(self) -> None:
        self._news: dict[str, str] = {}
        self._stops: dict[str, str] = {}

    def report(self, job_id: str, news: str) -> str | None:
        """A task says how far it is, and hears whether to stop, and why."""
        self._news[job_id] = news
        return self._stops.get(job_id)

    def stop(self, job_id: str, reason: str) -> None:
        """The driver asks a task to stop."""
        self._stops[job_id] = reason

    def news(self, job_id: str) -> str | None:
        """What a task said last."""
        return self._news.get(job_id)

    def forget(self, job_id: str) -> None:
        """A job is over."""
        self._news.pop(job_id, None)
        self._stops.pop(job_id, None)


def run_task(job: str, how: str, mailbox: Any) -> str:
    """The Ray task: one job on this worker, from JSON to JSON."""
    import ray

    data = json.loads(job)
    mine = Job(data["id"], PilotSpec.from_dict(data["spec"]), Path(data["folder"]))
    executor = _executor_of_this_worker(how)
    # A worker serves many tasks, and each has GPUs of its own.
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    executor.set_environment(0, {} if given is None else {"CUDA_VISIBLE_DEVICES": given})
    executor.submit(mine)
    while True:
        for outcome in executor.wait(_REPORT_EVERY):
            if outcome.job.id == mine.id:
                record = outcome.record.to_dict()
                return json.dumps(
                    {"record": record, "seconds": outcome.seconds, "attempts": outcome.attempts}
                )
        curve = executor.curve(mine)
        news = {"spent": executor.progress(mine), "curve": None if curve is None else asdict(curve)}
        try:
            reason = ray.get(mailbox.report.remote(mine.id, json.dumps(news)), timeout=30)
        except ray.exceptions.RayError:
            # Without a mailbox nobody can ask politely; the pilot itself is fine.
            continue
        if reason is not None:
            executor.stop(mine, reason=reason)


@lru_cache(maxsize=1)
def _executor_of_this_worker(how: str) -> CommandExecutor:
    """Kept between tasks, so that the next pilot is forked from a process that has torch imported already."""
    told = json.loads(how)
    limits = Limits(**told.pop("limits"))
    if told["command"] is None:
        del told["command"]
        config = told.pop("config")
        given = Path(config) if isinstance(config, str) else config
        return LocalExecutor(slots=1, limits=limits, config=given, **told).__enter__()
    return CommandExecutor(slots=1, limits=limits, **{**told, "cwd": Path(told["cwd"])}).__enter__()
