"""Bodies: handed on as they come, held back when they must wait, bounded, and cleaned up after."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from agentd.http.messages import HANDED_OVER, Answer, Response
from agentd.http.request import AgentRequest, BodyTooLarge, CallerGone
from agentd.http.routes import Auth, Body
from tests.http.conftest import Serve
from tests.http.support import END, Recorder, Row, Server, chunk, chunked_head, echo, get, head_of, post, row

OPEN: Row = (row("GET", "/open", Auth.NONE), lambda request: Response(200, b"ok"))


class Later:
    """A handler that does nothing until the test says so."""

    def __init__(self) -> None:
        self.requests: list[AgentRequest] = []
        self.answers: list[Deferred[Answer]] = []

    def __call__(self, request: AgentRequest) -> Deferred[Answer]:
        self.requests.append(request)
        self.answers.append(Deferred())
        return self.answers[-1]

    @property
    def request(self) -> AgentRequest:
        return self.requests[-1]

    def answer(self, body: bytes = b"done") -> None:
        self.answers[-1].callback(Response(200, body))


@pytest.fixture
def later() -> Later:
    return Later()


def serving(serve: Serve, later: Any, **config: Any) -> Server:
    """A server whose ``PUT /sink`` is `later`."""
    return serve((row("PUT", "/sink", body=Body.WANTED), later), OPEN, **config)


def put(length: int) -> bytes:
    """The head of an upload."""
    return get(b"/sink", b"Content-Length: %d" % length, method=b"PUT")


def test_a_body_arrives_piece_by_piece(serve: Serve, later: Later) -> None:
    """A sink sees each read as it comes, then the end, once."""
    sink = Recorder()
    caller = serving(serve, later).send(put(9) + b"abc")
    later.request.stream_body(sink, 100)
    assert sink.chunks == [b"abc"]
    caller.send(b"def", b"ghi")
    assert sink.chunks == [b"abc", b"def", b"ghi"]
    assert (sink.ended, sink.reasons) == (1, [])
    assert caller.answers() == []
    later.answer()
    assert caller.answer().body == b"done"


def test_a_chunked_body_is_unwrapped(serve: Serve, later: Later) -> None:
    """Sizes, extensions and trailers are not content."""
    sink = Recorder()
    caller = serving(serve, later).send(chunked_head(b"/sink", method=b"PUT"))
    later.request.stream_body(sink, 100)
    caller.send(b"3;name=value\r\nab", b"c\r\n", b"00", b"A\r\n0123456789\r\n0\r\nTrailer: x\r\n", b"\r\n")
    assert sink.received == b"abc0123456789"
    assert sink.ended == 1
    later.answer()
    caller.send(get(b"/open"))
    assert [answer.body for answer in caller.answers()] == [b"done", b"ok"]


def test_an_unread_body_stays_with_its_sender(serve: Serve, later: Later) -> None:
    """Until somebody asks for it, one read at most waits in memory; the rest waits in the kernel."""
    caller = serving(serve, later, max_drain_bytes=10).send(put(10_000) + b"a" * 1000)
    assert not caller.reading
    caller.send(*([b"b" * 1000] * 9))
    assert caller.unread == 9000
    sink = Recorder()
    later.request.stream_body(sink, 10_000)
    caller.deliver()
    assert caller.unread == 0
    assert sink.received == b"a" * 1000 + b"b" * 9000
    assert sink.ended == 1
    later.answer()
    assert caller.answer().body == b"done"


def test_a_whole_body_in_the_first_read_waits_for_its_reader(serve: Serve, later: Later) -> None:
    """Complete before anybody asked."""
    caller = serving(serve, later).send(put(5) + b"hello")
    assert later.request.complete
    assert caller.reading, "a departure must be noticed"
    sink = Recorder()
    later.request.stream_body(sink, 5)
    assert (sink.received, sink.ended) == (b"hello", 1)
    later.answer()
    caller.send(get(b"/open"))
    assert [answer.body for answer in caller.answers()] == [b"done", b"ok"]


def test_a_slow_sink_holds_its_caller_back(serve: Serve, later: Later) -> None:
    """`pause_body` stops reading; `resume_body` goes on where it stopped."""
    sink = Recorder()
    caller = serving(serve, later).send(put(300))
    later.request.stream_body(sink, 1000)
    caller.send(b"x" * 100)
    later.request.pause_body()
    caller.send(b"y" * 100, b"z" * 100)
    assert sink.received == b"x" * 100
    assert caller.unread == 200
    later.request.resume_body()
    caller.deliver()
    assert sink.received == b"x" * 100 + b"y" * 100 + b"z" * 100
    assert sink.ended == 1
    later.answer()


def test_a_hold_survives_the_transport_draining(serve: Serve, later: Later) -> None:
    """The transport resumes its producer when its write buffer empties; a held body stays held."""
    sink = Recorder()
    caller = serving(serve, later).send(get(b"/open"), put(300))
    later.request.stream_body(sink, 1000)
    caller.channel.pauseProducing()
    later.request.pause_body()
    caller.channel.resumeProducing()
    caller.send(b"x" * 100)
    assert caller.unread == 100
    assert sink.received == b""
    later.request.resume_body()
    caller.deliver()
    assert sink.received == b"x" * 100


def test_no_timer_runs_while_a_body_is_held(serve: Serve, later: Later) -> None:
    """The caller's silence is our doing; once released it has its time again, and no more than that."""
    server = serving(serve, later, idle_timeout_secs=10.0)
    caller = server.send(put(300))
    server.pass_time(60)
    assert caller.answers() == []
    sink = Recorder()
    later.request.stream_body(sink, 1000)
    server.pass_time(9)
    caller.send(b"x")
    server.pass_time(9)
    assert caller.answers() == []
    server.pass_time(1)
    assert caller.answer().status == 408
    assert caller.closed


