"""Length-prefixed messages between the pool and its grading processes."""

from __future__ import annotations

import socket
import struct

_HEADER = struct.Struct("!I")
# JSON spells a character outside ASCII in up to 12 bytes.
_MAX_MESSAGE = 16_000_000


def frame(data: bytes) -> bytes:
    """``data`` with its length in front."""
    return _HEADER.pack(len(data)) + data


def receive(link: socket.socket) -> bytes | None:
    """One message; ``None`` when the other end is gone or talks nonsense."""
    header = _exactly(link, _HEADER.size)
    if header is None:
        return None
    (length,) = _HEADER.unpack(header)
    return _exactly(link, length) if length <= _MAX_MESSAGE else None


def _exactly(link: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = link.recv(min(count - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)
