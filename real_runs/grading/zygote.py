"""The process that grading processes are forked from.

Started by `pool.Grader` as ``python -m real_runs.grading.zygote FD MEMORY``, it imports the computer algebra once and
then forks a grading process on request, in milliseconds instead of the second an import takes. It never grades, so
it always answers; it also holds every grading process as its own unreaped child, so that killing one by its id can
never hit a stranger, and it takes all of them along when its parent is gone, however the parent died.

Speaks JSON on the stream FD, one message and one reply at a time: ``["fork"]`` with a socket attached ->
``["forked", pid]``; ``["kill", pid]`` -> ``["killed", exit status]``.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import resource
import signal
import socket
import sys

from real_runs.grading.judge import judge
from real_runs.grading.verdict import Verdict
from real_runs.grading.wire import frame, receive


def main(argv: list[str]) -> int:
    """Serve fork and kill requests until the parent hangs up."""
    control = socket.socket(fileno=int(argv[1]))
    memory = int(argv[2])
    # math-verify warns on every call that its own time limit is off; the limit here is the parent's.
    logging.disable(logging.CRITICAL)
    try:
        import math_verify  # noqa: F401  (imported before forking, shared by every grading process)
    except ImportError as error:
        _send(control, ["missing", str(error)])
        return 1
    judge("$\\frac{1}{2}$", "\\boxed{\\int_0^1 x\\,dx}")  # warm: builds the LaTeX parser's tables once
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):  # parsers print complaints about odd input; nobody reads them
        os.dup2(null, stream)
    _send(control, ["ready", os.getpid()])
    children: set[int] = set()
    try:
        _serve(control, children, memory)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    return 0


def _serve(control: socket.socket, children: set[int], memory: int) -> None:
    while True:
        data, fds, _, _ = socket.recv_fds(control, 65536, 1)
        if not data:
            return
        request = json.loads(data)
        if request[0] == "fork":
            pid = os.fork()
            if pid == 0:
                control.close()
                _grade_forever(socket.socket(fileno=fds[0]), memory)
                os._exit(0)
            os.close(fds[0])
            children.add(pid)
            _send(control, ["forked", pid])
        elif request[0] == "kill":
            status = 0
            if request[1] in children:
                os.kill(request[1], signal.SIGKILL)
                _, status = os.waitpid(request[1], 0)
                children.discard(request[1])
            _send(control, ["killed", status])


def _send(control: socket.socket, message: list[object]) -> None:
    control.send(json.dumps(message).encode())


def _grade_forever(link: socket.socket, memory: int) -> None:
    """A grading process: read a pair, answer a verdict, until the other end closes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _die_with_parent()
    if sys.platform.startswith("linux"):  # elsewhere the kernel ignores or refuses an address-space limit
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    while True:
        request = receive(link)
        if request is None:
            return
        gold, completion = json.loads(request)
        link.sendall(frame(json.dumps(_guarded(gold, completion).to_list()).encode()))


def _die_with_parent() -> None:
    """A zygote that was killed cannot take its children along, and one of them may be in an endless computation.

    Linux does it for us; elsewhere such a process ends when it next reads from its closed socket.
    """
    if not sys.platform.startswith("linux"):
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:  # the zygote died before the line above
        os._exit(1)


def _guarded(gold: str, completion: str) -> Verdict:
    """What a grading library raises on odd input is a fact about the input, not a reason to stop."""
    try:
        return judge(gold, completion)
    except MemoryError:
        return Verdict("could-not-grade", "memory")
    except RecursionError:
        return Verdict("could-not-grade", "nested too deep")
    except Exception as error:  # noqa: BLE001  reported as the verdict's reason
        return Verdict("could-not-grade", f"{type(error).__name__} while grading")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