def test_the_idle_timeout_is_back_after_a_held_body(serve: Serve, later: Later) -> None:
    """A connection whose body was held once is still closed when it falls silent."""
    server = serving(serve, later, idle_timeout_secs=10.0)
    whole = server.send(put(5) + b"hello")
    later.request.stream_body(Recorder(), 5)
    later.answer()
    parts = server.send(put(5))
    later.request.stream_body(Recorder(), 5)
    later.request.pause_body()
    later.request.resume_body()
    parts.send(b"hello")
    later.answer()
    assert [caller.answer().status for caller in (whole, parts)] == [200, 200]
    server.pass_time(9.5)
    assert not whole.closed
    assert not parts.closed
    server.pass_time(0.5)
    assert whole.closed
    assert parts.closed
    assert [caller.answer().status for caller in (whole, parts)] == [200, 200]


def test_a_body_over_its_limit_ends_the_reading(serve: Serve, later: Later) -> None:
    """Found out while streaming: the sink hears `BodyTooLarge` once and nothing else."""
    sink = Recorder()
    caller = serving(serve, later).send(chunked_head(b"/sink", method=b"PUT"))
    later.request.stream_body(sink, 10)
    caller.send(chunk(b"x" * 10))
    assert sink.reasons == []
    caller.send(chunk(b"y"), chunk(b"z" * 50))
    assert sink.received == b"x" * 10
    assert [type(reason) for reason in sink.reasons] == [BodyTooLarge]
    assert sink.ended == 0
    later.answer(b"too much")
    caller.send(END, get(b"/open"))
    assert [answer.body for answer in caller.answers()] == [b"too much", b"ok"]


def test_read_body_over_its_limit_is_413(serve: Serve) -> None:
    """What an endpoint answers when a handler lets `BodyTooLarge` through."""
    caller = serve((row("POST", "/echo", body=Body.WANTED), echo(10)), OPEN).send(
        chunked_head(b"/echo"), chunk(b"x" * 11), END, get(b"/open")
    )
    assert [answer.status for answer in caller.answers()] == [413, 200]


