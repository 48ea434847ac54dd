"""A PostgreSQL server for one test run, on loopback, in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDERS = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt")


def server_binaries() -> Path | None:
    """The folder with ``initdb`` and ``postgres``; the newest version of a Debian package, or that of ``PATH``."""
    for folder in FOLDERS:
        found = [p.parent for p in Path(folder).glob("*/bin/initdb") if (p.parent / "postgres").exists()]
        if found:
            return max(found, key=lambda p: [int(n) for n in p.parent.name.split(".") if n.isdigit()])
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb and shutil.which("postgres") else None


@contextmanager
def throwaway_server() -> Iterator[str]:
    """URL of an empty database on a free port; the server is gone afterwards."""
    binaries = server_binaries()
    assert binaries is not None, "no PostgreSQL server binaries"
    folder = Path(tempfile.mkdtemp(prefix="race-postgres-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = "postgres" if _exists("postgres") else "nobody"
        folder.chmod(0o755)
        (folder / "data").mkdir()
        shutil.chown(folder / "data", user)
    data = folder / "data"

    def run_as(line: list[str], **more: object) -> subprocess.Popen[bytes]:
        extra = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
        log = (folder / "server.log").open("ab")
        return subprocess.Popen(line, stdout=log, stderr=log, cwd="/", **extra, **more)  # type: ignore[call-overload,no-any-return]

    try:
        options = ["-U", "race", "-A", "trust", "-E", "UTF8", "--no-sync"]
        made = run_as([str(binaries / "initdb"), "-D", str(data), *options])
        assert made.wait(60) == 0, (folder / "server.log").read_text()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = run_as(
            [str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(data),
             "-c", "fsync=off"]
        )  # fmt: skip
        try:
            _wait_for(port, server, folder / "server.log")
            yield f"postgresql://race@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # at once, whoever is still connected
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    end = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="race", dbname="postgres", connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
