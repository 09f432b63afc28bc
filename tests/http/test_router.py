"""From a route list to handlers: what a fault in one becomes, and what may never come out of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import LogEvent
from twisted.web.server import NOT_DONE_YET

from agentd.http.messages import Refused, Response, as_json, problem, refuse
from agentd.http.request import AgentRequest
from agentd.http.router import Router
from agentd.http.routes import Auth, Body, Face
from agentd.log import as_text, fields
from agentd.rules.bootstrap import Access
from tests.http.conftest import Serve
from tests.http.support import BEARER, TOKEN, Row, Server, get, post, row

SECRET = "s3cr3t-in-a-body"
PATHS = (b"/exact", b"/matched/x", b"/matched/%78")
"""Through the table of paths, that of paths with parameters, and Klein."""


def both(handler: Any, method: str = "GET", body: Body = Body.IGNORED) -> tuple[Row, ...]:
    """The same handler, reached in each way; and one that always works."""
    return (
        (row(method, "/exact", body=body), handler),
        (row(method, "/matched/{id}", body=body), handler),
        (row("GET", "/open", Auth.NONE), lambda request: Response(200, b"ok")),
    )


def raises(error: BaseException) -> Any:
    def handler(request: AgentRequest, **parameters: str) -> Response:
        raise error

    return handler


def fails(error: BaseException) -> Any:
    return lambda request, **parameters: fail(error)


def coroutine(error: BaseException) -> Any:
    async def handler(request: AgentRequest, **parameters: str) -> Response:
        raise error

    return handler


def after_body(error: BaseException) -> Any:
    async def handler(request: AgentRequest, **parameters: str) -> Response:
        await request.read_body(1000)
        raise error

    return handler


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [raises, fails, coroutine, after_body])
@pytest.mark.parametrize(
    "error", [ValueError(SECRET), KeyError(SECRET), CancelledError(), RecursionError(SECRET)]
)
def test_an_unhandled_exception_is_500_and_the_connection_survives(
    serve: Serve, logged: list[LogEvent], path: bytes, kind: Any, error: Exception
) -> None:
    """Contract a.0: no traceback to the caller; the log says where, and quotes nothing that was sent."""
    caller = serve(*both(kind(error), "POST", Body.WANTED)).send(
        post(path, SECRET.encode()) + get(b"/open"), get(b"/open")
    )
    first, *rest = caller.answers()
    assert (first.status, first.body) == (500, b"internal error")
    assert [answer.body for answer in rest] == [b"ok", b"ok"]
    assert len(logged) == 1
    line = fields(logged[0])
    assert line["level"] == "error"
    assert line["kind"] == type(error).__name__
    assert any("test_router.py" in frame for frame in line["where"])
    for text in (json.dumps(line), as_text(line), str(logged[0])):
        assert SECRET not in text
        assert TOKEN.decode() not in text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("result", [None, b"bytes", "text", [1], {}, NOT_DONE_YET, 0, True, Response])
def test_an_answer_that_is_none_is_500(serve: Serve, path: bytes, result: Any) -> None:
    """A handler that forgets to answer is a fault, not an empty 200."""
    for handler in (lambda request, **p: result, lambda request, **p: succeed(result)):
        caller = serve(*both(handler)).send(get(path) + get(b"/open"))
        assert [answer.status for answer in caller.answers()] == [500, 200]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [raises, fails, coroutine])
def test_a_refusal_is_answered_as_it_is(serve: Serve, logged: list[LogEvent], path: bytes, kind: Any) -> None:
    """From any depth, without a word in the log."""
    caller = serve(*both(kind(refuse(409, "slug", "why")))).send(get(path) + get(b"/open"))
    answer, after = caller.answers()
    assert answer.status == 409
    assert json.loads(answer.body) == {"error": "slug", "detail": "why"}
    assert answer.headers["content-type"] == "application/json"
    assert after.status == 200
    assert logged == []


def test_the_text_of_a_refusal_names_no_value() -> None:
    """It may end up in a log."""
    assert SECRET not in str(Refused(problem(400, "slug", SECRET)))
    assert SECRET not in repr(problem(400, "slug", SECRET))


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_may_come_later(serve: Serve, path: bytes) -> None:
    """Deferreds and coroutines alike."""
    waiting: Deferred[Response] = Deferred()
    caller = serve(*both(lambda request, **p: waiting)).send(get(path))
    assert caller.answers() == []
    waiting.callback(Response(200, b"later"))
    caller.send(get(b"/open"))
    assert [answer.body for answer in caller.answers()] == [b"later", b"ok"]


def test_headers_of_a_response_are_sent(serve: Serve) -> None:
    """Besides those that every answer has."""
    response = Response(201, b"x", b"text/plain", ((b"A", b"1"), (b"B", b"2")))
    answer = serve(*both(lambda request: response)).send(get(b"/exact")).answer()
    assert answer.status == 201
    assert {"a": "1", "b": "2", "content-length": "1", "content-type": "text/plain"}.items() <= (
        answer.headers.items()
    )
    assert answer.raw.startswith(b"HTTP/1.1 201 Created\r\nmicrovms-agentd-version: ")


@pytest.mark.parametrize("status", [200, 204, 304, 418, 507, 599])
def test_every_status_has_a_line(serve: Serve, status: int) -> None:
    """Also those without a phrase of their own; a body only where there may be one."""
    caller = serve(*both(lambda request: Response(status, b"body"))).send(get(b"/exact") + get(b"/open"))
    answer, after = caller.answers()
    assert answer.status == status
    assert answer.body == (b"" if status in (204, 304) else b"body")
    assert after.body == b"ok"


def test_parameters_are_passed_by_name(serve: Serve) -> None:
    """In any number."""
    rows = ((row("GET", "/a/{x}/b/{y}"), lambda request, y, x: Response(200, f"{x}-{y}".encode())),)
    assert serve(*rows).send(get(b"/a/1%2F2/b/3")).answer().body == b"1/2-3"


SEGMENTS = st.sampled_from(
    ["a", "b", "x", "", ".", "..", "%2F", "%61", "a%20b", "-", "~x", "_", "a:b", "%E2%80%A2", "%ff", "+"]
)


@settings(deadline=None)
@given(
    st.lists(SEGMENTS, min_size=1, max_size=5), st.sampled_from(["GET", "HEAD", "POST", "get"]), st.booleans()
)
def test_the_tables_answer_as_klein_does(segments: list[str], method: str, trusted: bool) -> None:
    """Whatever the path: the same status, headers and body, also before the token is looked at."""
    rows = [
        (row("GET", path, auth), lambda request, path=path, **p: as_json([path, p]))
        for path, auth in (
            ("/a", Auth.BEARER),
            ("/a/{x}", Auth.BEARER),
            ("/a/{y}/b", Auth.NONE),
            ("/a/b/{z}/x", Auth.BEARER),
            ("/{w}", Auth.NONE),
            ("/a/{x}/b/{y}", Auth.BEARER),
        )
    ]
    path = "/".join(["", *segments]).encode()
    answers = []
    for tables in (True, False):
        server = Server(*rows)
        if not tables:
            server.router._exact.clear()
            server.router._patterns.clear()
        caller = server.send(get(path, method=method.encode(), bearer=trusted))
        answer = caller.answer(*([0] if method == "HEAD" else []))
        server.hang_up()
        answers.append((answer.status, answer.headers.get("allow"), answer.body))
    assert answers[0] == answers[1]


def test_one_path_may_have_several_methods(serve: Serve) -> None:
    """Each with its handler; ``Allow`` names them all."""
    rows: list[Row] = []
    for method in ("GET", "PUT", "POST"):
        for path in ("/exact", "/matched/{id}"):
            rows.append(
                (row(method, path), lambda request, method=method, **p: Response(200, method.encode()))
            )
    server = serve(*rows)
    for path in PATHS:
        for method in (b"GET", b"PUT", b"POST"):
            assert server.send(get(path, method=method)).answer().body == method
        refused = server.send(get(path, method=b"DELETE")).answer()
        assert refused.status == 405
        assert sorted(refused.headers["allow"].split(", ")) == ["GET", "HEAD", "POST", "PUT"]


def test_a_row_without_a_handler_stops_the_start() -> None:
    """Rather than a 404 at run time."""
    route = row("GET", "/a")
    with pytest.raises(LookupError, match="no handler for GET /a"):
        Router([Face("test", (route,), {})], lambda token: Access.GRANTED, 100)


def test_a_row_twice_stops_the_start() -> None:
    """Two faces may not claim the same path."""
    route = row("GET", "/a")
    face = Face("test", (route,), {route.key: lambda request: Response(200)})
    with pytest.raises(LookupError, match="two route lists"):
        Router([face, face], lambda token: Access.GRANTED, 100)


def test_two_lists_share_the_router(serve: Serve) -> None:
    """Methods of one path may come from different faces."""
    first, second = row("GET", "/a"), row("PUT", "/a")
    faces = [
        Face(name, (route,), {route.key: lambda request, name=name: Response(200, name.encode())})
        for name, route in (("one", first), ("two", second))
    ]
    server = serve()
    server.site.dispatch = Router(faces, lambda token: Access.GRANTED, 100).dispatch
    assert server.send(get(b"/a")).answer().body == b"one"
    assert server.send(get(b"/a", method=b"PUT")).answer().body == b"two"
    assert server.send(get(b"/a", method=b"POST")).answer().headers["allow"] == "GET, PUT, HEAD"


def test_the_gate_sees_the_token_as_bytes(serve: Serve) -> None:
    """Never decoded; None when no bearer credential came."""
    seen: list[bytes | None] = []

    def gate(token: bytes | None) -> Access:
        seen.append(token)
        return Access.UNAUTHORIZED

    route = row("GET", "/a")
    server = serve()
    server.site.dispatch = Router(
        [Face("t", (route,), {route.key: lambda request: Response(200)})], gate, 9
    ).dispatch
    for header in (
        b"",
        b"Authorization: Bearer a b\r\n",
        b"Authorization: bearer \xff\xfe\r\n",
        b"Authorization: X\r\n",
    ):
        server.send(b"GET /a HTTP/1.1\r\n" + header + b"\r\n")
    assert seen == [None, b"a b", b"\xff\xfe", None]


def test_nothing_is_logged_in_ordinary_operation(serve: Serve, logged: list[LogEvent]) -> None:
    """No access log; refusals are the caller's business."""
    server = serve(*both(lambda request, **p: Response(200)))
    for request in (
        get(b"/exact"),
        get(b"/matched/x"),
        get(b"/exact", bearer=False),
        get(b"/matched/x", method=b"PUT"),
        get(b"/nowhere"),
        get(b"/matched/%ff"),
        get(b"/\x80"),
        b"garbage\r\n\r\n",
        b"GET /exact HTTP/1.1\r\n" + BEARER,
    ):
        server.send(request).leave()
    assert logged == []
