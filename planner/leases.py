"""Who is running a pilot, and whether they still do.

A running trial carries a lease: its owner, and a count that the owner raises as long as it lives. No clock is compared
between machines, and none that can jump is read: whoever watches calls a lease expired when its count has stood still
for `TTL_S` seconds of their own monotonic clock. So setting a clock, summer time and a suspended laptop neither end a
living pilot nor keep a dead one alive.

That takes a while, and after a crash nobody wants to wait. When the watcher runs on the owner's own machine (same
boot, same process namespace), it asks the kernel whether that process, with that start time, is there.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from race.errors import InvalidInput

# Renewed four times in this span; a loop is never busy with one thing for as long.
TTL_S = 120.0
RENEWALS = 4


@dataclass(frozen=True)
class Owner:
    """A process that runs pilots.

    Attributes
    ----------
    id
        Of this process and no other.
    host
        For people.
    machine
        Boot and process namespace, or empty where the system does not tell.
    pid, started
        Process number, and its start in clock ticks since boot: numbers are used again, pairs are not.
    """

    id: str
    host: str
    machine: str = ""
    pid: int = 0
    started: int = 0

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(uuid.uuid4().hex, socket.gethostname(), _machine(), pid, _started(pid) or 0)

    def is_gone(self) -> bool | None:
        """True or false where this machine can tell, else ``None``."""
        if not self.machine or self.machine != _machine() or not self.started:
            return None
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True)
class Lease:
    """A pilot's owner and how often it has renewed; without an owner the pilot waits for anybody to go on with it.

    Attributes
    ----------
    owner
        ``None`` when a loop ended in good order and left the pilot for later.
    count
        Raised by every renewal.
    last
        Who had it before, when nobody has it now: on whose machine its folder is.
    folder
        Absolute path of the folder its folder is in.
    """

    owner: Owner | None
    count: int = 0
    last: Owner | None = None
    folder: str = ""

    def renewed(self) -> Lease:
        """The same lease, renewed."""
        return replace(self, count=self.count + 1)

    def released(self) -> Lease:
        """Free for anybody."""
        return replace(self, owner=None, count=self.count + 1, last=self.owner or self.last)

    def taken(self, owner: Owner, folder: str) -> Lease:
        """The same pilot in other hands."""
        return Lease(owner, self.count + 1, None, folder)

    @property
    def machine(self) -> str:
        """Where the pilot has run last."""
        by = self.owner or self.last
        return by.machine if by is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "owner": None if self.owner is None else vars(self.owner),
            "count": self.count,
            "last": None if self.last is None else vars(self.last),
            "folder": self.folder,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Lease:
        """Build from plain JSON types.

        Raises
        ------
        InvalidInput
            It is not a lease.
        """
        try:
            owner, last = (None if data[name] is None else Owner(**data[name]) for name in ("owner", "last"))
            count, folder = data["count"], data["folder"]
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"lease: found {data!r}; allowed: owner, count, last, folder") from error
        if isinstance(count, bool) or not isinstance(count, int):
            raise InvalidInput(f"lease.count: found {count!r}; allowed is a whole number")
        return cls(owner, count, last, str(folder))


class Watch:
    """Tells expired leases from living ones by looking at them again and again.

    Parameters
    ----------
    ttl
        Seconds without a renewal after which an owner is given up.
    clock
        Seconds that never jump.
    """

    def __init__(self, *, ttl: float = TTL_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl, self._clock = ttl, clock
        self._seen: dict[int, tuple[Lease, float]] = {}

    def expired(self, leases: Mapping[int, Lease]) -> dict[int, str]:
        """Trials whose owner is gone, with the reason; give it all leases of others at every look."""
        now = self._clock()
        # What is not running any more is forgotten; what has been renewed is looked at afresh.
        self._seen = {
            number: self._seen[number] if number in self._seen and self._seen[number][0] == lease else (lease, now)
            for number, lease in leases.items()
        }
        found = {}
        for number, (lease, since) in self._seen.items():
            if lease.owner is None:
                found[number] = "it was left for later"
            elif lease.owner.is_gone():
                found[number] = f"{lease.owner} is gone"
            elif now - since >= self._ttl:
                found[number] = f"{lease.owner} has not renewed its lease for {now - since:.0f} s"
        return found


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; ``None`` when there is none, or it has ended and waits for its
    parent to notice."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in ("Z", "X") else int(fields[19])
