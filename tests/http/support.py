"""A server in memory, driven by bytes: the real site, channel, request and router over a scripted transport.

`Server` builds an `AgentSite` of the given rows on a virtual clock. `Caller` is one connection to it: what it sends
arrives as one read each, unless the server has paused reading, in which case it waits as it would in the kernel.
`answers` parses what came back and accepts nothing that is not exact HTTP.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field, frozen
from twisted.internet import task
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from agentd.config import Config
from agentd.http.messages import Response
from agentd.http.request import AgentRequest
from agentd.http.router import Router
from agentd.http.routes import Auth, Body, Face, Route
from agentd.http.site import AgentSite
from agentd.rules.bootstrap import Bootstrap, authorize

TOKEN = b"in-memory-token"
BEARER = b"Authorization: Bearer " + TOKEN + b"\r\n"
VERSION_HEADER = "microvms-agentd-version"


class Transport(StringTransport):
    """A connected socket. Writing after the write half is closed is a fault of the server, and is kept."""

    def __init__(self) -> None:
        super().__init__(lenient=True)
        self.half_closed = False
        self.aborted = False
        self.gone = False
        self.late_writes = b""
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        if self.half_closed or self.aborted:
            self.late_writes += data
        super().write(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.write(b"".join(data))

    def unregisterProducer(self) -> None:
        # A real transport does not mind one that is not registered.
        self.producer = None

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    def loseConnection(self) -> None:
        super().loseConnection()
        if self.half_closed:
            # There is nothing left to send, so it is over at once, within this call.
            self.end(ConnectionDone())

    def end(self, reason: Exception) -> None:
        """The connection is over, which its protocol hears once."""
        if not self.gone:
            self.gone = True
            self.protocol.connectionLost(Failure(reason))

    def abortConnection(self) -> None:
        self.aborted = True
        self.disconnecting = True


@frozen
class Answer:
    """One answer, byte for byte what came, taken apart."""

    version: bytes
    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes = field(repr=False)

    @property
    def closes(self) -> bool:
        """Whether the connection ends after it."""
        return self.headers.get("connection") == "close"


_HEAD = re.compile(rb"(HTTP/1\.[01]) ([1-5][0-9][0-9]) ([ -~]+)\r\n((?:[!-9;-~]+: [ -~]*\r\n)*)\r\n")


def answers(data: bytes, heads: Iterable[int] = ()) -> list[Answer]:
    """Every answer in `data`. `heads` are the indices of those whose request was a HEAD."""
    found: list[Answer] = []
    at = 0
    bodiless = set(heads)
    while at < len(data):
        match = _HEAD.match(data, at)
        assert match, data[at : at + 200]
        status = int(match[2])
        headers: dict[str, str] = {}
        for line in match[4].decode("latin-1").split("\r\n")[:-1]:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} is sent twice"
            headers[name.lower()] = value
        start = match.end()
        if status < 200 or status in (204, 304) or len(found) in bodiless:
            body, end = b"", start
        elif "content-length" in headers:
            end = start + int(headers["content-length"])
            body = data[start:end]
            assert len(body) == end - start, "an answer is shorter than its length"
        elif headers.get("transfer-encoding") == "chunked":
            body, end = _chunked(data, start)
        else:
            body, end = data[start:], len(data)
        found.append(Answer(match[1], status, headers, body, data[at:end]))
        at = end
    return found


def _chunked(data: bytes, at: int) -> tuple[bytes, int]:
    body = b""
    while True:
        size, found, _ = data[at:].partition(b"\r\n")
        if not found:
            return body, len(data)  # still coming
        at += len(size) + 2
        count = int(size, 16)
        body += data[at : at + count]
        assert data[at + count : at + count + 2] == b"\r\n"
        at += count + 2
        if count == 0:
            return body, at


def row(method: str, path: str, auth: Auth = Auth.BEARER, body: Body = Body.IGNORED) -> Route:
    """A row of a route list that says no more than routing needs."""
    return Route(method, path, auth, "", (), body)


Row = tuple[Route, Callable[..., Any]]


def echo(limit: int = 1000) -> Callable[..., Any]:
    """A handler that answers with the body it read, of at most `limit` bytes."""

    async def handler(request: AgentRequest, **parameters: str) -> Response:
        return Response(200, await request.read_body(limit))

    return handler


class Recorder:
    """A sink that keeps what it is given, and can hold the caller back."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ended = 0
        self.reasons: list[Exception] = []

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)

    def data(self, chunk: bytes) -> None:
        assert not self.ended
        assert not self.reasons
        self.chunks.append(chunk)

    def end(self) -> None:
        self.ended += 1

    def lost(self, reason: Exception) -> None:
        self.reasons.append(reason)


