"""A refusal is decided from headers, and reaches its caller whatever becomes of the body (contract a.0, i)."""

import gc

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent

from agentd.config import LINGER_BYTES, LINGER_SECS
from agentd.http.messages import Answer, Response
from agentd.http.request import AgentRequest
from agentd.http.routes import Auth, Body
from tests.http.conftest import Serve
from tests.http.support import BEARER, END, Caller, Row, chunk, chunked_head, echo, get, head_of, post, row

ROWS: tuple[Row, ...] = (
    (row("GET", "/open", Auth.NONE), lambda request: Response(200, b"ok")),
    (row("POST", "/things", body=Body.WANTED), echo()),
    (row("GET", "/things/{id}"), lambda request, id: Response(200, id.encode())),
    (row("POST", "/things/{id}/part", body=Body.WANTED), echo()),
    (row("POST", "/ignored"), lambda request: Response(200, b"ignored")),
)


def usable(caller: Caller) -> None:
    """The connection serves another request."""
    before = len(caller.answers())
    caller.send(get(b"/open"))
    after = caller.answers()
    assert len(after) == before + 1
    assert (after[-1].status, after[-1].body) == (200, b"ok")
    assert not caller.closed


@pytest.mark.parametrize("target", [b"/things", b"/things/x/part"])
@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"", 401),
        (b"Authorization: Bearer wrong\r\n", 401),
        (b"Authorization: Bearer\r\n", 401),
        (b"Authorization: Bearer \r\n", 401),
        (b"Authorization: Basic aW4tbWVtb3J5LXRva2Vu\r\n", 401),
        (b"Authorization: in-memory-token\r\n", 401),
        (b"Authorization: Bearer in-memory-token\xff\r\n", 401),
        (b"Authorization: Bearer wrong\r\n" + BEARER, 401),
        (BEARER, 200),
        (b"authorization: bEaReR in-memory-token\r\n", 200),
        (BEARER + b"Authorization: Bearer wrong\r\n", 200),
    ],
)
def test_the_first_authorization_header_decides(
    serve: Serve, target: bytes, header: bytes, status: int
) -> None:
    """Contract i.2."""
    caller = serve(*ROWS).send(b"POST %s HTTP/1.1\r\n%sContent-Length: 2\r\n\r\nhi" % (target, header))
    answer = caller.answer()
    assert answer.status == status
    if status == 401:
        assert answer.body == b""
        assert "www-authenticate" not in answer.headers
    usable(caller)


@pytest.mark.parametrize("presented", [b"", BEARER, b"Authorization: Bearer wrong\r\n"])
def test_before_bootstrap_every_token_gets_503(serve: Serve, presented: bytes) -> None:
    """Contract i.3: no guess can be told from another."""
    server = serve(*ROWS, token=None)
    for target in (b"/things", b"/things/x/part", b"/ignored"):
        caller = server.send(b"POST %s HTTP/1.1\r\n%sContent-Length: 2\r\n\r\nhi" % (target, presented))
        assert (caller.answer().status, caller.answer().body) == (503, b"")
        usable(caller)


def test_a_declared_length_over_the_cap_is_413_before_the_token(serve: Serve) -> None:
    """Contract a.0: the cap wraps the router, and stands before the guard, on every bearer route."""
    for token in (b"irrelevant", None):
        server = serve(*ROWS, token=token, cap=1000)
        for target in (b"/things", b"/things/x/part", b"/ignored"):
            caller = server.send(head_of(target, 1001, bearer=False))
            answer = caller.answer()
            assert (answer.status, answer.body) == (413, b"length limit exceeded")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert answer.closes
            assert caller.transport.half_closed


def test_exactly_the_cap_is_not_too_large(serve: Serve) -> None:
    """`cap` bytes pass the guard."""
    server = serve(*ROWS, cap=1000)
    assert server.send(post(b"/things", b"a" * 1000)).answer().body == b"a" * 1000
    assert server.send(head_of(b"/things", 1000, bearer=False) + b"a" * 101).answer().status == 401


