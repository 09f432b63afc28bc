"""Answers: JSON, prose, refusals, server-sent events."""

import json

import msgspec
import pytest

from agentd.http import messages, sse
from agentd.http.messages import Problem, Refused, Response, as_json, as_text, problem, refuse


def test_json_is_compact_utf_8() -> None:
    """And says what it is."""
    answer = as_json({"a": "é", "b": [1, None]}, 201, ((b"X", b"y"),))
    assert answer == Response(201, '{"a":"é","b":[1,null]}'.encode(), b"application/json", ((b"X", b"y"),))


def test_prose_is_plain_text() -> None:
    """With its charset."""
    assert as_text(400, "é") == Response(400, "é".encode(), b"text/plain; charset=utf-8")


def test_a_path_of_any_bytes_can_be_told() -> None:
    """Lone surrogates, which stand for bytes that are not UTF-8, become question marks."""
    path = b"/tmp/\xff".decode("utf-8", "surrogateescape")
    assert as_text(404, path).body == b"/tmp/?"
    assert json.loads(problem(404, "x", path).body) == {"error": "x", "detail": "/tmp/?"}


def test_a_problem_is_a_slug_and_prose() -> None:
    """Contract a.0."""
    answer = problem(409, "still_running", "a has not exited")
    assert answer.status == 409
    assert msgspec.json.decode(answer.body, type=Problem) == Problem("still_running", "a has not exited")
    raised = refuse(409, "still_running", "a has not exited")
    assert isinstance(raised, Refused)
    assert raised.response == answer
    assert str(raised) == "refused with 409"


def test_constant_answers() -> None:
    """Contract a.0."""
    assert as_text(413, "length limit exceeded") == messages.TOO_LARGE
    assert as_text(500, "internal error") == messages.INTERNAL
    assert Response(200) == messages.EMPTY_OK


@pytest.mark.parametrize(
    ("event", "wire"),
    [
        (sse.event(b"exit", b"{}"), b"event: exit\ndata: {}\n\n"),
        (sse.event(b"output", b'{"a":1}', 0), b'event: output\nid: 0\ndata: {"a":1}\n\n'),
        (sse.event(b"gap", b"[]", 2**64 - 1), b"event: gap\nid: 18446744073709551615\ndata: []\n\n"),
        (sse.KEEP_ALIVE, b":\n\n"),
    ],
)
def test_events_on_the_wire(event: bytes, wire: bytes) -> None:
    """Contract d: LF endings, one data line."""
    assert event == wire