@define(eq=False)
class Caller:
    """One connection."""

    server: "Server"
    channel: Any
    transport: Transport
    _waiting: list[bytes] = field(factory=list)

    def send(self, *chunks: bytes) -> "Caller":
        """Each chunk arrives as one read, as soon as the server reads."""
        self._waiting += [chunk for chunk in chunks if chunk]
        self.deliver()
        return self

    def deliver(self) -> None:
        """What was held back arrives as far as the server reads now."""
        while self._waiting and self.reading:
            self.channel.dataReceived(self._waiting.pop(0))

    @property
    def reading(self) -> bool:
        """Whether the server reads from this connection."""
        transport = self.transport
        return (
            transport.producerState == "producing"
            and not transport.disconnecting
            and not transport.aborted
            and not transport.gone
        )

    @property
    def unread(self) -> int:
        """Bytes that were sent and not yet read."""
        return sum(map(len, self._waiting))

    def leave(self, clean: bool = False) -> None:
        """The caller is gone, or the kernel says that the connection is."""
        self.transport.end(ConnectionDone() if clean else ConnectionLost())

    def answers(self, *heads: int) -> list[Answer]:
        """Every answer so far; checks that the version is on each and that nothing came after the end."""
        assert self.transport.late_writes == b""
        found = answers(self.transport.value(), heads)
        for answer in found:
            if answer.status >= 200:
                assert VERSION_HEADER in answer.headers, answer
        return found

    def answer(self, *heads: int) -> Answer:
        """The only answer."""
        found = self.answers(*heads)
        assert len(found) == 1, found
        return found[0]

    @property
    def closed(self) -> bool:
        """Whether the server has closed its side, or the whole."""
        return self.transport.half_closed or self.transport.disconnecting


class Server:
    """The site of some rows."""

    def __init__(self, *rows: Row, token: bytes | None = TOKEN, cap: int = 10_000, **config: Any) -> None:
        self.clock = task.Clock()
        self.config = Config(**{"max_drain_bytes": 100, "drain_secs": 5.0, **config})
        state = Bootstrap(token)
        face = Face("test", tuple(route for route, _ in rows), {route.key: run for route, run in rows})
        self.router = Router([face], lambda presented: authorize(state, presented), cap)
        self.site = AgentSite(self.router, self.config, self.clock)
        self.callers: list[Caller] = []

    def connect(self) -> Caller:
        """A new connection."""
        channel = self.site.buildProtocol(None)
        transport = Transport()
        channel.makeConnection(transport)
        transport.protocol = channel
        caller = Caller(self, channel, transport)
        self.callers.append(caller)
        return caller

    def send(self, *chunks: bytes) -> Caller:
        """A new connection that sends these."""
        return self.connect().send(*chunks)

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        """Let the clock run."""
        self.clock.pump([step] * int(seconds / step))

    def hang_up(self, settle: float = 0) -> None:
        """Every caller leaves; then nothing may be left behind: no timer, no request, no connection.

        `settle` is how long the handlers' own timers may still take, in seconds.
        """
        for caller in self.callers:
            caller.leave()
        self.clock.advance(settle)
        assert self.site.state.in_flight == 0, self.site.state
        left = [str(call) for call in self.clock.getDelayedCalls()]
        assert left == [], left


def get(target: bytes, *headers: bytes, bearer: bool = True, method: bytes = b"GET") -> bytes:
    """A request without a body."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"%s %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n" % (method, target, BEARER if bearer else b"", lines)


def post(
    target: bytes, body: bytes = b"", *headers: bytes, bearer: bool = True, method: bytes = b"POST"
) -> bytes:
    """A request with a body of a declared length."""
    return get(target, b"Content-Length: %d" % len(body), *headers, bearer=bearer, method=method) + body


def head_of(target: bytes, length: int, *headers: bytes, bearer: bool = True) -> bytes:
    """The head of a POST that declares `length` bytes."""
    return get(target, b"Content-Length: %d" % length, *headers, bearer=bearer, method=b"POST")


def chunked_head(target: bytes, *headers: bytes, bearer: bool = True, method: bytes = b"POST") -> bytes:
    """The head of a request with a chunked body."""
    return get(target, b"Transfer-Encoding: chunked", *headers, bearer=bearer, method=method)


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"