def test_a_caller_that_leaves_mid_body_is_told_to_the_sink(serve: Serve, later: Later) -> None:
    """Contract i.6: what was begun can be undone, once, and the answer goes nowhere without a fuss."""
    sink = Recorder()
    server = serving(serve, later)
    caller = server.send(put(100), b"x" * 10)
    later.request.stream_body(sink, 1000)
    caller.send(b"y" * 10)
    caller.leave()
    assert [type(reason) for reason in sink.reasons] == [CallerGone]
    assert (sink.received, sink.ended) == (b"x" * 10 + b"y" * 10, 0)
    assert later.request.gone
    assert server.site.state.in_flight == 0
    later.request.respond(Response(200, b"too late"))
    later.request.pause_body()
    later.request.resume_body()
    later.request.finish()
    assert caller.transport.value() == b""


def test_read_body_fails_when_the_caller_leaves(serve: Serve) -> None:
    """The handler's coroutine ends, and nothing is logged."""
    ends: list[type[BaseException]] = []

    async def handler(request: AgentRequest) -> Answer:
        try:
            return Response(200, await request.read_body(100))
        except BaseException as reason:
            ends.append(type(reason))
            raise

    server = serve((row("POST", "/echo", body=Body.WANTED), handler))
    server.send(head_of(b"/echo", 10), b"x").leave()
    assert ends == [CallerGone]


def test_when_gone_is_called_once_and_only_then(serve: Serve, later: Later) -> None:
    """Not after a complete answer; not twice."""
    calls: list[str] = []
    server = serving(serve, later)
    done = server.send(put(0))
    later.request.when_gone(lambda: calls.append("done"))
    later.answer()
    done.leave()
    gone = server.send(put(0))
    later.request.when_gone(lambda: calls.append("gone"))
    gone.leave()
    assert calls == ["gone"]
    assert later.answers[-1].called, "a handler nobody waits for is cancelled"


@pytest.mark.parametrize("path", [b"/exact", b"/matched/x"])
def test_a_handler_is_cancelled_when_its_caller_leaves(serve: Serve, path: bytes) -> None:
    """On both ways to a handler; its cleanup runs."""
    cleaned: list[bytes] = []
    waiting: Deferred[Answer] = Deferred()

    async def handler(request: AgentRequest, **parameters: str) -> Answer:
        try:
            return await waiting
        finally:
            cleaned.append(request.path)

    server = serve((row("GET", "/exact"), handler), (row("GET", "/matched/{id}"), handler))
    caller = server.send(get(path))
    assert cleaned == []
    caller.leave()
    assert cleaned == [path]
    assert server.site.state.in_flight == 0


def test_a_body_has_one_reader(serve: Serve, later: Later) -> None:
    """Asking twice is a fault of ours, not a way to lose bytes."""
    serving(serve, later).send(put(10))
    later.request.stream_body(Recorder(), 100)
    with pytest.raises(RuntimeError):
        later.request.stream_body(Recorder(), 100)
    later.answer()


def test_an_early_answer_of_a_handler_drains_the_rest(serve: Serve, later: Later) -> None:
    """A handler may answer before it has read everything; its sink gets nothing more."""
    sink = Recorder()
    caller = serving(serve, later).send(put(60), b"x" * 10)
    later.request.stream_body(sink, 1000)
    caller.deliver()
    later.answer(b"enough")
    assert caller.answers() == []
    caller.send(b"y" * 50, get(b"/open"))
    assert [answer.body for answer in caller.answers()] == [b"enough", b"ok"]
    assert sink.received == b"x" * 10
    assert (sink.ended, sink.reasons) == (0, [])


def test_an_early_answer_while_the_body_is_held_goes_out(serve: Serve, later: Later) -> None:
    """A refusal that comes later than the headers, as when a disk turns out to be full."""
    caller = serving(serve, later).send(put(5000) + b"x" * 100, b"x" * 100)
    assert caller.unread == 100
    later.answer(b"no room")
    caller.deliver()
    assert caller.answer().body == b"no room"
    assert caller.answer().closes
    assert caller.transport.half_closed
    caller.send(b"x" * 4800)
    assert caller.transport.disconnecting


