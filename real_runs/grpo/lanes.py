"""Micro-batches side by side on a CPU.

Small matmuls do not fill two cores: half of a nano step is norms, activations and copies, each too short to be split
between threads, and every split ends in a barrier. One thread per micro-batch with single-threaded kernels uses the
cores better, and far better when the machine is shared. Results are added up in the order of the micro-batches, so
they do not depend on who finishes first.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

T = TypeVar("T")
R = TypeVar("R")


class Lanes:
    """``count`` threads that work on micro-batches; one is no thread at all.

    Under a dispatch mode (a FLOP counter, say) everything stays in the calling thread: such a mode watches one thread.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None
        self._place = threading.local()
        self._numbers = itertools.count()

    @property
    def count(self) -> int:
        """How many micro-batches run at once."""
        return 1 if _get_current_dispatch_mode() is not None else self._count

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``work`` on every item; results in the order of the items."""
        if self.count == 1 or len(items) < 2:
            return [work(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, "lane", initializer=self._start)

        def on_own_cpu(item: T) -> R:
            with _cpu(self._place.number, self._count):
                return work(item)

        with single_threaded_kernels():
            return list(self._pool.map(on_own_cpu, items))

    def _start(self) -> None:
        torch.set_num_threads(1)
        self._place.number = next(self._numbers)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


@contextmanager
def _cpu(number: int, lanes: int) -> Iterator[None]:
    """Hold the calling thread on the ``number``-th CPU while it works on a micro-batch.

    A thread that waits for Python's lock is woken on the CPU of the one that gave it up. On a busy machine both then
    stay there, one waiting for the other, with half the cores unused (measured: 165 ms instead of 95). Where there are
    more CPUs than lanes, the system has better places to choose from, and nothing is held.
    """
    # macOS has no affinities.
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    if len(allowed) != lanes:
        yield
        return
    os.sched_setaffinity(0, {sorted(allowed)[number]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def single_threaded_kernels() -> Iterator[None]:
    """One thread per kernel inside; as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
