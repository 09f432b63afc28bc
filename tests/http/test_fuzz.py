"""Any bytes, in any pieces: nothing raises out of a connection, and every answer is an answer."""

from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, globalLogPublisher

from agentd.http.messages import HANDED_OVER, Answer, Response
from agentd.http.request import AgentRequest
from agentd.http.routes import Auth, Body
from tests.http.support import (
    BEARER,
    END,
    Caller,
    Recorder,
    Server,
    answers,
    chunk,
    chunked_head,
    echo,
    get,
    head_of,
    post,
    row,
)


class Slow(Recorder):
    """Holds its caller back after every piece, and lets go in the next turn."""

    def __init__(self, server: Server, request: AgentRequest) -> None:
        super().__init__()
        self._server = server
        self._request = request

    def data(self, chunk: bytes) -> None:
        super().data(chunk)
        self._request.pause_body()
        self._server.clock.callLater(0.1, self._request.resume_body)

    def end(self) -> None:
        super().end()
        self._request.respond(Response(200, self.received))


def fuzzed() -> Server:
    """A server with a handler of each kind."""

    def slow(request: AgentRequest) -> Answer:
        request.stream_body(Slow(server, request), 1000)
        return HANDED_OVER

    def later(request: AgentRequest) -> "Deferred[Answer]":
        done: Deferred[Answer] = Deferred(lambda _: call.cancel())
        call = server.clock.callLater(0.5, done.callback, Response(200, b"later"))
        return done

    def stream(request: AgentRequest) -> Answer:
        request.start_stream(200, b"text/plain")
        request.write(b"a stream")
        request.finish()
        return HANDED_OVER

    server = Server(
        (row("GET", "/open", Auth.NONE), lambda request: Response(200, b"ok")),
        (row("GET", "/things/{id}"), lambda request, id: Response(200, id.encode())),
        (row("POST", "/echo", body=Body.WANTED), echo(1000)),
        (row("POST", "/slow", body=Body.WANTED), slow),
        (row("POST", "/later", body=Body.WANTED), later),
        (row("GET", "/stream"), stream),
        (row("GET", "/boom"), lambda request: 1 // 0),
        cap=5000,
        idle_timeout_secs=30.0,
        header_timeout_secs=10.0,
    )
    return server


FRAGMENTS = st.sampled_from(
    [
        b"GET ",
        b"POST ",
        b"PUT ",
        b"/open",
        b"/things/",
        b"%2F",
        b"%ff",
        b"/echo",
        b"/slow",
        b"/later",
        b"/stream",
        b"/boom",
        b"?",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b" HTTP/1.1",
        b"\r\n",
        b"\r\n\r\n",
        b"\r",
        b"\n",
        b"\0",
        b"\x16\x03\x01",
        b"Content-Length: ",
        b"Content-Length: 5\r\n",
        b"Content-Length: 5000\r\n",
        b"Content-Length: 6000\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        BEARER,
        b"Authorization: ",
        b"X: y\r\n",
        b" folded\r\n",
        b"5\r\nhello\r\n",
        END,
        b"hello",
        get(b"/open"),
        get(b"/things/x"),
        get(b"/stream"),
        get(b"/boom"),
        post(b"/echo", b"hello"),
        post(b"/later", b"hello"),
        chunked_head(b"/slow"),
        head_of(b"/slow", 20),
        head_of(b"/echo", 50, bearer=False),
        b"9" * 4400,
        b"x" * 20_000,
    ]
)
CALLERS = st.lists(FRAGMENTS | st.binary(max_size=12), max_size=12).map(b"".join)
CUTS = st.lists(st.integers(0, 400), max_size=8)


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`data` cut into the lengths given, and the rest."""
    found = []
    for length in cuts:
        found.append(data[:length])
        data = data[length:]
    return [*found, data]


def exhaust(server: Server, caller: Caller) -> None:
    """Until nothing more can happen on its own."""
    for _ in range(25):
        server.clock.advance(2)
        caller.deliver()


@pytest.fixture(scope="module")
def faults() -> Iterable[list[LogEvent]]:
    """Whatever is logged as worse than a warning, but for the handler that is made to fail."""
    events: list[LogEvent] = []

    def keep(event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.error and event.get("kind") != "ZeroDivisionError":
            events.append(event)

    globalLogPublisher.addObserver(keep)
    yield events
    globalLogPublisher.removeObserver(keep)


@settings(max_examples=200, deadline=None)
@given(data=CALLERS, cuts=CUTS, stay=st.booleans())
def test_any_bytes_are_answered_or_waited_for(
    faults: list[LogEvent], data: bytes, cuts: list[int], stay: bool
) -> None:
    """Nothing raises, every answer is whole HTTP with the version on it, and nothing is left behind."""
    server = fuzzed()
    caller = server.send(*pieces(data, cuts))
    if stay:
        exhaust(server, caller)
        assert not data or caller.closed, "silence was not noticed"
    found = caller.answers() if b"HEAD" not in data else []
    assert all(answer.version in (b"HTTP/1.1", b"HTTP/1.0") for answer in found)
    assert sum(answer.closes for answer in found) <= 1
    server.hang_up(settle=0.1)
    assert faults == []


REQUESTS = st.lists(
    st.sampled_from(
        [
            get(b"/open"),
            get(b"/things/a%2Fb"),
            get(b"/nowhere"),
            get(b"/things/x", bearer=False),
            get(b"/stream"),
            get(b"/boom"),
            post(b"/echo", b"hello"),
            post(b"/echo", b"x" * 900),
            post(b"/echo", b"x" * 1100),
            post(b"/echo", b"hello", bearer=False),
            post(b"/slow", b"y" * 200),
            post(b"/later", b"z" * 60),
            chunked_head(b"/slow") + chunk(b"a" * 30) + chunk(b"b") + END,
            chunked_head(b"/echo", bearer=False) + chunk(b"a" * 30) + END,
            chunked_head(b"/echo") + chunk(b"a" * 30) + b"0\r\nTrailer: x\r\n\r\n",
        ]
    ),
    min_size=1,
    max_size=6,
)


def undated(data: bytes) -> list[tuple[object, ...]]:
    """The answers without the second they were sent in."""
    found = answers(data)
    for answer in found:
        answer.headers.pop("date", None)
    return [(answer.version, answer.status, answer.headers, answer.body) for answer in found]


@cache
def talk(*chunks: bytes) -> list[tuple[object, ...]]:
    """What a caller that sends these is told."""
    server = fuzzed()
    caller = server.send(*chunks)
    for _ in range(60):
        server.clock.advance(0.5)
        caller.deliver()
    assert caller.unread == 0
    caller.answers()
    told = undated(caller.transport.value())
    server.hang_up(settle=0.1)
    return told


@settings(max_examples=80, deadline=None)
@given(requests=REQUESTS, cuts=st.lists(st.integers(1, 300), max_size=30))
def test_how_requests_are_cut_does_not_matter(requests: list[bytes], cuts: list[int]) -> None:
    """The answers to any split of a conversation are those to its requests one by one."""
    expected = [answer for request in requests for answer in talk(request)]
    assert talk(*pieces(b"".join(requests), cuts)) == expected
