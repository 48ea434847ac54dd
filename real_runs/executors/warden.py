"""The process that starts pilots, and takes them along when the one that asked for them is gone.

An executor that is killed with ``kill -9`` cannot clean up, and a pilot that nobody waits for would go on spending
FLOPs and hold its folder. So executors do not start pilots; one warden per executor does. When the executor's end of
the control socket closes, however that came about, the warden asks every pilot to checkpoint (SIGTERM), kills after
a grace period what is still there, and exits. When the warden itself is killed, the kernel kills its children (Linux;
elsewhere the executor does, which knows their process groups).

It also makes starting cheap. ``python -m race run`` spends some six seconds of CPU on imports, as much as a nano pilot
takes. A warden that has imported the same modules *forks* such a command instead (`fork` in a start request). It never
runs anything itself, so at the moment of a fork there are no threads and no CUDA context to break.

Only the standard library is imported here, and the file is run by its path: a pilot may use another interpreter, and
must not inherit our ``PYTHONPATH``.

One JSON object per line on the control socket.

    -> {"do": "start", "key", "argv", "fork", "env", "cwd", "stdin", "stdout", "stderr", "lock"}
    -> {"do": "signal", "key", "signal"}                to the pilot's whole process group
    <- {"event": "started", "key", "pid"}
    <- {"event": "busy", "key"}                         another process holds the folder's lock
    <- {"event": "refused", "key", "why"}               it could not be started at all
    <- {"event": "ended", "key", "code"}                negative: the signal that ended it
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]


@dataclass
class Child:
    """A pilot that runs. Its process group has its id; ``lock`` is the open lock file of its folder.

    ``asked`` to checkpoint: not a second time, which to many trainers means "at once".
    """

    pid: int
    lock: int | None
    process: subprocess.Popen[bytes] | None
    asked: bool = False


class Become(Exception):
    """Raised in a forked child, so that it unwinds the warden and runs its command at the top of the stack."""


class Warden:
    """Serves start and signal requests until the other end hangs up."""

    def __init__(self, control: socket.socket, grace: float) -> None:
        self.control, self.grace = control, grace
        self.children: dict[str, Child] = {}
        self._unread = b""
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def serve(self) -> None:
        """Until end of file; then end what still runs."""
        while True:
            watched: list[Any] = [self.control, self._woken]
            ready, _, _ = select.select(watched, [], [], 1.0)
            if self._woken in ready:
                self._drain()
            self._reap()
            if self.control not in ready:
                continue
            try:
                data = self.control.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))
        self._end_all()

    def _drain(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            return

    def _obey(self, request: Message) -> None:
        if request["do"] == "start":
            self._start(request)
        elif request["key"] in self.children:
            self._signal(self.children[request["key"]], request["signal"])

    def _start(self, request: Message) -> None:
        key = request["key"]
        lock: int | None = None
        try:
            lock = os.open(request["lock"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                self._tell({"event": "busy", "key": key})
                return
            process = None if request["fork"] else _spawn(request)
            pid = self._fork(request, lock) if process is None else process.pid
        except OSError as error:
            if lock is not None:
                os.close(lock)
            what = f"{error.filename}: " if error.filename else ""
            self._tell({"event": "refused", "key": key, "why": f"{what}{error.strerror or error}"})
            return
        self.children[key] = Child(pid, lock, process)
        self._tell({"event": "started", "key": key, "pid": pid})

    def _fork(self, request: Message, lock: int) -> int:
        warden = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        # In the child: whatever goes wrong from here on must not run the warden's code a second time.
        try:
            signal.set_wakeup_fd(-1)
            self.control.close()
            # Locks too: the copies here would keep other folders locked when their pilots have ended.
            held = [child.lock for child in self.children.values()]
            for opened in (self._woken, self._wake, lock, *held):
                if opened is not None:
                    os.close(opened)
            _settle_in(request, warden)
        except BaseException as error:  # noqa: BLE001  the child must end here
            os.write(2, f"error: could not start: {error}\n".encode())
            os._exit(126)
        raise Become

    def _reap(self) -> None:
        for key, child in list(self.children.items()):
            found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            # Before the id is given back: whatever the pilot left running in its group ends with it.
            _signal_group(child.pid, signal.SIGKILL)
            _, status = os.waitpid(child.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if child.process is not None:
                child.process.returncode = code
            if child.lock is not None:
                os.close(child.lock)
            del self.children[key]
            self._tell({"event": "ended", "key": key, "code": code})

    def _end_all(self) -> None:
        for child in self.children.values():
            self._signal(child, signal.SIGTERM)
        end = time.monotonic() + self.grace
        while self.children and time.monotonic() < end:
            select.select([self._woken], [], [], 0.2)
            self._drain()
            self._reap()
        for child in self.children.values():
            _signal_group(child.pid, signal.SIGKILL)
        for child in self.children.values():
            os.waitpid(child.pid, 0)

    def _signal(self, child: Child, number: int) -> None:
        if number == signal.SIGTERM:
            if child.asked:
                return
            child.asked = True
        _signal_group(child.pid, number)

    def _tell(self, message: Message) -> None:
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            # The other end is gone; the next read says so and everything is ended.
            return


def _spawn(request: Message) -> subprocess.Popen[bytes]:
    warden = os.getpid()
    with (
        Path(request["stdin"] or os.devnull).open("rb") as stdin,
        Path(request["stdout"]).open("wb") as stdout,
        Path(request["stderr"]).open("ab") as stderr,
    ):
        return subprocess.Popen(
            request["argv"], stdin=stdin, stdout=stdout, stderr=stderr, cwd=request["cwd"],
            env={**os.environ, **request["env"]}, start_new_session=True,
            preexec_fn=lambda: _in_the_child(warden),
        )  # fmt: skip


def _settle_in(request: Message, warden: int) -> None:
    """Make a forked child look like a process that was just started."""
    os.setsid()
    _in_the_child(warden)
    for path, flags, stream in (
        (request["stdin"] or os.devnull, os.O_RDONLY, 0),
        (request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1),
        (request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, stream)
        os.close(opened)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    # argv is [interpreter, "-m", module, ...]
    sys.argv = request["argv"][2:]


def _in_the_child(warden: int) -> None:
    """Default signals, and an end when the warden ends."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != warden:  # the warden died before the line above
            os._exit(1)


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # Gone, or (macOS) a group of zombies.
        return


def main() -> None:
    """``warden.py FD GRACE MODULES PATH``: serve the socket FD; MODULES are imported first, PATH is ``sys.path``."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    grace, modules = float(sys.argv[2]), json.loads(sys.argv[3])
    warden = Warden(control, grace)
    if modules:
        sys.path[:] = json.loads(sys.argv[4])
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            # Not this process's business: the pilot that needs it meets the same error and says so in its words.
            continue
    gc.freeze()  # objects of now stay in pages that forked children share
    try:
        warden.serve()
        return
    except Become:
        # Run below, with nothing of the warden on the stack.
        pass
    sys.modules.pop(sys.argv[0], None)  # imported to be warm; it runs as __main__ now
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
