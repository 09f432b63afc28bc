"""The way out: what is in flight, when a drain is over, and what becomes of connections."""

from twisted.internet.defer import Deferred

from agentd.http.messages import HANDED_OVER, Answer, Response
from agentd.http.request import AgentRequest
from agentd.http.routes import Auth, Body
from agentd.http.site import CLOSE_SECS
from agentd.rules.lifecycle import Stage
from tests.http.conftest import Serve
from tests.http.support import Server, chunk, chunked_head, echo, get, head_of, row


class Waiting:
    """Handlers that answer when the test says so."""

    def __init__(self) -> None:
        self.answers: list[Deferred[Answer]] = []
        self.streams: list[AgentRequest] = []

    def slow(self, request: AgentRequest) -> Deferred[Answer]:
        self.answers.append(Deferred())
        return self.answers[-1]

    def stream(self, request: AgentRequest) -> Answer:
        request.start_stream(200, b"text/plain")
        request.write(b"begun")
        self.streams.append(request)
        return HANDED_OVER


def serving(serve: Serve, **config: float) -> tuple[Server, Waiting]:
    """A server of those, and of rows that answer at once."""
    waiting = Waiting()
    server = serve(
        (row("GET", "/slow"), waiting.slow),
        (row("GET", "/stream"), waiting.stream),
        (row("GET", "/open", Auth.NONE), lambda request: Response(200, b"ok")),
        (row("POST", "/echo", body=Body.WANTED), echo()),
        **config,
    )
    return server, waiting


def finished(drain: "Deferred[None]") -> list[None]:
    """What the drain has fired with so far."""
    seen: list[None] = []
    drain.addCallback(seen.append)
    return seen


def test_requests_are_counted_while_they_are_in_flight(serve: Serve) -> None:
    """From dispatch to the end of the answer, or of the connection; once each."""
    server, waiting = serving(serve)

    def in_flight() -> int:
        return server.site.state.in_flight

    server.send(get(b"/open"), get(b"/nowhere"), get(b"/slow", bearer=False))
    assert in_flight() == 0
    idle = server.connect()
    half = server.send(b"GET /slow HTTP/1.1\r\nX")
    assert in_flight() == 0
    slow = server.send(get(b"/slow"))
    assert in_flight() == 1
    stream = server.send(get(b"/stream"))
    assert in_flight() == 2
    body = server.send(head_of(b"/echo", 10), b"x")
    assert in_flight() == 3
    drained = server.send(chunked_head(b"/echo", bearer=False), chunk(b"x"))
    assert in_flight() == 4
    early = server.send(head_of(b"/echo", 20_000, bearer=False))
    assert in_flight() == 5
    for caller in (idle, half):
        caller.leave()
    assert in_flight() == 5
    waiting.answers[0].callback(Response(200))
    assert in_flight() == 4
    waiting.streams[0].finish()
    assert in_flight() == 3
    for caller in (body, drained, early):
        caller.leave()
    assert in_flight() == 0
    for caller in (slow, stream):
        caller.leave()
    assert in_flight() == 0


def test_an_idle_site_is_drained_at_once(serve: Serve) -> None:
    """Connections without a request are not in flight."""
    server, _ = serving(serve)
    server.connect()
    assert finished(server.site.drain(10)) == [None]
    assert server.site.state.stage is Stage.STOPPED


def test_a_drain_waits_for_every_answer(serve: Serve) -> None:
    """And serves what comes on the connections that are there."""
    server, waiting = serving(serve)
    server.send(get(b"/slow"))
    stream = server.send(get(b"/stream"))
    other = server.connect()
    seen = finished(server.site.drain(10))
    assert server.site.state.stage is Stage.DRAINING
    assert other.send(get(b"/open")).answer().body == b"ok"
    waiting.answers[0].callback(Response(200))
    assert seen == []
    waiting.streams[0].finish()
    assert stream.answer().body == b"begun"
    assert seen == [None]
    server.pass_time(20)
    assert seen == [None]


def test_a_caller_that_leaves_is_not_waited_for(serve: Serve) -> None:
    """A vanished caller's request is over."""
    server, _ = serving(serve)
    caller = server.send(get(b"/slow"))
    seen = finished(server.site.drain(10))
    caller.leave()
    assert seen == [None]


def test_a_drain_has_a_deadline(serve: Serve) -> None:
    """And everybody who waits for it hears of its end."""
    server, waiting = serving(serve)
    server.send(get(b"/slow"))
    first, second = finished(server.site.drain(10)), finished(server.site.drain(10))
    server.pass_time(9.75)
    assert (first, second) == ([], [])
    server.pass_time(0.25)
    assert (first, second) == ([None], [None])
    assert server.site.state.stage is Stage.STOPPED
    waiting.answers[0].callback(Response(200))
    assert finished(server.site.drain(10)) == [None]


def test_closing_lets_connections_finish_what_they_send(serve: Serve) -> None:
    """Then aborts those that do not go."""
    server, _ = serving(serve)
    polite, stuck = server.send(get(b"/open")), server.connect()
    seen = finished(server.site.close())
    assert polite.transport.disconnecting
    assert stuck.transport.disconnecting
    polite.leave(clean=True)
    assert seen == []
    server.pass_time(CLOSE_SECS)
    assert stuck.transport.aborted
    stuck.leave()
    assert seen == [None]


def test_closing_takes_connections_that_linger_along(serve: Serve) -> None:
    """Those whose write half is closed end within the call, the last one among them."""
    server, _ = serving(serve)
    garbage, early = server.send(b"garbage\r\n\r\n"), server.send(head_of(b"/echo", 20_000, bearer=False))
    assert garbage.transport.half_closed
    assert early.transport.half_closed
    assert finished(server.site.close()) == [None]
    assert garbage.transport.gone
    assert early.transport.gone


def test_closing_without_connections_is_done(serve: Serve) -> None:
    """Nothing to wait for."""
    server, _ = serving(serve)
    server.send(get(b"/open")).leave()
    assert finished(server.site.close()) == [None]
    server.pass_time(CLOSE_SECS)


def test_a_factory_start_costs_no_timer(serve: Serve) -> None:
    """The access log's clock is not started."""
    server, _ = serving(serve)
    server.site.startFactory()
    assert server.clock.getDelayedCalls() == []
    server.site.stopFactory()
