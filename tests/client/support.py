"""Servers on loopback that do exactly what a test tells them, well or badly.

`Script` answers each connection's requests with the steps of a list, in order: `Send` writes raw bytes, `Hang`
waits until the client leaves, `Cut` drops the connection. Nothing parses for the test more than where a request
ends, so that any misbehaviour can be written down.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen
from twisted.internet import protocol, reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater

from agentd.client.client import Client
from agentd.client.retry import Backoff

FAST = Backoff((0.01, 0.01, 0.01))


@frozen
class Request:
    """What arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@frozen
class Send:
    """Write these bytes."""

    data: bytes


@frozen
class Cut:
    """Close the connection."""


@frozen
class Hang:
    """Leave the request unanswered."""


Step = Send | Cut | Hang
Reply = list[Step] | Callable[[Request], list[Step]]


def answer(status: int, body: Any = b"", headers: dict[str, str] | None = None) -> list[Step]:
    """A whole, well-formed answer; a body that is not bytes is sent as JSON."""
    fields = dict(headers or {})
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields.setdefault("Content-Type", "application/json")
    fields.setdefault("Content-Length", str(len(body)))
    head = f"HTTP/1.1 {status} Phrase\r\n" + "".join(f"{n}: {v}\r\n" for n, v in fields.items()) + "\r\n"
    return [Send(head.encode() + body)]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(*frames: bytes, cut: bool = False) -> list[Step]:
    """An SSE answer; cut off, or ended properly."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    steps: list[Step] = [Send(head), *(Send(chunk(frame)) for frame in frames)]
    return [*steps, Cut()] if cut else [*steps, Send(b"0\r\n\r\n")]


def event(name: str, **data: Any) -> bytes:
    """One event as the daemon frames it."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def output(offset: int, data: bytes, to: str = "stdout") -> bytes:
    """An ``output`` event."""
    import base64

    return event("output", offset=offset, stream=to, output=base64.b64encode(data).decode())


def exited(offset: int, **fields: Any) -> bytes:
    """An ``exit`` event."""
    return event(
        "exit",
        **{
            "exit_code": 0,
            "signal": None,
            "timed_out": False,
            "truncated": False,
            "writers_may_be_alive": False,
            "offset": offset,
            **fields,
        },
    )


class Connection(protocol.Protocol):
    """One client's connection."""

    def __init__(self, script: "Script") -> None:
        self.script = script
        self.buffer = b""
        self.hanging = False
        self.over = False

    def connectionMade(self) -> None:
        self.script.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        self.buffer += data
        while not self.hanging and (request := self._request()) is not None:
            self.script.requests.append(request)
            self._play(self.script.next_reply(request))

    def _request(self) -> Request | None:
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding") == "chunked":
            body, complete, rest = _chunked(rest)
        else:
            size = int(headers.get("content-length", "0"))
            body, complete, rest = rest[:size], len(rest) >= size, rest[size:]
        if not complete and not self.script.early:
            return None
        self.buffer = rest
        return Request(method, target, headers, body)

    def _play(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Send):
                self.transport.write(step.data)
            elif isinstance(step, Cut):
                self.transport.loseConnection()
            else:
                self.hanging = True

    def connectionLost(self, reason: Any = None) -> None:
        self.over = True
        self.script.lost += 1
        waiters, self.script.lost_waiters = self.script.lost_waiters, []
        for waiter in waiters:
            waiter.callback(None)


def _chunked(data: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while match := re.match(rb"([0-9a-fA-F]+)\r\n", data):
        size = int(match[1], 16)
        end = match.end() + size + 2
        if len(data) < end:
            break
        body += data[match.end() : end - 2]
        data = data[end:]
        if size == 0:
            return body, True, data
    return body, False, b""


@define(eq=False)
class Script:
    """A server whose answers are written down beforehand."""

    replies: list[Reply]
    early: bool = False
    """Answer as soon as the head of a request is there."""
    requests: list[Request] = field(factory=list)
    connections: list[Connection] = field(factory=list)
    lost: int = 0
    lost_waiters: list[Deferred[None]] = field(factory=list)
    port: Any = None

    def listen(self, tls: Any = None) -> str:
        """Start, and return the URL."""
        factory = protocol.Factory.forProtocol(lambda: Connection(self))
        factory.noisy = False
        if tls is None:
            self.port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        else:
            self.port = reactor.listenSSL(0, factory, tls, interface="127.0.0.1")
        return self.url

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port.getHost().port}"

    def next_reply(self, request: Request) -> list[Step]:
        if not self.replies:
            return answer(599, {"error": "script_ended", "detail": f"no answer left for {request.target}"})
        reply = self.replies.pop(0)
        return reply(request) if callable(reply) else reply

    async def close(self) -> None:
        await maybeDeferred(self.port.stopListening)
        for connection in self.connections:
            if not connection.over:
                connection.transport.abortConnection()


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until `condition` holds, under a deadline."""
    limit = reactor.seconds() + seconds
    while not condition():
        assert reactor.seconds() < limit, "the condition was not met in time"
        await deferLater(reactor, 0.01, lambda: None)


def client(url: str, token: Any = None, **options: Any) -> Client:
    """A client with short pauses."""
    return Client(url, token, reactor=reactor, **{"backoff": FAST, "poll_interval": 0.01, **options})
