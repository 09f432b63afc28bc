"""Connections: deadlines, limits, pipelining, old versions, and bytes that are not HTTP (contract a.0, i.5)."""

import pytest
from twisted.internet.defer import Deferred

from agentd.config import LINGER_BYTES, LINGER_SECS
from agentd.http.messages import Answer, Response
from agentd.http.request import AgentRequest
from agentd.http.routes import Auth, Body
from tests.http.conftest import Serve
from tests.http.support import BEARER, END, Row, Server, chunk, chunked_head, echo, get, head_of, post, row

ROWS: tuple[Row, ...] = (
    (row("GET", "/open", Auth.NONE), lambda request: Response(200, b"ok")),
    (row("POST", "/echo", body=Body.WANTED), echo(100_000)),
    (row("GET", "/things/{id}"), lambda request, id: Response(200, id.encode())),
)
MAX_LINE = 16_384
MAX_HEADERS = 100
MAX_HEAD_BYTES = 32_768


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve(*ROWS, idle_timeout_secs=75.0, header_timeout_secs=20.0, cap=200_000)


# -- bytes that are not HTTP ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(32)),
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        b"\x16",
        b"garbage\r\n",
        b"garbage\r\n\r\n",
        b"\r\n\r\n",
        b"GET /open\r\n\r\n",
        b"GET  /open HTTP/1.1\r\n\r\n",
        b"GET /op en HTTP/1.1\r\n\r\n",
        b" GET /open HTTP/1.1\r\n\r\n",
        b"GET /open HTTP/1.1 \r\n\r\n",
        b"GET /open HTTP/2.0\r\n\r\n",
        b"GET /open HTTP/0.9\r\n\r\n",
        b"GET /open http/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"G\x00T /open HTTP/1.1\r\n\r\n",
        b"GET /open HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /open HTTP/1.1\r\nbad name: x\r\n\r\n",
        b"GET /open HTTP/1.1\r\n: x\r\n\r\n",
        b"GET /open HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        b"GET /open HTTP/1.1\r\nX: a\rb\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello",
        b"POST /echo HTTP/1.1\r\nContent-Length: five\r\n\r\nhello",
        b"POST /echo HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\nhello",
        b"POST /echo HTTP/1.1\r\nContent-Length:\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_400_and_closed(server: Server, garbage: bytes) -> None:
    """Whole or byte by byte, with a complete answer that carries the version; and the next caller is served."""
    for pieces in ([garbage], [garbage[i : i + 1] for i in range(len(garbage))]):
        caller = server.send(*pieces)
        answer = caller.answer()
        assert answer.status == 400
        assert answer.closes
        assert caller.closed
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        # Nothing that comes behind it is looked at.
        caller.send(get(b"/open"))
        assert caller.answer().status == 400
    assert server.send(get(b"/open")).answer().body == b"ok"


def test_a_tls_record_type_later_on_is_no_handshake(server: Server) -> None:
    """Only a connection's first byte is."""
    caller = server.send(post(b"/echo", b"\x16\x03\x01"), head_of(b"/echo", 1), b"\x16")
    assert [answer.body for answer in caller.answers()] == [b"\x16\x03\x01", b"\x16"]


def test_one_empty_line_before_a_request_is_forgiven(server: Server) -> None:
    """RFC 9112 2.2."""
    caller = server.send(b"\r\n" + get(b"/open"), b"\r\n" + get(b"/open"))
    assert [answer.body for answer in caller.answers()] == [b"ok", b"ok"]


# -- limits ----------------------------------------------------------------------------------------------


def test_the_request_line_has_a_limit(server: Server) -> None:
    """414, whether or not the line ends."""
    longest = b"GET /" + b"a" * (MAX_LINE - 14) + b" HTTP/1.1"
    assert len(longest) == MAX_LINE
    assert server.send(longest + b"\r\n\r\n").answer().status == 404
    for request in (b"GET /a" + longest[5:] + b"\r\n\r\n", b"GET /" + b"a" * 70_000):
        caller = server.send(request)
        assert caller.answer().status == 414
        assert caller.closed


