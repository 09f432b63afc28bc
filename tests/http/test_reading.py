"""Reading JSON bodies and queries into shapes, with the refusals of the exec family."""

import json

import pytest
from msgspec import Struct

from agentd.http.messages import Answer, Response, as_json
from agentd.http.query import JsonBody
from agentd.http.reading import read_json, read_query
from agentd.http.request import AgentRequest
from agentd.http.routes import Auth, Body
from tests.http.conftest import Serve
from tests.http.support import END, Server, chunk, chunked_head, get, head_of, post, row

JSON = b"Content-Type: application/json"
LIMIT = 50


class Shape(Struct):
    """A body."""

    name: str
    count: int = 0


@pytest.fixture
def server(serve: Serve) -> Server:
    """``POST /json`` answers the name it read; ``GET /query`` the pairs."""
    decoder = JsonBody(Shape)

    async def by_json(request: AgentRequest) -> Answer:
        shape: Shape = await read_json(request, decoder, LIMIT)
        return Response(200, shape.name.encode())

    def by_query(request: AgentRequest) -> Answer:
        return as_json(read_query(request))

    return serve(
        (row("POST", "/json", body=Body.WANTED), by_json),
        (row("GET", "/query", Auth.NONE), by_query),
    )


def slug(body: bytes) -> str:
    """The slug of a refusal."""
    found: str = json.loads(body)["error"]
    return found


def test_a_body_is_decoded(server: Server) -> None:
    """Declared or chunked, in any pieces, with any JSON content type."""
    body = b'{"name": "x", "count": 5}'
    for content_type in (JSON, b"content-type: application/problem+json", JSON + b"; charset=utf-8"):
        assert server.send(post(b"/json", body, content_type)).answer().body == b"x"
    assert (
        server.send(head_of(b"/json", len(body), JSON), *(body[i : i + 1] for i in range(len(body))))
        .answer()
        .body
        == b"x"
    )
    chunks = [chunk(body[:7]), chunk(body[7:]), END]
    assert server.send(chunked_head(b"/json", JSON), *chunks).answer().body == b"x"


@pytest.mark.parametrize(
    ("headers", "body", "detail"),
    [
        ((), b'{"name": "x"}', "content type"),
        ((b"Content-Type: text/plain",), b'{"name": "x"}', "content type"),
        ((JSON,), b"", "not JSON"),
        ((JSON,), b"{", "not JSON"),
        ((JSON,), b"{}", "name"),
        ((JSON,), b'{"name": 5}', "name"),
        ((JSON,), b'{"name": "x", "name": "y"}', "name is given twice"),
    ],
)
def test_what_cannot_be_decoded_is_malformed(
    server: Server, headers: tuple[bytes, ...], body: bytes, detail: str
) -> None:
    """400 ``malformed_request``, saying where, and the connection goes on."""
    caller = server.send(post(b"/json", body, *headers), get(b"/query"))
    refused, after = caller.answers()
    assert (refused.status, slug(refused.body)) == (400, "malformed_request")
    assert detail in json.loads(refused.body)["detail"]
    assert after.status == 200


def test_a_body_over_the_limit(server: Server) -> None:
    """Declared: 413 before a byte of it. Found out while it comes: 400 (contract a.0)."""
    declared = server.send(head_of(b"/json", LIMIT + 1, JSON))
    declared.send(b"x" * (LIMIT + 1))
    assert (declared.answer().status, declared.answer().body) == (413, b"length limit exceeded")
    chunked = server.send(chunked_head(b"/json", JSON), chunk(b"x" * LIMIT), chunk(b"x"), END)
    assert (chunked.answer().status, slug(chunked.answer().body)) == (400, "malformed_request")


def test_a_query_is_read_or_malformed(server: Server) -> None:
    """The same refusal."""
    assert server.send(get(b"/query?a=1&b=%20")).answer().body == b'{"a":"1","b":" "}'
    refused = server.send(get(b"/query?a=1&a=2")).answer()
    assert (refused.status, slug(refused.body)) == (400, "malformed_request")
