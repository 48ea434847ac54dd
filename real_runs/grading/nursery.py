"""The parent's end of the zygote: start it, ask it for grading processes, have them killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path

from race.errors import CannotDo

_START_SECONDS = 120.0
_REPLY_SECONDS = 30.0
_ROOT = Path(__file__).resolve().parents[2]


class Nursery:
    """Forks grading processes of at most ``memory`` bytes of address space; safe to share between threads."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._end: weakref.finalize[[subprocess.Popen[bytes], socket.socket], Nursery] | None = None

    def fork(self) -> tuple[int, socket.socket]:
        """A fresh grading process: its id and our end of its link."""
        with self._lock:
            try:
                return self._fork()
            except OSError:  # the zygote itself was killed, for example by the system short of memory
                self._stop()
                try:
                    return self._fork()
                except OSError as error:
                    raise CannotDo(f"grading: no grading process can be started here ({error})") from None

    def _fork(self) -> tuple[int, socket.socket]:
        control = self._control or self._start()
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(control, [b'["fork"]'], [theirs.fileno()])
                reply = _reply(control)
            except OSError:
                mine.close()
                raise
        return int(str(reply[1])), mine

    def kill(self, pid: int) -> None:
        """Kill a grading process and wait until it is gone; a process that is gone already is fine."""
        with self._lock:
            if self._control is None:
                return
            try:
                self._control.sendall(json.dumps(["kill", pid]).encode())
                _reply(self._control)
            except OSError:
                self._stop()

    def close(self) -> None:
        """Let go of the zygote, which takes every grading process along."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._end = self._control = None

    def _start(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        paths = [str(_ROOT), *(p for p in sys.path if p)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        # -P: a file in the working directory must not shadow a library in there.
        command = [sys.executable, "-P", "-m", "real_runs.grading.zygote", str(theirs.fileno()), str(self.memory)]
        with theirs:
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the run, which then closes this
            )
        mine.settimeout(_START_SECONDS)
        try:
            hello = _reply(mine)
        except OSError:
            mine.close()
            process.kill()
            _, complaint = process.communicate()
            last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise CannotDo(f"grading: the grading process did not start ({last[0]})") from None
        if hello[0] != "ready":
            mine.close()
            process.communicate()
            raise CannotDo(
                f"grading: math-verify cannot be imported ({hello[1]}); install it with: pip install 'race-rl[runs]'"
            )
        mine.settimeout(_REPLY_SECONDS)
        self._control = mine
        self._end = weakref.finalize(self, _shut, process, mine)
        return mine


def _reply(control: socket.socket) -> list[object]:
    data = control.recv(65536)
    if not data:
        raise ConnectionResetError("the zygote is gone")
    reply = json.loads(data)
    if not isinstance(reply, list) or len(reply) != 2:
        raise ConnectionResetError("the zygote talks nonsense")
    return reply


def _shut(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()  # the zygote reads end-of-file, kills its children and exits
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stderr is not None:
        process.stderr.close()