def test_a_header_line_has_a_limit(server: Server) -> None:
    """431."""
    start = b"GET /open HTTP/1.1\r\nX: "
    assert server.send(start + b"a" * (MAX_LINE - 3) + b"\r\n\r\n").answer().status == 200
    for request in (start + b"a" * (MAX_LINE - 2) + b"\r\n\r\n", start + b"a" * 70_000):
        caller = server.send(request)
        assert caller.answer().status == 431
        assert caller.closed


def test_all_headers_together_have_a_limit(server: Server) -> None:
    """In bytes and in number; 431."""
    line = b"X: " + b"a" * 8_000 + b"\r\n"
    assert server.send(b"GET /open HTTP/1.1\r\n" + line * 3 + b"\r\n").answer().status == 200
    assert server.send(b"GET /open HTTP/1.1\r\n" + line * 5 + b"\r\n").answer().status == 431
    assert server.send(b"GET /open HTTP/1.1\r\n" + b"X: a\r\n" * MAX_HEADERS + b"\r\n").answer().status == 200
    assert server.send(b"GET /open HTTP/1.1\r\n" + b"X: a\r\n" * (MAX_HEADERS + 1)).answers() == []
    caller = server.send(b"GET /open HTTP/1.1\r\n" + b"X: a\r\n" * (MAX_HEADERS + 1) + b"\r\n")
    assert caller.answer().status == 431


def test_limits_are_per_request(server: Server) -> None:
    """A kept connection does not add up."""
    line = b"X: " + b"a" * 8_000 + b"\r\n"
    caller = server.connect()
    for _ in range(10):
        caller.send(b"GET /open HTTP/1.1\r\n" + line * 3 + b"\r\n")
    assert [answer.status for answer in caller.answers()] == [200] * 10


def test_a_continued_header_line_is_one_header(server: Server) -> None:
    """Obsolete folding is taken for a space (RFC 9112 5.2), also where it would hide a credential."""
    caller = server.send(b"GET /things/x HTTP/1.1\r\nAuthorization:\r\n Bearer in-memory-token\r\n\r\n")
    assert caller.answer().status == 200


