"""Grading in killable processes, under a wall-clock limit that the grading code cannot see, delay or disarm.

math-verify's own limit is a SIGALRM: it does not fire on exponent towers, raises outside the main thread, and clears
an alarm of yours. Here the parent keeps the clock, so grading works from any thread and leaves signals alone.

    with Grader(timeout=3.0) as grader:
        verdicts = grader.grade([(gold, completion), ...])
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from race.errors import CannotDo, InvalidInput
from real_runs.grading.extract import MAX_TEXT_CHARS
from real_runs.grading.nursery import Nursery
from real_runs.grading.verdict import Verdict
from real_runs.grading.wire import frame, receive

DEFAULT_TIMEOUT = 3.0
DEFAULT_MEMORY_MB = 1024
# sympy's caches only grow; a fresh fork costs milliseconds.
_GRADINGS_PER_PROCESS = 5_000


@dataclass(eq=False)
class _Worker:
    pid: int
    link: socket.socket
    graded: int = 0


class Grader:
    """A pool of grading processes.

    Parameters
    ----------
    workers
        Processes; default: one per core, at most 4.
    timeout
        Wall-clock seconds one pair may take before its process is killed.
    memory_mb
        Address space of one grading process, in MiB (Linux). A fresh one needs about 300.
    cache
        Verdicts remembered, so that reward, accuracy log and evaluation of the same completions grade them once, and
        a group that collapsed onto one hanging answer pays its timeout once.

    Raises
    ------
    InvalidInput
        A parameter out of range.
    CannotDo
        When first used: math-verify is not installed, or processes cannot be started here.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        memory_mb: int = DEFAULT_MEMORY_MB,
        cache: int = 4096,
    ) -> None:
        workers = min(4, os.cpu_count() or 1) if workers is None else workers
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= 256:
            raise InvalidInput(f"workers: found {workers!r}; allowed is a whole number from 1 to 256")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0.05 <= timeout <= 3600:
            raise InvalidInput(f"timeout: found {timeout!r}; allowed is seconds from 0.05 to 3600")
        if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or not 512 <= memory_mb <= 1 << 20:
            raise InvalidInput(f"memory_mb: found {memory_mb!r}; allowed is MiB from 512 to 1048576")
        if isinstance(cache, bool) or not isinstance(cache, int) or cache < 0:
            raise InvalidInput(f"cache: found {cache!r}; allowed is a whole number >= 0")
        self.workers = workers
        self._remembered = _Memory(cache)
        self.timeout = float(timeout)
        self._nursery = Nursery(memory_mb << 20)
        self._owner = os.getpid()
        self._free = threading.Condition()
        self._idle: deque[_Worker] = deque()
        self._live = 0
        self._closed = False

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop every grading process; calling it again does nothing."""
        with self._free:
            self._closed = True
            while self._idle:
                self._idle.popleft().link.close()
        if os.getpid() == self._owner:
            self._nursery.close()

    def grade(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Grade (gold, completion) pairs, in order; the gold comes first, always.

        Takes at most ``timeout`` per pair and process. Whatever a completion holds, the answer is a verdict.

        Raises
        ------
        InvalidInput
            Something that is not a pair of strings.
        CannotDo
            The pool is closed, belongs to another process, or its processes cannot be started.
        """
        checked = _checked(pairs)
        keys = [_key(pair) for pair in checked]
        known = self._remembered.look_up(keys)
        first = {key: pair for key, pair in reversed(list(zip(keys, checked, strict=True))) if key not in known}
        if first:
            fresh = dict(zip(first, self._grade(list(first.values())), strict=True))
            self._remembered.add(fresh)
            known |= fresh
        return [known[key] for key in keys]

    def _grade(self, pairs: list[tuple[str, str]]) -> list[Verdict]:
        jobs = deque(enumerate(pairs))
        verdicts: dict[int, Verdict] = {}
        with self._claim(len(jobs)) as team, selectors.DefaultSelector() as selector:
            ready = list(team)
            running: dict[_Worker, tuple[int, float]] = {}
            while jobs or running:
                while ready and jobs:
                    worker = ready.pop()
                    index, (gold, completion) = jobs.popleft()
                    deadline = time.monotonic() + self.timeout
                    if not _send(worker, gold, completion):
                        verdicts[index] = Verdict("could-not-grade", "crash", by="pool")
                        ready.append(self._replace(team, worker))
                        continue
                    running[worker] = (index, deadline)
                    selector.register(worker.link, selectors.EVENT_READ, worker)
                if not running:
                    continue
                first = min(deadline for _, deadline in running.values())
                for key, _ in selector.select(max(0.0, first - time.monotonic())):
                    worker = key.data
                    selector.unregister(worker.link)
                    index, _ = running.pop(worker)
                    verdict = _receive(worker)
                    verdicts[index] = verdict or Verdict("could-not-grade", "crash", by="pool")
                    spent = verdict is None or verdict.reason == "memory" or worker.graded >= _GRADINGS_PER_PROCESS
                    ready.append(self._replace(team, worker) if spent else worker)
                now = time.monotonic()
                for worker in [w for w, (_, deadline) in running.items() if deadline <= now]:
                    selector.unregister(worker.link)
                    index, _ = running.pop(worker)
                    verdicts[index] = Verdict("could-not-grade", "timeout", by="pool")
                    ready.append(self._replace(team, worker))
        return [verdicts[k] for k in range(len(verdicts))]

    @contextmanager
    def _claim(self, jobs: int) -> Iterator[list[_Worker]]:
        """Hold workers for one call: what is free, up to the need; wait for the first one only."""
        if os.getpid() != self._owner:
            raise CannotDo("grading: this Grader was made in another process; make one in each process")
        team: list[_Worker] = []
        with self._free:
            while not self._closed and not self._idle and self._live >= self.workers:
                self._free.wait()
            if self._closed:
                raise CannotDo("grading: this Grader is closed; make a new one")
            while len(team) < min(jobs, self.workers) and (self._idle or self._live < self.workers):
                if self._idle:
                    team.append(self._idle.pop())
                else:
                    team.append(self._start())
                    self._live += 1
        clean = False
        try:
            yield team
            clean = True
        finally:
            with self._free:
                for worker in team:
                    if self._closed or not clean:  # interrupted: a late reply must not answer the next pair
                        self._nursery.kill(worker.pid)
                        worker.link.close()
                        self._live -= 1
                    else:
                        self._idle.append(worker)
                self._free.notify_all()

    def _start(self) -> _Worker:
        pid, link = self._nursery.fork()
        link.settimeout(self.timeout)
        return _Worker(pid, link)

    def _replace(self, team: list[_Worker], worker: _Worker) -> _Worker:
        """Kill a worker and put a fresh one in its place."""
        self._nursery.kill(worker.pid)
        worker.link.close()
        fresh = self._start()
        team[team.index(worker)] = fresh
        return fresh


