"""Micro-batches side by side on a CPU.

Small matmuls do not fill two cores: half of a nano step is norms, activations and copies, each too short to be split
between threads, and every split ends in a barrier. One thread per micro-batch with single-threaded kernels uses the
cores better, and far better when the machine is shared. Results are added up in the order of the micro-batches, so
they do not depend on who finishes first.
"""

from __future__ import annotations

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

    @property
    def count(self) -> int:
        """How many micro-batches run at once."""
        return 1 if _get_current_dispatch_mode() is not None else self._count

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``work`` on every item; results in the order of the items."""
        if self.count == 1 or len(items) < 2:
            return [work(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, "lane", initializer=torch.set_num_threads, initargs=(1,))
        with single_threaded_kernels():
            return list(self._pool.map(work, items))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


@contextmanager
def single_threaded_kernels() -> Iterator[None]:
    """One thread per kernel inside; as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
