"""Studies that several processes use: who may ask, who runs what, and the pilot budget in any case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from planner import NoProposal
from planner.journal import TolerantJournal
from planner.leases import Lease, Owner, Watch
from planner.locks import FileLock
from planner.memory import Claim, StudyMemory, own_prefix
from planner.storage import open_storage
from race.allocation import Allocation
from race.errors import CannotDo, InvalidInput
from race.records import Curve, Health, PilotRecord
from tests.planner.claiming import proposer
from tests.planner.postgres import server_binaries, throwaway_server

PILOTS = 6
HERE = Owner.here()
OTHER = replace(HERE, id="other", machine="elsewhere")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: pip install 'race-rl[postgres]'")
    if server_binaries() is None:
        pytest.skip("no PostgreSQL server here: install Debian's package postgresql")
    with throwaway_server() as url:
        yield url


@pytest.fixture
def memory(tmp_path: Path) -> StudyMemory:
    return StudyMemory.open(proposer(PILOTS), storage=open_storage(tmp_path / "study.journal"), name="one")


def record(claim: Claim, *, share: float = 1.0, status: str = "ok", **more: object) -> PilotRecord:
    spent = claim.spec.budget * share
    return PilotRecord(
        spec=claim.spec,
        flops=Allocation(spent / 2, spent / 2, 0),
        curves={} if status == "failed" else {"native": Curve((0, 9), (0.0, spent), (0.2, 0.4), (0.01, 0.01))},
        evidence="real",
        health=Health(status, "" if status == "ok" else "a reason"),  # type: ignore[arg-type]
        id=claim.job,
        **more,  # type: ignore[arg-type]
    )


def claimed_by_processes(storage: str, locks: str, processes: int, name: str) -> list[list[dict[str, object]]]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "tests.planner.claiming", storage, name, str(PILOTS), locks]
    root = Path(__file__).resolve().parents[2]
    started = [
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=root)
        for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = [process.communicate("go\n", timeout=120)[0] for process in started]
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("locks", ["locked", "unlocked"])
def test_processes_on_postgres_never_overspend_and_never_share_a_pilot(postgres: str, locks: str) -> None:
    """With the lock, and, as behind a connection pooler that has lost it, without."""
    found = claimed_by_processes(postgres, locks, 3, f"claims-{locks}")
    claims = [claim for some in found for claim in some]
    assert len({c["number"] for c in claims}) == len({c["job"] for c in claims}) == len(claims)
    place = open_storage(postgres)
    memory = StudyMemory.open(proposer(PILOTS), storage=place, name=f"claims-{locks}")
    assert memory.progress().spent <= memory.space.pilot_budget
    assert len(claims) == len(memory.progress().pilots) <= PILOTS
    if locks == "locked":
        assert len(claims) == PILOTS
        cells = {(c["spec"]["model"], c["spec"]["rho"]) for c in claims}  # type: ignore[index]
        assert len(cells) == PILOTS  # each knew of those before it
    place.close()


def test_processes_on_a_journal_share_it(tmp_path: Path) -> None:
    found = claimed_by_processes(str(tmp_path / "study.journal"), "locked", 2, "claims")
    claims = [claim for some in found for claim in some]
    assert len({c["number"] for c in claims}) == len(claims) == PILOTS


def test_a_pilot_the_budget_cannot_pay_for_is_withdrawn(memory: StudyMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens to the slower of two that asked at the same time without a lock."""
    for _ in range(PILOTS - 1):
        memory.claim(HERE)
    before = memory._trials()
    memory.claim(OTHER)
    now, trials = memory.progress, memory._trials
    looks = [before]  # the first look is from before the other one's claim
    monkeypatch.setattr(memory, "_trials", lambda: looks.pop() if looks else trials())
    with pytest.raises(NoProposal, match="meanwhile"):
        memory.claim(HERE)
    assert now().spent == pytest.approx(memory.space.pilot_budget)
    assert len(now().pilots) == PILOTS