def test_what_follows_a_refusal_is_dropped_within_bounds(server: Server) -> None:
    """So that the answer is not overtaken by a reset, and nobody holds the connection by sending on."""
    caller = server.send(b"garbage\r\n\r\n")
    for _ in range(LINGER_BYTES // 65_536):
        caller.send(b"x" * 65_536)
    assert not caller.transport.aborted
    caller.send(b"x")
    assert caller.transport.aborted
    silent = server.send(b"garbage\r\n\r\n")
    server.pass_time(LINGER_SECS - 0.25)
    assert not silent.transport.aborted
    server.pass_time(0.25)
    assert silent.transport.aborted


def test_one_connection_too_many_is_told_so(serve: Serve) -> None:
    """503 and closed at once; when another leaves there is room again."""
    server = serve(*ROWS, max_connections=2)
    first, second = server.connect(), server.connect()
    third = server.send(get(b"/open"))
    assert (third.answer().status, third.answer().body) == (503, b"too many connections")
    assert third.transport.disconnecting
    assert first.send(get(b"/open")).answer().status == 200
    third.leave()
    second.leave()
    assert server.send(get(b"/open")).answer().status == 200


# -- deadlines -------------------------------------------------------------------------------------------


def test_headers_have_a_deadline_from_their_first_byte(server: Server) -> None:
    """A byte now and then does not move it."""
    caller = server.connect()
    for byte in b"GET /open HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaa":
        assert caller.answers() == []
        caller.send(bytes([byte]))
        server.pass_time(0.5)
    assert caller.answer().status == 408
    assert caller.closed


@pytest.mark.parametrize("start", [b"G", b"GET /open HTTP/1.1\r\n", b"GET /open HTTP/1.1\r\nX: a\r\n"])
@pytest.mark.parametrize("together", [True, False])
def test_so_have_those_of_a_later_request(server: Server, start: bytes, together: bool) -> None:
    """Also when its beginning came in the same read as the end of the one before."""
    before = [get(b"/open"), post(b"/echo", b"hi")]
    for request in before:
        caller = server.send(request + start) if together else server.send(request, start)
        for _ in range(19):
            server.pass_time(1)
            caller.send(b"a")
        assert len(caller.answers()) == 1
        server.pass_time(1)
        assert [answer.status for answer in caller.answers()] == [200, 408]
        assert caller.closed


def test_the_header_deadline_ends_with_the_headers(server: Server) -> None:
    """A body may take longer; and the next request has a deadline of its own."""
    caller = server.send(get(b"/echo", b"Content-Length: 30", method=b"POST"))
    for _ in range(29):
        server.pass_time(2)
        caller.send(b"x")
    assert caller.answers() == []
    caller.send(b"x")
    assert caller.answer().status == 200
    server.pass_time(30)
    caller.send(get(b"/open"))
    assert [answer.status for answer in caller.answers()] == [200, 200]


def test_a_body_that_falls_silent_is_408(server: Server) -> None:
    """After the idle time; silence is what counts, not the total."""
    caller = server.send(head_of(b"/echo", 10), b"x")
    server.pass_time(74)
    caller.send(b"x")
    server.pass_time(74.75)
    assert caller.answers() == []
    server.pass_time(0.25)
    assert caller.answer().status == 408
    assert caller.closed
    server.pass_time(LINGER_SECS)
    assert caller.transport.aborted


def test_a_silent_connection_is_closed_without_a_word(server: Server) -> None:
    """Before its first request and between two."""
    fresh, kept = server.connect(), server.send(get(b"/open"))
    server.pass_time(74.75)
    assert not fresh.closed
    assert not kept.closed
    server.pass_time(0.25)
    assert fresh.transport.disconnecting
    assert kept.transport.disconnecting
    assert fresh.answers() == []
    assert len(kept.answers()) == 1


def test_no_deadline_runs_while_a_handler_works(serve: Serve) -> None:
    """A caller that waits for a result is not silent, it waits."""
    waiting: Deferred[Answer] = Deferred()
    server = serve((row("GET", "/slow"), lambda request: waiting), *ROWS)
    caller = server.send(get(b"/slow"))
    server.pass_time(1000, step=1)
    assert caller.answers() == []
    waiting.callback(Response(200, b"at last"))
    assert caller.answer().body == b"at last"
    server.pass_time(74)
    caller.send(get(b"/open"))
    assert caller.answers()[1].body == b"ok"


# -- several requests on a connection ----------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """However they are cut into reads."""
    requests = b"".join(
        get(b"/things/%d" % i) + post(b"/echo", b"%d" % i) + chunked_head(b"/echo") + chunk(b"c%d" % i) + END
        for i in range(20)
    )
    expected = [text for i in range(20) for text in (b"%d" % i, b"%d" % i, b"c%d" % i)]
    for size in (1, 7, 100, len(requests)):
        caller = server.send(*(requests[at : at + size] for at in range(0, len(requests), size)))
        assert [answer.body for answer in caller.answers()] == expected


def test_a_slow_request_holds_up_those_behind_it(serve: Serve) -> None:
    """Order is kept, and what waits is bounded."""
    waiting: list[Deferred[Answer]] = []

    def slow(request: AgentRequest) -> Deferred[Answer]:
        waiting.append(Deferred())
        return waiting[-1]

    server = serve((row("GET", "/slow"), slow), *ROWS, cap=100_000)
    caller = server.send(get(b"/slow") + get(b"/open"))
    assert caller.answers() == []
    caller.send(
        *([b"POST /echo HTTP/1.1\r\n" + BEARER + b"Content-Length: 60000\r\n\r\n"] + [b"x" * 1000] * 60)
    )
    assert 40_000 < caller.unread < 60_000
    waiting[0].callback(Response(200, b"slow"))
    caller.deliver()
    assert [len(answer.body) for answer in caller.answers()] == [4, 2, 60_000]


def test_a_thousand_requests_in_one_read(server: Server) -> None:
    """No recursion, no request lost."""
    caller = server.send(get(b"/open") * 1000)
    assert [answer.body for answer in caller.answers()] == [b"ok"] * 1000
    caller = server.send(post(b"/echo", b"x") * 1000)
    assert [answer.body for answer in caller.answers()] == [b"x"] * 1000


def test_connection_close_is_honoured(server: Server) -> None:
    """Nothing after it is served."""
    for value in (b"close", b"Close", b"keep-alive, close"):
        caller = server.send(get(b"/open", b"Connection: " + value) + get(b"/open"), get(b"/open"))
        assert caller.answer().closes
        assert caller.transport.disconnecting


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    """In its own version, by length."""
    for request in (b"GET /open HTTP/1.0\r\n\r\n", b"GET /open HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"):
        caller = server.send(request)
        answer = caller.answer()
        assert (answer.version, answer.body) == (b"HTTP/1.0", b"ok")
        assert answer.headers["content-length"] == "2"
        assert answer.closes
        assert caller.transport.disconnecting
    refused = server.send(b"POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")
    assert refused.answer().status == 401


# -- targets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        (b"http://example.test/things/a?x=1", 200, b"a"),
        (b"HTTP://example.test:9000/things/a", 200, b"a"),
        (b"https://user@example.test/things/a", 200, b"a"),
        (b"http://example.test?x=1", 404, b""),
        (b"http://example.test", 404, b""),
        (b"ftp://example.test/things/a", 404, b""),
        (b"things/a", 404, b""),
        (b"xthings/a", 404, b""),
        (b"xopen", 404, b""),
        (b"///things/a", 404, b""),
        (b"*", 404, b""),
        (b"/things/a%2Fb", 200, b"a/b"),
        (b"/things/a%2fb%2F", 200, b"a/b/"),
        (b"/things/%2e%2e", 200, b".."),
        (b"/things/..", 200, b".."),
        (b"/things/.", 200, b"."),
        (b"/things/a%20b+c", 200, b"a b+c"),
        (b"/things/%F0%9F%92%A9", 200, "\N{PILE OF POO}".encode()),
        (b"/things/a|b", 200, b"a|b"),
        (b"/things/a;b=c", 200, b"a;b=c"),
        (b"/things/<id>", 200, b"<id>"),
        (b"/things/{id}", 200, b"{id}"),
        (b"/things/a:b@c", 200, b"a:b@c"),
        (b"/things/a#b", 200, b"a#b"),
        (b"/things/%", 200, b"%"),
        (b"/things/%zz", 200, b"%zz"),
        (b"/things/%00", 200, b"\0"),
        (b"/things/a?b?c", 200, b"a"),
        (b"/things/\\a", 200, b"\\a"),
        (b"/things/a/", 404, b""),
        (b"/things//a", 404, b""),
        (b"//things/a", 404, b""),
        (b"/things/", 404, b""),
        (b"/things/%2F", 200, b"/"),
        (b"/things%2Fa", 404, b""),
        (b"/thin%67s/a", 404, b""),
        (b"/op%65n", 404, b""),
        (b"/open;x", 404, b""),
        (b"/open?" + b"x" * 1000, 200, b"ok"),
        (b"//open", 404, b""),
        (b"/./open", 404, b""),
        (b"/things/../open", 404, b""),
    ],
)
def test_a_target_means_what_it_says(server: Server, target: bytes, status: int, body: bytes) -> None:
    """Segments are decoded one by one after the match; nothing is merged, resolved or redirected (contract a.0)."""
    caller = server.send(get(target), get(b"/open"))
    answer, after = caller.answers()
    assert (answer.status, answer.body) == (status, body)
    assert after.body == b"ok"


