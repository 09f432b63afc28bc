"""The client's end of a transfer through a relay: bare TCP, or the same bytes in WebSocket frames.

The far end is ``bench/servers.py pour``: a line says how many bytes go which way. Frames to the server are made
beforehand with a masking key of zeros, so that masking costs the client nothing; the server unmasks all the same
(RFC 6455 5.3). What comes back is counted, not looked at.
"""

import base64
import os
from mmap import mmap
from typing import Final, Protocol

from bench.client import ROOM_BYTES, Connection, ProtocolError, Server

FRAME_BYTES: Final = 64 * 1024
FRAMES_AT_ONCE: Final = 16
LAST_BYTES: Final = 32
BINARY: Final = 2
CLOSE: Final = 8
_FINAL: Final = 0x80
_MASKED: Final = 0x80


class End(Protocol):
    """A connection to the far end."""

    def down(self, count: int) -> int:
        """Ask for `count` bytes; returns how many came."""

    def up(self, count: int) -> int:
        """Send `count` bytes, a multiple of `FRAME_BYTES`; returns how many the far end says it got."""

    def close(self) -> None:
        """Hang up."""


class Plain:
    """Through a relay of bytes."""

    def __init__(self, relay: Server) -> None:
        self._connection = Connection(relay)
        self._room = memoryview(mmap(-1, ROOM_BYTES))

    def down(self, count: int) -> int:
        """See `End`."""
        self._connection.send(b"down %d\n" % count)
        received = 0
        while received < count and (got := self._connection.socket.recv_into(self._room)):
            received += got
        return received

    def up(self, count: int) -> int:
        """See `End`."""
        block = bytes(FRAME_BYTES * FRAMES_AT_ONCE)
        self._connection.send(b"up %d\n" % count)
        for _ in range(count // len(block)):
            self._connection.send(block)
        self._connection.send(block[: count % len(block)])
        return int(self._connection.raw())

    def close(self) -> None:
        """See `End`."""
        self._connection.close()


def frame(payload: bytes) -> bytes:
    """One binary frame from a client, masked with zeros."""
    length = len(payload)
    if length < 126:
        head = bytes((_FINAL | BINARY, _MASKED | length))
    elif length < 1 << 16:
        head = bytes((_FINAL | BINARY, _MASKED | 126)) + length.to_bytes(2)
    else:
        head = bytes((_FINAL | BINARY, _MASKED | 127)) + length.to_bytes(8)
    return head + bytes(4) + payload


class Tunnel:
    """Through ``GET /v1/tcp``."""

    def __init__(self, daemon: Server, port: int) -> None:
        self._connection = Connection(daemon)
        self._room = memoryview(mmap(-1, ROOM_BYTES))
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
        self._connection.send(
            daemon.prepare("GET", f"/v1/tcp?port={port}", None, (*upgrade, f"Sec-WebSocket-Key: {key}"))
        )
        head = self._connection.head()
        if head.status != 101:
            raise ProtocolError(f"the tunnel was answered {head.status}")
        self._incoming = FrameCounter()
        self._incoming.feed(memoryview(self._connection.buffered()))

    def down(self, count: int) -> int:
        """See `End`."""
        self._connection.send(frame(b"down %d\n" % count))
        self._read(count)
        return self._incoming.payload

    def up(self, count: int) -> int:
        """See `End`."""
        one = frame(bytes(FRAME_BYTES))
        many = one * FRAMES_AT_ONCE
        self._connection.send(frame(b"up %d\n" % count))
        frames = count // FRAME_BYTES
        for _ in range(frames // FRAMES_AT_ONCE):
            self._connection.send(many)
        self._connection.send(one * (frames % FRAMES_AT_ONCE))
        self._read(None)
        return int(self._incoming.last)

    def _read(self, count: int | None) -> None:
        """Until `count` bytes of payload have come, or the close frame."""
        incoming = self._incoming
        while not incoming.closed and (count is None or incoming.payload < count):
            got = self._connection.socket.recv_into(self._room)
            if got == 0:
                return
            incoming.feed(self._room[:got])

    def close(self) -> None:
        """See `End`."""
        self._connection.close()


class FrameCounter:
    """Unmasked frames as they arrive: how much payload, and what the last of it says."""

    def __init__(self) -> None:
        self.payload = 0
        """Bytes in data frames so far."""
        self.last = b""
        """The first bytes of the last piece of payload."""
        self.closed = False
        self._head = b""
        self._left = 0
        self._data = False

    def feed(self, data: memoryview) -> None:
        """The next bytes of the stream."""
        at = 0
        while at < len(data):
            if self._left == 0:
                at = self._begin(data, at)
                continue
            count = min(self._left, len(data) - at)
            if self._data:
                self.payload += count
                self.last = bytes(data[at : at + min(count, LAST_BYTES)])
            self._left -= count
            at += count

    def _begin(self, data: memoryview, at: int) -> int:
        """Take a frame's head, or what there is of it; returns where its payload starts."""
        head = self._head + bytes(data[at : at + 10])
        if len(head) < 2:
            self._head = head
            return len(data)
        code = head[1] & 0x7F
        size = 2 if code < 126 else 4 if code == 126 else 10
        if len(head) < size:
            self._head = head
            return len(data)
        taken = size - len(self._head)
        self._head = b""
        self._left = code if code < 126 else int.from_bytes(head[2:size])
        opcode = head[0] & 0x0F
        self._data = opcode <= BINARY
        self.closed = self.closed or opcode == CLOSE
        return at + taken
