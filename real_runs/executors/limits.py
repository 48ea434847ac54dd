"""How patient an executor is, and with how many cores it may reckon."""

from __future__ import annotations

import os
from dataclasses import dataclass

from race.errors import InvalidInput

# What shells and command lines agree on: used wrongly, cannot be executed, not found. Trying again cannot help.
HOPELESS_CODES = (2, 126, 127)
# Flag of a record whose process or node died under it, where nobody saw an exit code: a crash like any other.
WORKER_LOST = "worker-lost"


@dataclass(frozen=True)
class Limits:
    """How patient an executor is.

    Attributes
    ----------
    timeout
        Seconds one attempt may run; ``None`` is no limit.
    retries
        Further attempts after a crash: a nonzero exit code other than `HOPELESS_CODES`, or a signal that we did not
        send. A wrong record and a timeout are not tried again.
    retry_wait
        Seconds before the next attempt, doubled each time.
    grace
        Seconds between asking a pilot to checkpoint and killing it.
    lock_wait
        Seconds to wait for another process to leave the job's folder (an orphan that is just ending).
    """

    timeout: float | None = None
    retries: int = 1
    retry_wait: float = 1.0
    grace: float = 30.0
    lock_wait: float = 60.0

    def __post_init__(self) -> None:
        for name in ("timeout", "retry_wait", "grace", "lock_wait"):
            value = getattr(self, name)
            if name == "timeout" and value is None:
                continue
            least = 0.0 if name != "timeout" else 1e-3
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1e8:
                raise InvalidInput(
                    f"{name}: found {value!r}; allowed is a number of seconds from {least:g} to 1e8"
                )
        if (
            isinstance(self.retries, bool)
            or not isinstance(self.retries, int)
            or not 0 <= self.retries <= 1000
        ):
            raise InvalidInput(f"retries: found {self.retries!r}; allowed is a whole number from 0 to 1000")


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
