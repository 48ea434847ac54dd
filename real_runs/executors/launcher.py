"""The executor's end of the warden: have pilots started and signalled, hear how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from race.errors import CannotDo

_WARDEN = Path(__file__).with_name("warden.py")
_ROOT = Path(__file__).resolve().parents[2]

LOST = -int(signal.SIGKILL)


@dataclass(frozen=True)
class Event:
    """What happened to a pilot: ``ended`` has a ``code`` (negative: a signal), ``refused`` a reason."""

    kind: Literal["started", "busy", "refused", "ended"]
    key: str
    code: int = 0
    why: str = ""


@dataclass(frozen=True)
class Command:
    """A command to start.

    Attributes
    ----------
    argv
        ``[sys.executable, "-m", module, ...]`` may be forked from the warden instead of started.
    env
        On top of the executor's environment.
    stdin
        File to read from; ``None`` is /dev/null.
    stdout, stderr, lock
        Files in the job's folder: overwritten, appended to, and locked while it runs.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stdin: Path | None
    stdout: Path
    stderr: Path
    lock: Path


class Launcher:
    """Starts a warden when the first command comes, and another one if that is killed.

    Parameters
    ----------
    modules
        What the warden imports, so that commands of this interpreter start by a fork. Empty: every command is started
        afresh.
    env
        On top of the executor's environment, before anything is imported.
    grace
        Seconds between asking and killing when the executor goes away.
    """

    def __init__(self, *, modules: Sequence[str], env: Mapping[str, str], grace: float) -> None:
        self._modules, self._env, self._grace = tuple(modules), dict(env), grace
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._groups: dict[str, int] = {}
        self._active: set[str] = set()

    def open(self) -> None:
        """Start the warden now, so that it imports while the first job is being made up."""
        if self._control is None:
            self._control = self._start()

    def launch(self, key: str, command: Command) -> None:
        """Start a command; its events carry ``key``. A warden found dead is replaced."""
        fork = bool(self._modules) and list(command.argv[:2]) == [sys.executable, "-m"]
        request = {
            "do": "start", "key": key, "argv": list(command.argv), "fork": fork, "env": dict(command.env),
            "cwd": str(command.cwd), "stdin": None if command.stdin is None else str(command.stdin),
            "stdout": str(command.stdout), "stderr": str(command.stderr), "lock": str(command.lock),
        }  # fmt: skip
        self._active.add(key)
        self.open()
        # If the warden has just died, `events` finds out and reports the command as ended by a kill.
        with contextlib.suppress(OSError):
            self._send(request)

    def signal(self, key: str, number: int) -> None:
        """Signal a command's whole process group; one that has ended is left alone."""
        with contextlib.suppress(OSError):
            self._send({"do": "signal", "key": key, "signal": number})

    def block(self, seconds: float) -> None:
        """Wait until there may be events, at most ``seconds``."""
        if self._control is not None:
            select.select([self._control], [], [], max(seconds, 0))

    def events(self) -> list[Event]:
        """What happened since the last call; never waits."""
        found: list[Event] = []
        while self._control is not None and select.select([self._control], [], [], 0)[0]:
            try:
                data = self._control.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                found += self._bury()
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                found += self._heard(json.loads(line))
        return found

    def close(self) -> None:
        """Hang up: the warden ends what still runs, and this waits for it."""
        if self._control is None or self._process is None:
            return
        self._control.close()
        try:
            self._process.wait(self._grace + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._kill_groups()
        self._control = self._process = None
        self._active.clear()

    def _heard(self, message: dict[str, Any]) -> list[Event]:
        kind, key = message["event"], message["key"]
        if kind == "started":
            self._groups[key] = message["pid"]
        else:
            self._groups.pop(key, None)
            self._active.discard(key)
        return [Event(kind, key, message.get("code", 0), message.get("why", ""))]

    def _bury(self) -> list[Event]:
        """The warden is dead: so are its children, or they are killed here."""
        assert self._process is not None
        assert self._control is not None
        self._control.close()
        self._process.wait()
        self._kill_groups()
        ended = [Event("ended", key, LOST) for key in sorted(self._active)]
        self._active.clear()
        self._unread = b""
        self._control = self._process = None
        return ended

    def _kill_groups(self) -> None:
        for pid in self._groups.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._groups.clear()

    def _send(self, request: Mapping[str, Any]) -> None:
        if self._control is not None:
            self._control.sendall(json.dumps(request).encode() + b"\n")

    def _start(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        path = [str(_ROOT), *(p for p in sys.path if p)]
        argv = [
            sys.executable, "-P", str(_WARDEN), str(theirs.fileno()), str(self._grace), json.dumps(self._modules),
            json.dumps(path),
        ]  # fmt: skip
        with theirs:
            try:
                self._process = subprocess.Popen(
                    argv, pass_fds=[theirs.fileno()], env={**os.environ, **self._env}, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                mine.close()
                raise CannotDo(f"executor: cannot start processes here: {error.strerror or error}") from error
        return mine


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Hold Ctrl-C back until the block is left, so that it cannot fall between hearing of an end and noting it.

    For short blocks that never wait. In other threads, where Python delivers no signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if came and callable(before):
            before(*came[0])