def test_an_absurd_length_is_too_large_and_no_fault(serve: Serve) -> None:
    """A length of thousands of digits is a number, if a large one."""
    server = serve(*ROWS)
    for digits in (20, 400, 4000):
        caller = server.send(get(b"/things", b"Content-Length: " + b"9" * digits, method=b"POST"))
        assert caller.answer().status == 413
    for digits in (4301, 5000, 9000):
        caller = server.send(get(b"/things", b"Content-Length: " + b"9" * digits, method=b"POST"))
        assert caller.answer().status in (400, 413)
        assert caller.closed


def test_a_small_refused_body_is_drained_and_the_connection_kept(serve: Serve) -> None:
    """Contract i.4; however the body is cut into reads, and also when it comes after the head."""
    for chunks in (
        [post(b"/things", b"x" * 100, bearer=False)],
        [head_of(b"/things", 100, bearer=False), b"x" * 100],
        [head_of(b"/things", 100, bearer=False) + b"x" * 40, b"x" * 60],
        [head_of(b"/things", 100, bearer=False), *([b"x"] * 100)],
        [chunked_head(b"/things", bearer=False) + chunk(b"x" * 100) + END],
        [chunked_head(b"/things", bearer=False), chunk(b"x" * 50), chunk(b"x" * 50), END],
        [chunked_head(b"/things", bearer=False), END],
    ):
        caller = serve(*ROWS).send(*chunks)
        assert caller.answer().status == 401
        assert not caller.answer().closes
        usable(caller)


def test_the_answer_waits_for_the_drain(serve: Serve) -> None:
    """So that a kept connection has nothing of the old request left on it."""
    caller = serve(*ROWS).send(head_of(b"/things", 100, bearer=False), b"x" * 99)
    assert caller.answers() == []
    caller.send(b"x")
    assert caller.answer().status == 401


def test_a_long_refused_body_is_answered_at_once_and_the_connection_closed(serve: Serve) -> None:
    """The write half is closed; what still comes is read and dropped, so that no reset overtakes the answer."""
    server = serve(*ROWS)
    caller = server.send(head_of(b"/things", 101, bearer=False))
    assert caller.answer().status == 401
    assert caller.answer().closes
    assert caller.transport.half_closed
    caller.send(b"x" * 100)
    assert not caller.transport.disconnecting
    caller.send(b"x")
    assert caller.transport.disconnecting
    assert not caller.transport.aborted
    assert caller.answer().status == 401


def test_a_chunked_body_over_the_drain_cap_is_answered_and_closed(serve: Serve) -> None:
    """The same, found out while draining."""
    caller = serve(*ROWS).send(chunked_head(b"/things", bearer=False), chunk(b"x" * 100))
    assert caller.answers() == []
    caller.send(chunk(b"x"))
    assert caller.answer().status == 401
    assert caller.answer().closes
    assert caller.transport.half_closed
    caller.send(chunk(b"x" * 50), END)
    assert caller.transport.disconnecting


def test_a_refused_body_that_stalls_is_answered_at_the_deadline(serve: Serve) -> None:
    """The drain has one, so that a caller that waits for the verdict gets it."""
    server = serve(*ROWS, drain_secs=5.0)
    caller = server.send(head_of(b"/things", 100, bearer=False), b"x" * 50)
    server.pass_time(4.75)
    assert caller.answers() == []
    server.pass_time(0.25)
    assert caller.answer().status == 401
    assert caller.answer().closes
    assert caller.transport.half_closed
    server.pass_time(LINGER_SECS)
    assert caller.transport.aborted


