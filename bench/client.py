"""A raw HTTP/1.1 client whose own cost stays out of the measurement.

One blocking socket, requests built beforehand, answers parsed just far enough: status, length or chunks. An
exchange costs two system calls and a few microseconds, where a full client costs as much as the daemon. (That is
why timeouts are socket options: Python's own put a poll(2) before every call.) Several connections may be written
to before any is read from, which keeps a single-threaded server busy from a single-threaded client.
"""

import json
import re
import socket
import struct
from collections.abc import Iterator
from mmap import mmap
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field, frozen

RECEIVE_BYTES: Final = 256 * 1024
ROOM_BYTES: Final = 1 << 20
"""What a body that nobody looks at is read into, page-aligned, which some processors need to copy fast."""

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


class ProtocolError(Exception):
    """The other side closed early, or answered what is not HTTP/1.1."""


@frozen
class Server:
    """Where requests go, and the bearer token they carry."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)

    @classmethod
    def from_url(cls, url: str, token: str | None) -> "Server":
        """The server of a cleartext `url`. Raises `ValueError` for any other."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.path not in ("", "/") or parts.query:
            raise ValueError("expected http://HOST[:PORT]: the client is a bare socket, without TLS")
        return cls(parts.hostname, parts.port or 80, token)

    def prepare(
        self, method: str, target: str, body: bytes | None = None, headers: tuple[str, ...] = ()
    ) -> bytes:
        """A whole request as bytes; `headers` are lines such as ``Prefer: wait=5``."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        if self.token is not None:
            lines.append(f"Authorization: Bearer {self.token}")
        lines += headers
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join((*lines, "", "")).encode() + (body or b"")

    def post_json(self, target: str, value: Any, headers: tuple[str, ...] = ()) -> bytes:
        """A whole POST of `value` as JSON."""
        return self.prepare(
            "POST", target, json.dumps(value).encode(), ("Content-Type: application/json", *headers)
        )


@frozen
class Head:
    """The beginning of an answer."""

    status: int
    headers: dict[bytes, bytes]
    """By lower-case name; the last of each counts."""

    @property
    def length(self) -> int | None:
        """Bytes of the body; None when it is chunked or ends with the connection."""
        given = self.headers.get(b"content-length")
        return None if given is None else int(given)

    @property
    def chunked(self) -> bool:
        """Whether the body is in chunks."""
        return self.headers.get(b"transfer-encoding", b"").lower() == b"chunked"


@frozen
class Answer:
    """A whole answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Connection:
    """One kept connection. `timeout` bounds every wait for the other side, in seconds."""

    def __init__(self, server: Server, timeout: float = 120.0) -> None:
        self.socket = socket.create_connection((server.host, server.port), timeout)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        patience = struct.pack("@ll", int(timeout), 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self._buffer = bytearray()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Write all of `data`."""
        self.socket.sendall(data)

    def exchange(self, request: bytes) -> Answer:
        """Send a prepared request and read its whole answer."""
        self.socket.sendall(request)
        return self.receive()

    def receive(self) -> Answer:
        """Read one whole answer."""
        buffer = self._buffer
        if not buffer:
            self._more()
        # Nearly every answer is this: one read, of a length that is said.
        end = buffer.find(b"\r\n\r\n") + 4
        if end > 3 and (length := _LENGTH.search(buffer, 0, end)) and len(buffer) == end + int(length[1]):
            answer = Answer(int(buffer[9:12]), bytes(buffer[end:]))
            buffer.clear()
            return answer
        head = self.head()
        return Answer(head.status, b"".join(self.body(head)))

    def head(self) -> Head:
        """Read the status line and the headers of the next answer."""
        buffer = self._buffer
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            self._more()
        lines = bytes(buffer[:end]).split(b"\r\n")
        del buffer[: end + 4]
        if not lines[0].startswith(b"HTTP/1.") or not lines[0][9:12].isdigit():
            raise ProtocolError(f"not an HTTP answer: {lines[0][:60]!r}")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        return Head(int(lines[0][9:12]), headers)

    def body(self, head: Head) -> Iterator[bytes]:
        """The bytes of the answer's body as they arrive."""
        if head.chunked:
            yield from self._chunks()
        elif head.length is not None:
            yield from self._exactly(head.length)
        elif head.status not in (204, 304):
            yield from self._rest()

    def discard(self, head: Head) -> int:
        """Read the body without keeping or copying it; returns how many bytes it had."""
        length = head.length
        if length is None:
            return sum(map(len, self.body(head)))
        received = min(length, len(self._buffer))
        del self._buffer[:received]
        room = memoryview(mmap(-1, ROOM_BYTES))
        while received < length:
            count = self.socket.recv_into(room[: min(ROOM_BYTES, length - received)])
            if count == 0:
                raise ProtocolError(f"closed after {received} of {length} bytes")
            received += count
        return length

    def raw(self) -> bytes:
        """Whatever comes next, b"" at the end."""
        return self.buffered() or self.socket.recv(RECEIVE_BYTES)

    def buffered(self) -> bytes:
        """What was read beyond the last answer's head; it is taken."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def _more(self) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            raise TimeoutError("no answer in time") from None
        if not data:
            raise ProtocolError("the connection was closed before the answer was complete")
        self._buffer += data

    def _exactly(self, count: int) -> Iterator[bytes]:
        while count > 0:
            if not self._buffer:
                self._more()
            piece = bytes(self._buffer[:count])
            del self._buffer[:count]
            count -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = int(self._line().split(b";")[0], 16)
            if size == 0:
                while self._line():
                    pass
                return
            yield from self._exactly(size)
            self._line()

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _rest(self) -> Iterator[bytes]:
        while data := self.raw():
            yield data
