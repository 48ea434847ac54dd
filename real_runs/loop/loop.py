"""Plan, run, learn, until sure.

One turn: take what has ended, learn from it, stop what no longer matters, start what is wanted next. Everything that
must survive is in the study and the pilots' folders before the next turn begins:

    claim (in the study, reserved) -> submit (in its folder) -> finish (in the study) -> add (in the store)

A process that dies between two of these leaves a trial whose lease runs out. Whoever finds it goes on with the same
job in the same folder; a job that had ended there comes back at once; and the store is completed from the study at
every start. So no record is lost, none counts twice, and what a dead pilot may have spent stays charged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from planner.decision import Decision
from planner.leases import RENEWALS, Lease, Owner, Watch
from planner.locks import first_line
from planner.memory import Claim, StudyMemory
from planner.planner import Planner
from planner.progress import Progress
from planner.proposer import NoProposal
from planner.storage import Busy, storage_errors
from race.errors import CannotDo, InvalidInput, RaceError
from race.records import ENDED, PRUNED, STOPPED, PilotRecord
from race.store import Store
from real_runs.executors._base import Executor, Job, Outcome
from real_runs.executors.limits import HOPELESS_CODES, WORKER_LOST
from real_runs.executors.results import broken_record, charged
from real_runs.loop.charging import charged_in_full, exit_code, spent_before, start_again
from real_runs.loop.folder import LoopFolder
from real_runs.loop.pruning import PruneChecks
from real_runs.loop.state import Ending, LoopOptions, LoopState

T = TypeVar("T")


class Loop:
    """Runs one planner's pilots through one executor.

    Parameters
    ----------
    planner
        With a study to plan in.
    executor
        Not entered yet; it is left again when `run` returns or raises.
    folder, store
        Where pilots run, and where records go.
    watch
        Called about once a turn.
    tell
        Called with a line for people, now and then.
    """

    def __init__(
        self,
        planner: Planner,
        executor: Executor,
        *,
        folder: LoopFolder,
        store: Store,
        options: LoopOptions | None = None,
        watch: Callable[[LoopState], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.planner, self.executor = planner, executor
        self.folder, self.store = folder, store
        self.options = options or LoopOptions()
        self.owner = Owner.here()
        self.busy = 0.0
        self._watch = watch or (lambda state: None)
        self._tell = tell or (lambda line: None)
        self._leases = Watch(ttl=self.options.ttl)
        self._claims: dict[str, Claim] = {}
        # Pilots that were asked to end: the flag and the reason of each.
        self._stopped: dict[str, tuple[str, str]] = {}
        self._failures: list[str] = []
        self._tries: dict[str, int] = {}
        self._checks = PruneChecks(planner, executor) if self.options.prune else None
        self._decided: tuple[tuple[str, ...], Decision] | None = None
        self._started = time.monotonic()
        self._renewed = self._looked = self._started
        self._spent_before: float | None = None

    @property
    def memory(self) -> StudyMemory:
        """The study."""
        return self.planner.memory

    def run(self) -> Ending:
        """Go on until there is a reason to end.

        Raises
        ------
        CannotDo
            The storage stays out of reach, or the disk is full. Running pilots are asked to checkpoint first.
        KeyboardInterrupt
            Likewise; the same loop started again goes on.
        """
        try:
            with self.executor:
                self._mirror()
                return self._turns()
        finally:
            # Not before the pilots have ended: whoever takes them over must not meet them.
            self._release()

    # -- turns -----------------------------------------------------------------------------------------------------

    def _turns(self) -> Ending:
        ending: Ending | None = None
        while True:
            outcomes = self.executor.wait(self._pause(ending))
            begun = time.monotonic()
            for outcome in outcomes:
                self._take(outcome)
            self._renew()
            progress = self._study(self.memory.progress)
            if ending is None:
                ending = self._certain(progress) or self._failing()
                if ending is not None:
                    self._stop_all(ending)
            if ending is None:
                self._prune(progress)
                nothing = self._fill()
                if not self.executor.running() and nothing is not None and not self._elsewhere():
                    ending = self._exhausted(nothing)
            self._show(ending)
            self.busy += time.monotonic() - begun
            if ending is not None and not self.executor.running():
                return ending

    def _pause(self, ending: Ending | None) -> float:
        if self.executor.running():
            return self.options.turn
        if ending is None and self._looked > self._started:
            # Nothing to do but wait for other loops' pilots.
            time.sleep(min(self.options.turn, 1.0))
        self._looked = time.monotonic()
        return 0.0

    def _fill(self) -> str | None:
        """Start pilots until all slots are taken; why no more, when there is a free one.

        Pilots that have ended and were not looked at yet count too: asking takes a while, and where pilots end faster
        than that, nothing would ever be learned from them.
        """
        while len(self._claims) < self.executor.slots:
            inherited = self._inherit()
            if inherited is not None:
                self._again(inherited)
                continue
            try:
                claim = self._study(lambda: self.memory.claim(self.owner, str(self.folder.pilots)))
            except NoProposal as nothing:
                return str(nothing)
            self._claims[claim.job] = claim
            self.executor.submit(_job(claim))
        return None

    def _again(self, claim: Claim) -> None:
        """Start a pilot that was started before, if what that has cost and may cost once more can be paid for."""
        job = _job(claim)
        self._claims[claim.job] = claim
        if not self.options.lost_work_inside:
            spent = spent_before(job)
            if spent and not self._study(partial(self.memory.extend, claim, spent)):
                reason = "its runner has ended, and the pilot budget does not pay for doing its work again"
                self._take(Outcome(job, broken_record(job, "failed", reason, evidence="real"), 0.0, 0))
                return
            start_again(job)
        self.executor.submit(job)

    def _inherit(self) -> Claim | None:
        """A pilot whose owner is gone, to go on with."""
        others = {n: lease for n, lease in self._study(self.memory.held).items() if lease.owner != self.owner}
        for number, reason in self._expired(others).items():
            seen = others[number]
            folder = self._where(number, seen)
            if folder is not None:
                claim = self._study(partial(self.memory.take_over, number, self.owner, seen, folder))
                if claim is not None:
                    self._tell(f"going on with pilot {number}: {reason}")
                    return claim
            elif self._study(partial(self.memory.abandon, number, seen, reason)):
                self._tell(
                    f"pilot {number} is lost: {reason}, and its folder is not on this machine; all of its FLOPs stay "
                    "charged"
                )
        return None

    def _expired(self, others: dict[int, Lease]) -> dict[int, str]:
        if self.memory.storage.shared:
            return self._leases.expired(others)
        # This process owns the study: whoever has a lease in it has ended.
        return dict.fromkeys(others, "the loop that ran it has ended")

    def _where(self, number: int, lease: Lease) -> str | None:
        """Where to go on with a pilot; ``None`` when its folder cannot be seen from here."""
        job = self.memory.job(number)
        for folder in (lease.folder, str(self.folder.pilots)):
            if folder and (Path(folder) / job).exists():
                return folder
        # Its folder would be here: so it had not been started.
        here = not self.memory.storage.shared or (lease.machine != "" and lease.machine == self.owner.machine)
        return str(self.folder.pilots) if here else None

    def _take(self, outcome: Outcome) -> None:
        """Keep how a pilot ended: in the study first, which the store is completed from."""
        claim = self._claims.pop(outcome.job.id)
        if self._retried(claim, outcome):
            return
        record = outcome.record
        if not self.options.lost_work_inside:
            # Attempts of earlier processes too, of which this executor knows nothing.
            record = charged(record, outcome.job, max(2, outcome.attempts))
        if "flops-unknown" in record.health.flags and exit_code(record) not in HOPELESS_CODES:
            record = charged_in_full(record)
        asked = self._stopped.pop(outcome.job.id, None)
        if asked is not None and STOPPED in record.health.flags:
            flags = tuple(flag for flag in record.health.flags if flag != STOPPED)
            health = replace(record.health, reason=": ".join(asked), flags=(*flags, asked[0]))
            record = replace(record, health=health)
        if not self._study(partial(self.memory.finish, claim, record, self.owner)):
            return
        self._add(record)
        empty = record.health.status in ("failed", "timeout") and not {PRUNED, ENDED} & set(record.health.flags)
        self._failures = [*self._failures, record.health.reason] if empty and not record.curves else []
        if record.health.status != "ok" and asked is None:
            self._tell(f"pilot {claim.number} {record.health.status}: {record.health.reason}")

    def _retried(self, claim: Claim, outcome: Outcome) -> bool:
        """Start a pilot again whose runner crashed, as often as allowed."""
        record = outcome.record
        # 0 is a runner that ended well and left garbage; stopped and timed-out ones have had their chance.
        crashed = record.health.status == "failed" and (
            exit_code(record) not in (0, None, *HOPELESS_CODES) or WORKER_LOST in record.health.flags
        )
        tries = self._tries.get(claim.job, 0)
        if not crashed or tries >= self.options.retries or set(record.health.flags) & {STOPPED, "timed-out"}:
            return False
        self._tries[claim.job] = tries + 1
        self._tell(f"pilot {claim.number}: {record.health.reason}; trying again")
        self._again(claim)
        return True

    def _add(self, record: PilotRecord) -> None:
        if record.id in self.store:
            return
        try:
            self.store.add(record)
        except InvalidInput:
            if record.id not in self.store:  # else another loop was faster
                raise

    def _mirror(self) -> None:
        """Bring into the store what the study knows and a killed process did not get to write."""
        for record in self._study(lambda: [p.record for p in self.memory.progress().pilots]):
            if record is not None:
                self._add(record)

    # -- reasons to end ----------------------------------------------------------------------------------------------

    def _decide(self, progress: Progress) -> Decision:
        key = tuple(record.id for record in progress.records)
        if self._decided is None or self._decided[0] != key:
            decision = self.planner.proposer.decide(progress)
            self._decided = key, decision
            self.folder.note(
                {
                    "study": self.memory.token,
                    "finished": progress.finished,
                    "spent": progress.spent,
                    "regime": dict(decision.view.regimes),
                    "models": dict(decision.view.models),
                    "rho": decision.rho.to_dict(),
                    "value": decision.view.value.to_dict(),
                    "targets": {v.target: dict(v.regimes) for v in decision.others},
                }
            )
        return self._decided[1]

    def _certain(self, progress: Progress) -> Ending | None:
        self._decide(progress)
        stop = self.planner.proposer.stop(progress, self.planner.rule, finished=_learned(progress))
        return Ending(stop.code, stop.reason) if stop is not None and stop.code == "regime-certain" else None

    def _failing(self) -> Ending | None:
        count = len(self._failures)
        if count < self.options.failures:
            return None
        return Ending("pilots-fail", f"{count} pilots in a row failed without measuring anything: {self._failures[-1]}")

    def _exhausted(self, nothing: str) -> Ending:
        if self._failures and not _learned(self._study(self.memory.progress)):
            return Ending("pilots-fail", f"no pilot has measured anything: {self._failures[-1]}")
        stop = self.planner.stopped()
        return Ending("budget-spent", nothing) if stop is None else Ending(stop.code, stop.reason)

    def _elsewhere(self) -> int:
        """Pilots that other loops run, or that wait to be taken over."""
        return sum(lease.owner != self.owner for lease in self._study(self.memory.held).values())

    # -- pilots that no longer matter --------------------------------------------------------------------------------

    def _prune(self, progress: Progress) -> None:
        if self._checks is None:
            return
        running = [job for job in self.executor.running() if job.id not in self._stopped]
        found = self._checks.look(running, progress)
        if found is not None:
            self._stop(found[0], PRUNED, found[1].reason)

    def _stop_all(self, ending: Ending) -> None:
        for job in reversed(self.executor.running()):  # those that wait must not start when a slot becomes free
            self._stop(job, ENDED, ending.reason)

    def _stop(self, job: Job, flag: str, reason: str) -> None:
        if job.id not in self._stopped:
            self._stopped[job.id] = flag, reason
            self.executor.stop(job, reason=reason)

    # -- leases ------------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        now = time.monotonic()
        if now - self._renewed < self.options.ttl / RENEWALS:
            return
        self._renewed = now
        mine = self._study(lambda: self.memory.renew(self.owner))
        for job in self.executor.running():
            claim = self._claims[job.id]
            if claim.number not in mine and job.id not in self._stopped:
                self._tell(f"pilot {claim.number} is run by another loop now: this one was out of touch for too long")
                self._stop(job, ENDED, "another loop has taken it over")

    def _release(self) -> None:
        try:
            self.memory.release(self.owner)
        except CannotDo:
            return  # busy: the leases run out by themselves
        except storage_errors():
            return  # out of reach: likewise

    # -- around --------------------------------------------------------------------------------------------------------

    def _show(self, ending: Ending | None) -> None:
        progress = self._study(self.memory.progress)
        running = tuple((job, self.executor.progress(job) or 0.0) for job in self.executor.running())
        spent = sum(p.charged for p in progress.pilots if p.state != "running") + sum(flops for _, flops in running)
        # Ended since the outcomes were taken: they are looked at in the next turn.
        seen = {job.id for job, _ in running}
        spent += sum(claim.spec.budget for job, claim in self._claims.items() if job not in seen)
        seconds = time.monotonic() - self._started
        if self._spent_before is None:
            self._spent_before = spent
        self._watch(
            LoopState(
                progress=progress,
                decision=self._decide(progress),
                running=running,
                spent=spent,
                budget=self.planner.space.pilot_budget,
                elsewhere=max(0, len(progress.pending) - len(self._claims)),
                seconds=seconds,
                rate=(spent - self._spent_before) / seconds if seconds > 0 else 0.0,
                ending=ending,
            )
        )

    def _study(self, call: Callable[[], T]) -> T:
        """Call the study; wait and try again while its storage is out of reach."""
        until = time.monotonic() + self.options.patience
        wait = 0.5
        while True:
            try:
                return call()
            except Busy:
                if time.monotonic() > until:
                    raise
            except RaceError:
                raise
            except storage_errors() as error:
                where = self.memory.storage.where
                if time.monotonic() > until:
                    raise CannotDo(
                        f"storage: {where} has been out of reach for {self.options.patience:.0f} s: "
                        f"{first_line(error)}; nothing is lost, run the same command again when it is back"
                    ) from error
                self._tell(f"storage: {where} does not answer ({first_line(error)}); trying again")
            time.sleep(wait)
            wait = min(2 * wait, 10.0)


def _learned(progress: Progress) -> int:
    """Pilots that have taught something. The prior alone can be certain, however many runs have failed."""
    return sum(
        p.record is not None and bool(p.record.curves) and p.record.health.status != "failed" for p in progress.pilots
    )


def _job(claim: Claim) -> Job:
    return Job(claim.job, claim.spec, Path(claim.folder) / claim.job)