def test_an_unreachable_database_is_one_line_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(CannotDo, match=r"storage: .*127\.0\.0\.1:1") as caught:
        open_storage("postgresql://somebody:secret@127.0.0.1:1/race")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_one_process_owns_an_sqlite_study(tmp_path: Path) -> None:
    place = open_storage(tmp_path / "study.db")
    place.own()
    code = (
        "import sys; from planner.storage import open_storage; from race.errors import CannotDo\n"
        "try:\n    open_storage(sys.argv[1]).own()\nexcept CannotDo as error:\n    print(error)"
    )
    line = [sys.executable, "-c", code, str(tmp_path / "study.db")]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert f"in use by process {os.getpid()}" in said
    assert "postgresql://" in said
    with pytest.raises(CannotDo, match="in use"):
        open_storage(tmp_path / "study.db").own()
    place.close()
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == ""


def test_a_file_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, sys; from pathlib import Path; from planner.storage import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); assert lock.acquire(); print('held', flush=True); sys.stdin.read()"
    )
    line = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = FileLock(path)
        assert not lock.acquire()
        holder.kill()
        holder.wait()
        assert lock.acquire()
        lock.release()


def test_leases_expire_by_standing_still_and_by_no_clock_of_anybody() -> None:
    now = [1000.0]
    watch = Watch(ttl=60, clock=lambda: now[0])
    lease = Lease(OTHER)
    assert watch.expired({3: lease}) == {}
    now[0] += 59
    assert watch.expired({3: lease}) == {}
    lease = lease.renewed()
    now[0] += 59
    assert watch.expired({3: lease}) == {}
    now[0] += 60
    assert list(watch.expired({3: lease})) == [3]
    # Somebody else's pilot in its place is looked at afresh.
    assert watch.expired({3: lease.taken(OTHER, "")}) == {}


def test_an_owner_that_has_died_on_this_machine_is_known_at_once() -> None:
    if not HERE.machine:
        pytest.skip("this system does not tell processes apart")
    assert HERE.is_gone() is False
    assert OTHER.is_gone() is None
    with subprocess.Popen(["sleep", "100"]) as process:
        started = Owner.here()
        alive = replace(started, id="x", pid=process.pid)
        assert replace(alive, started=1).is_gone() is True  # a number that is used again
        process.kill()
        process.wait()
        assert alive.is_gone() is True
    assert Watch().expired({0: Lease(alive), 1: Lease(HERE)}).keys() == {0}


def test_a_pilot_changes_hands_once(memory: StudyMemory) -> None:
    claim = memory.claim(OTHER, "/there")
    seen = memory.held()[claim.number]
    assert (seen.owner, seen.folder) == (OTHER, "/there")
    assert memory.renew(OTHER) == {claim.number}
    assert memory.take_over(claim.number, HERE, seen, "/here") is None  # it lives after all
    seen = memory.held()[claim.number]
    assert memory.take_over(claim.number, HERE, seen, "/here") == replace(claim, folder="/here")
    assert memory.take_over(claim.number, OTHER, seen, "/there") is None
    assert not memory.abandon(claim.number, seen, "gone")
    assert memory.renew(OTHER) == set()
    assert memory.renew(HERE) == {claim.number}


def test_a_released_pilot_waits_for_anybody(memory: StudyMemory) -> None:
    claim = memory.claim(HERE, "/here")
    assert memory.release(HERE) == 1
    lease = memory.held()[claim.number]
    assert lease.owner is None
    assert lease.machine == HERE.machine
    assert Watch().expired({claim.number: lease}).keys() == {claim.number}
    assert memory.progress().pending == (claim.spec,)


def test_what_a_lost_pilot_still_brings(memory: StudyMemory) -> None:
    """Its failure is nobody's business any more; its result is data, and counts once."""
    claim = memory.claim(OTHER)
    assert memory.take_over(claim.number, HERE, memory.held()[claim.number], "") is not None
    assert not memory.finish(claim, record(claim, status="failed"), OTHER)
    assert memory.finish(claim, record(claim), OTHER)
    assert memory.finish(claim, record(claim), HERE)
    assert [p.record for p in memory.progress().pilots] == [record(claim)]


