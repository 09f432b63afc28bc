"""The callers of the tests: raw HTTP connections, attached clients, and the time they wait."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import frozen
from autobahn.twisted.websocket import WebSocketClientProtocol
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater

DEADLINE = 30.0
"""Seconds after which something that should have happened did not."""


T = TypeVar("T")


def checks(*numbers: int) -> Callable[[T], T]:
    """Says which of the contract's hundred checks a test makes; `test_reference_checks` counts them."""
    assert all(1 <= number <= 100 for number in numbers)
    return lambda test: test


def the_reactor() -> Any:
    """The reactor pytest-twisted runs."""
    from twisted.internet import reactor

    return reactor


async def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """Wait for `condition` to hold, under a deadline; returns its value."""
    reactor = the_reactor()
    end = reactor.seconds() + seconds
    while not (value := condition()):
        assert reactor.seconds() < end, f"never happened: {what}"
        await deferLater(reactor, 0.005, lambda: None)
    return value


async def pause(seconds: float) -> None:
    """Let time pass: for what must *not* happen."""
    await deferLater(the_reactor(), seconds, lambda: None)


class FastClock:
    """The reactor, with a clock that runs `speed` times as fast: for waits of minutes."""

    def __init__(self, reactor: Any, speed: float) -> None:
        self._reactor = reactor
        self._speed = speed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def seconds(self) -> float:
        return float(self._reactor.seconds() * self._speed)

    def callLater(self, delay: float, function: Any, *args: Any, **kwargs: Any) -> Any:
        return _FastCall(self._reactor.callLater(delay / self._speed, function, *args, **kwargs), self._speed)


class _FastCall:
    def __init__(self, call: Any, speed: float) -> None:
        self._call = call
        self._speed = speed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def reset(self, delay: float) -> None:
        self._call.reset(delay / self._speed)


@frozen
class Answer:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True
    """Whether the body came to its declared end."""
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def slug(self) -> str:
        """The error, after a look at its shape."""
        assert set(self.json) == {"error", "message"}, self.json
        assert self.status >= 400
        return str(self.json["error"])

    @property
    def fault(self) -> tuple[int, str]:
        return self.status, self.slug


_HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n")


class Connection(Protocol):
    """A connection that says exactly what it is told to."""

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        self.waiting: list[Callable[[], None]] = []

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self._wake()

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True
        self._wake()

    def _wake(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()

    async def change(self) -> None:
        """More data, or the end."""
        if not self.lost:
            more: Deferred[None] = Deferred()
            self.waiting.append(lambda: None if more.called else more.callback(None))
            more.addTimeout(DEADLINE * 3, the_reactor())
            await more

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    async def answer(self, method: str = "GET") -> Answer:
        """The next answer, its interim ones dropped."""
        while True:
            while (head := _HEAD.match(self.data)) is None:
                assert not self.lost, f"closed without an answer: {self.data[:200]!r}"
                await self.change()
            status = int(head[1])
            self.data = self.data[head.end() :]
            if status >= 200 or status == 101:
                break
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[2].decode("latin-1").splitlines())
        }
        if method == "HEAD" or status in (101, 204):
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body, whole = await self._chunked()
        else:
            size = int(headers["content-length"])
            while len(self.data) < size and not self.lost:
                await self.change()
            body, self.data = self.data[:size], self.data[size:]
            whole = len(body) == size
        return Answer(status, headers, body, whole)

    async def _chunked(self) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        while True:
            while b"\r\n" not in self.data:
                if self.lost:
                    return b"".join(parts), False
                await self.change()
            line, _, rest = self.data.partition(b"\r\n")
            size = int(line, 16)
            while len(rest) < size + 2:
                if self.lost:
                    return b"".join(parts), False
                await self.change()
                rest = self.data.partition(b"\r\n")[2]
            parts.append(rest[:size])
            self.data = rest[size + 2 :]
            if size == 0:
                return b"".join(parts), True

    def close(self) -> None:
        self.transport.abortConnection()


class Client(WebSocketClientProtocol):
    """An attached client, or what became of the attempt."""

    log: Any
    transport: Any

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []
        self.opened: Deferred[None] = Deferred()
        self.code: int | None = None
        self.gone = False
        self.pongs = True

    def onOpen(self) -> None:
        self.opened.callback(None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        assert not isBinary
        self.messages.append(json.loads(payload))

    def onPing(self, payload: bytes) -> None:
        if self.pongs:
            super().onPing(payload)  # type: ignore[no-untyped-call]

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.gone = True
        self.code = code
        if not self.opened.called:
            self.opened.errback(ConnectionError(reason))

    def say(self, **members: Any) -> None:
        """One message."""
        self.sendMessage(json.dumps(members).encode(), False)  # type: ignore[no-untyped-call]

    def say_raw(self, data: bytes, binary: bool = False) -> None:
        self.sendMessage(data, binary)  # type: ignore[no-untyped-call]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of one type."""
        return [message for message in self.messages if message["type"] == kind]

    def text(self, stream: str = "stdout") -> str:
        """What one stream wrote."""
        return "".join(message["data"] for message in self.of("output") if message["stream"] == stream)

    async def wait(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The `count`-th message of a type."""
        found: list[dict[str, Any]] = await until(
            lambda: self.of(kind) if len(self.of(kind)) >= count else None, f"{count} {kind} messages"
        )
        return found[count - 1]

    async def end(self) -> int | None:
        """The close code, once the connection is over."""
        await until(lambda: self.gone, "the end of the connection")
        return self.code

    def cut(self) -> None:
        """Vanish."""
        self.transport.abortConnection()
