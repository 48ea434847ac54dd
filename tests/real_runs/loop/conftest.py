"""Loops over simulated pilots, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from planner import Planner, StoppingRule
from planner.storage import open_storage
from race.ladders import ladder
from race.records import PilotRecord, PilotSpec
from race.simulator.worlds import world
from race.store import Store
from real_runs.executors import Executor
from real_runs.executors.simulated import SimulatorExecutor
from real_runs.loop import Loop, LoopFolder, LoopOptions

BUDGET = 10**19
# Never certain enough: a loop that ends when its budget is spent has a known number of pilots.
NEVER = StoppingRule(certainty=1.0, min_pilots=10**6)

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Made:
    """A loop and everything it was made of; `again` is the same command in another process."""

    def __init__(self, path: Path, executor: Executor, options: LoopOptions, storage: str, **space: Any) -> None:
        self.folder = LoopFolder(path)
        self.folder.prepare()
        self.store = Store(self.folder.store, create=True)
        self.lines: list[str] = []
        self.planner = Planner(
            ladder("qwen2.5"), budget=BUDGET, reward="prm", storage=open_storage(self.folder.path / storage),
            **{"rule": NEVER, "pilot_budget": BUDGET // 10, "sizes": [BUDGET // 40], **space},
        )  # fmt: skip
        self.loop = Loop(
            self.planner, executor, folder=self.folder, store=self.store, options=options, tell=self.lines.append
        )

    @property
    def records(self) -> dict[str, PilotRecord]:
        loaded = self.store.records()
        assert not loaded.problems
        return {record.id: record for record in loaded.records}

    def check(self) -> None:
        """What holds at any moment between two turns."""
        pilots = self.planner.progress.pilots
        told = [p.record.id for p in pilots if p.record is not None]
        assert len(set(told)) == len(told)
        assert set(told) == set(self.records)
        assert self.planner.progress.spent <= self.planner.space.pilot_budget
        assert self.planner.progress.spent == pytest.approx(
            sum(r.spent for r in self.records.values()) + sum(p.charged for p in pilots if p.record is None)
        )


Make = Callable[..., Made]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        executor: Executor | None = None, *, storage: str = "study.db", where: str = "loop",
        options: LoopOptions | None = None, **space: Any,
    ) -> Made:  # fmt: skip
        chosen = SimulatorExecutor("own-0", slots=2) if executor is None else executor
        return Made(tmp_path / where, chosen, options or LoopOptions(prune=False), storage, **space)

    return build


def failing(spec: PilotSpec) -> PilotRecord:
    """A world in which nothing works."""
    record = world("own-0")(spec)
    health = replace(record.health, status="failed", reason="out of memory")
    return replace(record, curves={}, health=health, flops=replace(record.flops, search=0, learning=0, reward=0))