def test_a_malformed_chunk_is_400_and_answers_once(serve: Serve, later: Later) -> None:
    """Whether or not the handler answers too."""
    for broken in (b"zz\r\n", b"-1\r\n", b"5\r\nabcdefgh\r\n", b"x" * 2000, b"1;\x00\r\n"):
        sink = Recorder()
        caller = serving(serve, later).send(chunked_head(b"/sink", method=b"PUT"))
        later.request.stream_body(sink, 1000)
        caller.send(chunk(b"abc"), broken)
        assert caller.answer().status == 400
        assert caller.closed
        later.answer(b"second answer")
        assert caller.answer().status == 400
        caller.send(b"anything", END)
        caller.leave()
        assert [type(reason) for reason in sink.reasons] <= [CallerGone]


def test_a_malformed_chunk_of_a_refused_body_changes_nothing(serve: Serve) -> None:
    """The verdict was reached; it, or the 400, is the one answer."""
    server = serve((row("PUT", "/sink", body=Body.WANTED), echo()))
    pending = server.send(chunked_head(b"/sink", bearer=False, method=b"PUT"), chunk(b"a"), b"zz\r\n")
    assert pending.answer().status == 400
    assert pending.closed
    server.pass_time(10)
    assert pending.answer().status == 400
    answered = server.send(chunked_head(b"/sink", bearer=False, method=b"PUT"), chunk(b"a" * 101), b"zz\r\n")
    assert answered.answer().status == 401
    assert answered.transport.disconnecting


def test_a_stream_keeps_its_connection(serve: Serve) -> None:
    """`start_stream` is chunked over HTTP/1.1, and the next request follows."""

    def stream(request: AgentRequest) -> Answer:
        request.start_stream(200, b"text/event-stream", ((b"Cache-Control", b"no-cache"),))
        for piece in (b"one", b"two"):
            request.write(piece)
        request.finish()
        return HANDED_OVER

    server = serve((row("GET", "/stream"), stream), OPEN)
    first, second = server.send(get(b"/stream") + get(b"/open")).answers()
    assert first.body == b"onetwo"
    assert first.headers["transfer-encoding"] == "chunked"
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-type"] == "text/event-stream"
    assert "date" in first.headers
    assert "server" not in first.headers
    assert second.body == b"ok"
    head = server.send(get(b"/stream", method=b"HEAD") + get(b"/open"))
    assert [answer.body for answer in head.answers(0)] == [b"", b"ok"]
    old = server.send(get(b"/stream").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert old.answer().body == b"onetwo"
    assert old.answer().closes
    assert old.transport.disconnecting


def test_a_stream_that_breaks_ends_without_an_end(serve: Serve) -> None:
    """After the first byte there is no status to change: the connection is cut, so nobody takes it for whole."""

    def stream(request: AgentRequest) -> Answer:
        request.start_stream(200, b"text/plain")
        request.write(b"half")
        raise ValueError("broken")

    caller = serve((row("GET", "/stream"), stream)).send(get(b"/stream"))
    assert caller.transport.aborted
    assert not caller.transport.value().endswith(END)


def test_a_stream_that_breaks_before_its_first_byte_is_500(serve: Serve) -> None:
    """Then there still is."""

    def stream(request: AgentRequest) -> Answer:
        request.start_stream(200, b"text/plain")
        raise ValueError("broken")

    caller = serve((row("GET", "/stream"), stream), OPEN).send(get(b"/stream") + get(b"/open"))
    assert [answer.status for answer in caller.answers()] == [500, 200]


def test_two_answers_are_one(serve: Serve, later: Later) -> None:
    """The first counts."""
    caller = serving(serve, later).send(put(0))
    later.request.respond(Response(204))
    later.answer()
    assert caller.answer().status == 204
    assert "content-length" not in caller.answer().headers


def test_post_without_a_length_has_no_body(serve: Serve) -> None:
    """RFC 9112 6.3."""
    server = serve((row("POST", "/echo", body=Body.WANTED), echo()))
    assert server.send(get(b"/echo", method=b"POST")).answer().body == b""
    assert server.send(post(b"/echo", b"")).answer().body == b""
    assert server.send(chunked_head(b"/echo") + END).answer().body == b""