@pytest.mark.parametrize(
    "target",
    [b"/things/%ff", b"/things/%C3%28", b"/things/%ED%A0%80", b"/things/\x80\x81", b"/\x80", b"/op\xaa"],
)
def test_a_path_that_is_not_utf_8_is_400(server: Server, target: bytes) -> None:
    """Never a traceback; an answer that a person understands."""
    caller = server.send(get(target), get(b"/open"))
    answer, after = caller.answers()
    assert answer.status == 400
    assert b"UTF-8" in answer.body
    assert after.body == b"ok"


def test_the_token_comes_before_the_path(server: Server) -> None:
    """An ill-encoded id tells nothing to a caller without one (contract i.1)."""
    assert server.send(get(b"/things/%ff", bearer=False)).answer().status == 401


@pytest.mark.parametrize("host", [b"", b"Host: \xff\xfe\r\n", b"Host: a\r\nHost: b\r\n", b"Host: a b c\r\n"])
def test_the_host_header_does_not_matter(server: Server, host: bytes) -> None:
    """No route depends on it; a missing or a hostile one changes nothing."""
    for target, body in ((b"/things/a", b"a"), (b"/open", b"ok")):
        caller = server.send(b"GET %s HTTP/1.1\r\n%s%s\r\n" % (target, host, BEARER))
        assert caller.answer().body == body