def test_an_abandoned_pilot_stays_charged_until_its_result_turns_up(memory: StudyMemory) -> None:
    claim = memory.claim(OTHER)
    assert memory.abandon(claim.number, memory.held()[claim.number], "its machine is gone")
    assert memory.progress().spent == pytest.approx(claim.spec.budget)
    assert memory.finish(claim, record(claim, share=0.5), OTHER)
    assert memory.progress().spent == claim.spec.budget / 2
    assert memory.progress().finished == 1


def test_work_done_again_is_reserved_first(memory: StudyMemory) -> None:
    claims = [memory.claim(HERE) for _ in range(PILOTS - 1)]
    size = claims[0].spec.budget
    assert memory.extend(claims[0], 0.75 * size)
    assert memory.progress().spent == pytest.approx((PILOTS - 0.25) * size)
    assert memory.extend(claims[0], 0.75 * size)  # of the same attempts: nothing more to reserve
    assert not memory.extend(claims[1], 0.5 * size)
    with pytest.raises(NoProposal):
        memory.claim(HERE)
    told = record(claims[0], provenance={"lost_flops": {"search": 0.25 * size, "learning": 0.5 * size}})
    assert memory.finish(claims[0], told, HERE)
    assert memory.progress().spent == pytest.approx((PILOTS - 0.25) * size)


def test_a_study_keeps_how_its_pilots_are_run(memory: StudyMemory) -> None:
    memory.agree(executor="real runs")
    memory.agree(executor="real runs")
    with pytest.raises(InvalidInput, match="executor: found 'simulator:own-0', the study one"):
        memory.agree(executor="simulator:own-0")


def test_jobs_of_studies_of_one_name_differ(tmp_path: Path) -> None:
    places = [open_storage(tmp_path / f"{i}.journal") for i in range(2)]
    assert own_prefix(places[0], "a name/with:signs") is None
    jobs = []
    for place in places:
        memory = StudyMemory.open(proposer(PILOTS), storage=place, name="a name/with:signs")
        jobs.append(memory.claim(HERE).job)
        prefix = own_prefix(place, "a name/with:signs")
        assert prefix is not None
        assert jobs[-1].startswith(prefix)
    assert jobs[0] != jobs[1]
    assert jobs[0].startswith("a-name-with-signs-")


def test_a_pilot_from_the_queue_is_claimed_like_any_other(memory: StudyMemory) -> None:
    memory.study.enqueue_trial({"model": 1, "rho": 0.5, "size": 0})
    claim = memory.claim(HERE, "/here")
    assert claim.spec.model == memory.space.models[1].name
    assert memory.held()[claim.number].owner == HERE


def test_a_torn_journal_is_read_on(tmp_path: Path) -> None:
    """A writer killed in the middle of a line; then one on a file system that loses bytes."""
    path = tmp_path / "study.journal"

    def opened() -> StudyMemory:
        return StudyMemory.open(proposer(PILOTS), storage=open_storage(path), name="one")

    first = opened().claim(HERE)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":5,"worker_id":"x","study_')
    again = opened()
    assert [p.spec for p in again.progress().pilots] == [first.spec]
    second = again.claim(HERE)
    third = opened().claim(HERE)
    assert (second.number, third.number) == (1, 2)
    path.write_bytes(path.read_bytes() + b"\x00\x00garbage\n[1, 2]\n")
    last = opened()
    assert [p.number for p in last.progress().pilots] == [0, 1, 2]
    assert last.claim(HERE).number == 3
    backend = TolerantJournal(path)
    assert len(list(backend.read_logs(0))) == len(list(TolerantJournal(path).read_logs(0)))
    assert backend.skipped == 3
    # A reader that was there all the time agrees with one that starts now.
    assert [p.spec for p in again.progress().pilots] == [p.spec for p in opened().progress().pilots]