def _checked(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    out = []
    for k, pair in enumerate(pairs):
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(x, str) for x in pair)):
            raise InvalidInput(f"pairs[{k}]: found {type(pair).__name__}; allowed is (gold, completion), two strings")
        out.append((pair[0][:MAX_TEXT_CHARS], pair[1][-MAX_TEXT_CHARS:]))
    return out


class _Memory:
    """The verdicts of the most recent distinct pairs."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._verdicts: dict[bytes, Verdict] = {}
        self._lock = threading.Lock()

    def look_up(self, keys: Iterable[bytes]) -> dict[bytes, Verdict]:
        with self._lock:
            return {key: self._verdicts[key] for key in keys if key in self._verdicts}

    def add(self, verdicts: dict[bytes, Verdict]) -> None:
        with self._lock:
            self._verdicts |= verdicts
            while len(self._verdicts) > self._size:
                del self._verdicts[next(iter(self._verdicts))]


def _key(pair: tuple[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(pair).encode()).digest()


def _send(worker: _Worker, gold: str, completion: str) -> bool:
    try:
        worker.link.sendall(frame(json.dumps([gold, completion]).encode()))
    except OSError:
        return False
    return True


def _receive(worker: _Worker) -> Verdict | None:
    """The verdict, or ``None`` when the process died over it."""
    try:
        data = receive(worker.link)
        worker.graded += 1
        return None if data is None else Verdict.from_list(json.loads(data))
    except (OSError, ValueError):
        return None
