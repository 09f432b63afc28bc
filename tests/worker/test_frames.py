"""Frames as bytes: what is sent to the letter, and what is made of whatever comes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.worker import frames
from agentd.worker.frames import ErrorBody, Invoke, Ping, Refusal, Registered, Rejected, Result, Unknown


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (frames.PONG, {"type": "pong"}),
        (
            frames.reattach(Registered("w", "t")),
            {"type": "reattach", "previous_worker_id": "w", "reattach_token": "t"},
        ),
        (frames.reattach(Registered("w")), {"type": "reattach", "previous_worker_id": "w"}),
        (
            frames.register_function("f", "d", {"a": 1}, {"b": 2}, {}),
            {
                "type": "registerfunction",
                "id": "f",
                "description": "d",
                "request_format": {"a": 1},
                "response_format": {"b": 2},
            },
        ),
        (
            frames.register_trigger("i", "configuration", "f", {"c": []}),
            {
                "type": "registertrigger",
                "id": "i",
                "trigger_type": "configuration",
                "function_id": "f",
                "config": {"c": []},
            },
        ),
        (
            frames.invoke("f", {"x": None}, "n"),
            {"type": "invokefunction", "function_id": "f", "data": {"x": None}, "invocation_id": "n"},
        ),
        (
            frames.invoke_void("f", {}),
            {"type": "invokefunction", "function_id": "f", "data": {}, "action": {"type": "void"}},
        ),
        (
            frames.answer("n", "f", b"null"),
            {"type": "invocationresult", "invocation_id": "n", "function_id": "f", "result": None},
        ),
        (
            frames.failure("n", "f", "", "lone \ud800"),
            {
                "type": "invocationresult",
                "invocation_id": "n",
                "function_id": "f",
                "error": {"code": "", "message": "lone ?"},
            },
        ),
    ],
)
def test_what_is_sent(frame: bytes, text: dict[str, Any]) -> None:
    assert json.loads(frame) == text


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('{"type":"ping"}', Ping()),
        ('{"type":"workerregistered","worker_id":"w","features":[]}', Registered("w")),
        ('{"type":"workerregistered","worker_id":"w","reattach_token":null}', Registered("w")),
        ('{"type":"invokefunction","function_id":"f"}', Invoke("f")),
        (
            '{"type":"invokefunction","function_id":"f","invocation_id":"n","data":[1],"traceparent":null,'
            '"baggage":null,"action":null,"metadata":{"a":1},"namespace":null,"x":1}',
            Invoke("f", "n", [1]),
        ),
        ('{"type":"invocationresult","invocation_id":"n","function_id":"f"}', Result("n")),
        ('{"type":"invocationresult","invocation_id":"n","result":3}', Result("n", 3)),
        ('{"type":"registrationrejected","code":"C","namespace":"d"}', Rejected("C", "d")),
        ('{"type":"error","error":{"code":"X","message":"m"}}', Refusal({"code": "X", "message": "m"})),
        ('{"type":"observeradded"}', Unknown("observeradded")),
        ('{"type":"invokefunction"}', Unknown("invokefunction")),
        ("[]", Unknown()),
        ("", Unknown()),
    ],
)
def test_what_comes(text: str, frame: frames.Frame) -> None:
    assert frames.decode(text.encode()) == frame


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (None, None),
        ({"code": "S211", "message": "m", "stacktrace": "s"}, ErrorBody("S211", "m")),
        ({}, ErrorBody("UNKNOWN", "no message")),
        ("boom", ErrorBody("UNKNOWN", "no message")),
        ({"code": 1, "message": []}, ErrorBody("UNKNOWN", "no message")),
    ],
)
def test_errors(value: object, body: ErrorBody | None) -> None:
    assert ErrorBody.of(value) == body


@given(st.binary())
def test_any_bytes_are_a_frame_or_none(payload: bytes) -> None:
    assert isinstance(frames.decode(payload), frames.Frame)


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Registered("w", "secret"))
