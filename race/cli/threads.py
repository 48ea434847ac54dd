"""How many threads linear algebra gets in commands that fit or ask a surrogate."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any


def one_thread(command: Callable[..., Any]) -> Callable[..., Any]:
    """One thread for the linear algebra of ``command``, unless the environment says otherwise.

    A surrogate's matrices have some hundred rows: threads that wait for each other between such multiplications take
    more than twice the CPU time of one thread, and on a busy machine several times the wall time. Libraries read the
    variable when numpy is first imported, so this is the outermost decorator, and later it does nothing.
    """

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        if "numpy" not in sys.modules and not {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & set(os.environ):
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        return command(**values)

    return wrapper
