"""An iii engine for one worker, as plain as can be: what stands between a caller and the worker, and costs least.

It blocks, has one connection, answers what the worker asks for at its start, and then makes calls of it. So a call's
time is the worker's own and two passages of the loopback, as it is for a caller of a real engine at best.
"""

import base64
import hashlib
import json
import os
import socket
import struct
from typing import Any, Final, Self

from bench.client import ProtocolError
from bench.daemon import SetupFailed

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
TIMEOUT_SECS: Final = 60.0


class Engine:
    """Listens at once; `accept` the worker once its daemon runs, and call its functions."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_SECS)
        self._socket: socket.socket | None = None
        self._data = bytearray()
        self._value: Any = None
        self._made = 0
        self.functions: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """For ``--iii-url``."""
        return f"ws://127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self, functions: int) -> None:
        """Wait for the worker, and until it has registered so many functions. Raises `SetupFailed`."""
        try:
            self._socket = self._listener.accept()[0]
            self._socket.settimeout(TIMEOUT_SECS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._upgrade()
            self._say({"type": "workerregistered", "worker_id": "bench"})
            while len(self.functions) < functions:
                self._frame(self._message())
        except (OSError, ProtocolError) as reason:
            raise SetupFailed(f"the worker did not come to the engine: {reason}") from None

    def call(self, function_id: str, data: Any) -> dict[str, Any]:
        """The frame that answers a call: with `result`, or with `error`."""
        self.send(function_id, data)
        return self.receive()

    def send(self, function_id: str, data: Any) -> str:
        """Make a call; its number, which the answer has as `invocation_id`."""
        self._made += 1
        number = str(self._made)
        self._say(
            {"type": "invokefunction", "invocation_id": number, "function_id": function_id, "data": data}
        )
        return number

    def receive(self) -> dict[str, Any]:
        """The next answer, of whichever call."""
        while True:
            frame = self._message()
            if frame["type"] == "invocationresult":
                return frame
            self._frame(frame)

    def close(self) -> None:
        """Close everything."""
        if self._socket is not None:
            self._socket.close()
        self._listener.close()

    # -- what the worker says --------------------------------------------------------------------------

    def _frame(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "registerfunction":
            self.functions.add(frame["id"])
        elif frame["type"] == "invokefunction" and "invocation_id" in frame:
            answer = {"type": "invocationresult", "invocation_id": frame["invocation_id"]}
            self._say({**answer, **self._answer(frame["function_id"], frame["data"])})

    def _answer(self, function_id: str, data: Any) -> dict[str, Any]:
        if function_id == "configuration::register":
            self._value = data.get("initial_value", self._value)
        elif function_id != "configuration::get":
            return {"error": {"code": "function_not_found", "message": function_id}}
        elif self._value is None:
            return {"error": {"code": "NOT_FOUND", "message": "nothing is stored"}}
        return {"result": {"id": data["id"], "value": self._value}}

    # -- WebSocket (RFC 6455) --------------------------------------------------------------------------

    def _upgrade(self) -> None:
        while b"\r\n\r\n" not in self._data:
            self._read()
        head, _, rest = bytes(self._data).partition(b"\r\n\r\n")
        self._data = bytearray(rest)
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        key = next(value for name, value in fields.items() if name.lower() == b"sec-websocket-key")
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self._write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    def _message(self) -> dict[str, Any]:
        """The next text message as JSON; pings are answered on the way."""
        while True:
            kind, payload = self._next()
            if kind == _PING:
                self._send(_PONG, payload)
            elif kind == _CLOSE:
                raise ProtocolError("the worker closed the connection")
            elif kind == _TEXT:
                message: dict[str, Any] = json.loads(payload)
                return message

    def _next(self) -> tuple[int, bytes]:
        self._need(2)
        first, second = self._data[0], self._data[1]
        if not first & 0x80 or not second & 0x80:
            raise ProtocolError("a frame of the worker's is a fragment, or has no mask")
        length, at = second & 0x7F, 2
        if length >= 126:
            wide = 2 if length == 126 else 8
            self._need(2 + wide)
            length, at = int.from_bytes(self._data[2 : 2 + wide], "big"), 2 + wide
        self._need(at + 4 + length)
        mask = bytes(self._data[at : at + 4])
        masked = bytes(self._data[at + 4 : at + 4 + length])
        del self._data[: at + 4 + length]
        key = (mask * (length // 4 + 1))[:length]
        plain = int.from_bytes(masked, "big") ^ int.from_bytes(key, "big")
        return first & 0x0F, plain.to_bytes(length, "big")

    def _need(self, count: int) -> None:
        while len(self._data) < count:
            self._read()

    def _read(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(1 << 20)
        if not data:
            raise ProtocolError("the worker dropped the connection")
        self._data += data

    def _say(self, frame: dict[str, Any]) -> None:
        self._send(_TEXT, json.dumps(frame).encode())

    def _send(self, kind: int, payload: bytes) -> None:
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | kind, length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 127, length)
        self._write(head + payload)

    def _write(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(data)


def nowhere() -> str:
    """A path at which there is no file: no seed."""
    return os.path.join(os.sep, "nonexistent", "seed.yaml")