def test_the_linger_ends_by_time_and_by_size(serve: Serve) -> None:
    """A caller that goes on sending is cut off."""
    server = serve(*ROWS)
    slow = server.send(head_of(b"/things", 1_000, bearer=False))
    server.pass_time(LINGER_SECS - 0.25)
    assert not slow.transport.aborted
    server.pass_time(0.25)
    assert slow.transport.aborted

    fast = server.send(chunked_head(b"/things", bearer=False), chunk(b"x" * 101))
    for _ in range(LINGER_BYTES // 65_536):
        fast.send(chunk(b"x" * 65_536))
    assert not fast.transport.aborted
    fast.send(chunk(b"x"))
    assert fast.transport.aborted
    assert [answer.status for answer in fast.answers()] == [401]


def test_a_caller_that_expects_100_gets_the_verdict_instead(serve: Serve) -> None:
    """No body byte is asked for."""
    server = serve(*ROWS)
    expect = b"Expect: 100-continue"
    for request, status in (
        (head_of(b"/things", 10, expect, bearer=False), 401),
        (head_of(b"/things", 20_000, expect), 413),
        (head_of(b"/nowhere", 10, expect), 404),
        (get(b"/open", expect, b"Content-Length: 10", method=b"POST"), 405),
        (chunked_head(b"/things", expect, bearer=False), 401),
    ):
        caller = server.send(request)
        assert caller.answer().status == status
        assert caller.answer().closes
        assert caller.transport.half_closed


def test_a_caller_that_expects_100_and_may_go_on_is_told_so(serve: Serve) -> None:
    """Once, and before the answer."""
    caller = serve(*ROWS).send(head_of(b"/things", 10, b"Expect: 100-continue"))
    assert caller.answer().status == 100
    caller.send(b"0123456789")
    assert [answer.status for answer in caller.answers()] == [100, 200]
    assert caller.answers()[1].body == b"0123456789"
    usable(caller)


def test_http_1_0_has_no_100(serve: Serve) -> None:
    """RFC 9110 10.1.1: the expectation of an HTTP/1.0 caller is ignored."""
    caller = serve(*ROWS).send(
        b"POST /things HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" + BEARER + b"\r\n"
    )
    assert caller.answers() == []
    caller.send(b"hi")
    assert caller.answer().body == b"hi"


def test_an_unmatched_path_is_404_for_anyone(serve: Serve) -> None:
    """Contract a.0: empty body, never 401, with or without a body of its own."""
    for token in (b"irrelevant", None):
        server = serve(*ROWS, token=token)
        for request in (
            get(b"/nowhere", bearer=False),
            get(b"/nowhere"),
            get(b"/"),
            get(b"/things/x/y/z"),
            get(b"/things/"),
            get(b"/open/"),
            get(b"/OPEN"),
            get(b"*", method=b"OPTIONS"),
            post(b"/nowhere", b"x" * 100, bearer=False),
        ):
            caller = server.send(request)
            assert (caller.answer().status, caller.answer().body) == (404, b""), request
            usable(caller)


def test_a_wrong_method_is_405_after_the_token(serve: Serve) -> None:
    """Contract a.0: 401 and 503 come first on bearer paths; ``Allow`` says what there is."""
    server, closed = serve(*ROWS), serve(*ROWS, token=None)
    for target, allow in (
        (b"/things", "POST"),
        (b"/things/x", "GET, HEAD"),
        (b"/things/x/part", "POST"),
    ):
        assert closed.send(get(target, method=b"DELETE")).answer().status == 503
        assert server.send(get(target, method=b"DELETE", bearer=False)).answer().status == 401
        caller = server.send(get(target, method=b"DELETE"))
        assert (caller.answer().status, caller.answer().headers["allow"]) == (405, allow)
        usable(caller)
    assert closed.send(get(b"/open", method=b"DELETE")).answer().headers["allow"] == "GET, HEAD"
    too_long = get(b"/things", b"Content-Length: 20000", method=b"DELETE", bearer=False)
    assert server.send(too_long).answer().status == 413


def test_methods_are_case_sensitive_on_every_path(serve: Serve) -> None:
    """RFC 9110 9.1; one table or the other may not make a difference."""
    server = serve(*ROWS)
    for target in (b"/open", b"/things/x"):
        assert server.send(get(target, method=b"get")).answer().status == 405
        assert server.send(get(target, method=b"Get")).answer().headers["allow"] == "GET, HEAD"
        assert server.send(get(target, method=b"OPTIONS")).answer().status == 405
        assert server.send(get(target, method=b"FOO")).answer().status == 405


def test_head_is_get_without_the_body(serve: Serve) -> None:
    """Same status and headers, for exact and for matched paths, and for refusals."""
    server = serve(*ROWS)
    for target in (b"/open", b"/things/abc", b"/nowhere"):
        get_answer = server.send(get(target)).answer()
        caller = server.send(get(target, method=b"HEAD") + get(b"/open"))
        head_answer, after = caller.answers(0)
        assert head_answer.status == get_answer.status
        assert head_answer.headers["content-length"] == get_answer.headers["content-length"]
        assert after.body == b"ok"
    refused = server.send(get(b"/things/abc", method=b"HEAD", bearer=False))
    assert refused.answer(0).status == 401
    assert server.send(get(b"/things", method=b"HEAD")).answer(0).status == 405


def test_an_ignored_body_is_read_to_its_end_before_the_answer(serve: Serve) -> None:
    """A route that takes no body answers as if none were there."""
    server = serve(*ROWS)
    caller = server.send(head_of(b"/ignored", 6000), b"x" * 3000)
    assert caller.answers() == []
    caller.send(b"x" * 3000)
    assert caller.answer().body == b"ignored"
    usable(caller)
    caller = server.send(chunked_head(b"/ignored") + chunk(b"x" * 5000) + END)
    assert caller.answer().body == b"ignored"


def test_an_ignored_chunked_body_over_the_cap_is_413(serve: Serve) -> None:
    """Nothing is read for ever."""
    caller = serve(*ROWS, cap=1000).send(chunked_head(b"/ignored"), chunk(b"x" * 1000), chunk(b"x" * 200))
    assert caller.answers() == []
    caller.send(chunk(b"x" * 101))
    assert caller.answer().status == 413
    assert caller.answer().closes


def test_a_caller_that_leaves_during_the_drain_costs_nothing(serve: Serve, logged: list[LogEvent]) -> None:
    """Neither a request in flight nor a line in the log, on either way to a refusal."""
    server = serve(*ROWS)
    for target in (b"/things", b"/things/x/part", b"/nowhere", b"/open", b"/things/x"):
        for length in (100, 1000):
            server.send(head_of(target, length, bearer=False), b"x" * 50).leave()
            server.send(head_of(target, length), b"x" * 50).leave()
        server.send(chunked_head(target, bearer=False), chunk(b"x")).leave()
    assert server.site.state.in_flight == 0
    gc.collect()
    assert logged == []


def test_a_refusal_after_much_was_read_still_keeps_the_connection(serve: Serve) -> None:
    """The drain cap counts what comes after the refusal."""
    rows = (*ROWS, (row("PUT", "/small", body=Body.WANTED), echo(limit=200)))
    request = get(b"/small", b"Content-Length: 290", method=b"PUT")
    caller = serve(*rows).send(request, b"x" * 201, b"x" * 60)
    assert caller.answers() == []
    caller.send(b"x" * 29)
    assert caller.answer().status == 413
    assert not caller.answer().closes
    usable(caller)


def test_a_refusal_after_a_second_thought_comes_instead_of_the_100(serve: Serve) -> None:
    """No body is asked for until a handler wants it; then the 100 is sent, once, before the answer."""
    thinking: list[Deferred[Answer]] = []
    requests: list[AgentRequest] = []

    def later(request: AgentRequest) -> "Deferred[Answer]":
        requests.append(request)
        thinking.append(Deferred())
        return thinking[-1]

    server = serve((row("POST", "/later", body=Body.WANTED), later), *ROWS)
    expect = head_of(b"/later", 10, b"Expect: 100-continue")
    refused = server.send(expect)
    assert refused.answers() == []
    thinking[-1].callback(Response(507, b"no room"))
    assert refused.answer().status == 507
    assert refused.answer().closes
    accepted = server.send(expect)
    assert accepted.answers() == []
    body = requests[-1].read_body(100)
    assert accepted.answer().status == 100
    accepted.send(b"0123456789")
    body.addCallback(lambda data: thinking[-1].callback(Response(200, data)))
    assert [answer.status for answer in accepted.answers()] == [100, 200]
    usable(accepted)
    impatient = server.send(expect, b"0123456789")
    impatient.deliver()
    body = requests[-1].read_body(100)
    impatient.deliver()
    body.addCallback(lambda data: thinking[-1].callback(Response(200, data)))
    assert impatient.answers()[-1].body == b"0123456789"
    eager = server.send(expect + b"0123456789")
    body = requests[-1].read_body(100)
    body.addCallback(lambda data: thinking[-1].callback(Response(200, data)))
    assert eager.answer().body == b"0123456789", "who has sent the body needs no 100"
