"""The frames between a worker and an iii engine: one JSON object each, told apart by `type` (reference A1, A2).

Pure: bytes to values and back. Optional members are left out rather than null. What is not understood is not an
error: a frame of an unknown type decodes to `Unknown`, as does text that is no JSON object, and is dropped by whoever
asked.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec
from attrs import frozen
from msgspec import UNSET, Struct, UnsetType

_encode = msgspec.json.Encoder().encode


@frozen
class ErrorBody:
    """A failure on the wire."""

    code: str
    message: str

    @classmethod
    def of(cls, value: object) -> Self | None:
        """What an `error` member says, None when it is absent. One that is malformed is an error all the same."""
        if value is None:
            return None
        given = value if isinstance(value, dict) else {}
        code, message = given.get("code"), given.get("message")
        return cls(
            code if isinstance(code, str) else "UNKNOWN",
            message if isinstance(message, str) else "no message",
        )


# -- from the engine -----------------------------------------------------------------------------------------------


class Registered(Struct, frozen=True):
    """`workerregistered`: who we are on this connection. The token proves it on the next one."""

    worker_id: str
    reattach_token: str | None = None

    def __repr__(self) -> str:
        return f"Registered({self.worker_id!r})"


class Invoke(Struct, frozen=True):
    """`invokefunction`. Without an `invocation_id` nobody waits for an answer."""

    function_id: str
    invocation_id: str | None = None
    data: Any = None


class Result(Struct, frozen=True):
    """`invocationresult`: the answer to a call of ours."""

    invocation_id: str
    result: Any = None
    error: Any = None
    """For `ErrorBody.of`."""


class Rejected(Struct, frozen=True):
    """`registrationrejected`."""

    code: str
    namespace: str = ""
    worker_name: str | None = None
    function_id: str | None = None
    owner_worker_id: str = ""


class TriggerResult(Struct, frozen=True):
    """`triggerregistrationresult`."""

    id: str = ""
    trigger_type: str = ""
    function_id: str = ""
    error: Any = None
    """For `ErrorBody.of`."""


class Refusal(Struct, frozen=True):
    """`error`: the engine will not have this connection (A1)."""

    error: Any = None


@frozen
class Ping:
    """`ping`, to be answered with `PONG`."""


@frozen
class Unknown:
    """Anything else, by its type, or "" for what is no frame at all."""

    type: str = ""


Frame = Registered | Invoke | Result | Rejected | TriggerResult | Refusal | Ping | Unknown

_SHAPES: Final[Mapping[str, type[Struct]]] = {
    "workerregistered": Registered,
    "invokefunction": Invoke,
    "invocationresult": Result,
    "registrationrejected": Rejected,
    "triggerregistrationresult": TriggerResult,
    "error": Refusal,
}
_TELEMETRY: Final = (b"OTLP", b"MTRC", b"LOGS")
MAX_DEPTH: Final = 512


def decode(payload: bytes) -> Frame:
    """The frame of a message, text or binary."""
    if payload.startswith(_TELEMETRY):
        return Unknown("telemetry")
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Unknown()
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return Unknown()
    kind = value["type"]
    if kind == "ping":
        return Ping()
    shape = _SHAPES.get(kind)
    if shape is None:
        return Unknown(kind)
    try:
        frame: Frame = msgspec.convert(value, shape)  # type: ignore[assignment]  # one of the shapes above
    except msgspec.ValidationError:
        return Unknown(kind)
    return frame


# -- to the engine -------------------------------------------------------------------------------------------------


PONG: Final = _encode({"type": "pong"})


class _Out(Struct, frozen=True, omit_defaults=True):
    """A frame: members that are UNSET are left out."""


class _Reattach(_Out, frozen=True, tag_field="type", tag="reattach"):
    previous_worker_id: str
    reattach_token: str | UnsetType = UNSET


class _RegisterFunction(_Out, frozen=True, tag_field="type", tag="registerfunction"):
    id: str
    description: str
    request_format: Any
    response_format: Any
    metadata: Any = UNSET


class _RegisterTrigger(_Out, frozen=True, tag_field="type", tag="registertrigger"):
    id: str
    trigger_type: str
    function_id: str
    config: Any


class _Invoke(_Out, frozen=True, tag_field="type", tag="invokefunction"):
    function_id: str
    data: Any
    invocation_id: str | UnsetType = UNSET
    action: Any = UNSET


class _Answer(Struct, frozen=True, tag_field="type", tag="invocationresult"):
    invocation_id: str
    function_id: str
    result: Any


class _Failure(Struct, frozen=True, tag_field="type", tag="invocationresult"):
    invocation_id: str
    function_id: str
    error: dict[str, str]


def reattach(previous: Registered) -> bytes:
    """The first frame of a connection that goes on with an earlier one."""
    return _encode(_Reattach(previous.worker_id, previous.reattach_token or UNSET))


def register_function(
    id: str, description: str, request: Any, response: Any, metadata: Mapping[str, Any]
) -> bytes:
    """A function that is served here."""
    return _encode(_RegisterFunction(id, description, request, response, metadata or UNSET))


def register_trigger(id: str, trigger_type: str, function_id: str, config: Mapping[str, Any]) -> bytes:
    """A wish to be called when something happens."""
    return _encode(_RegisterTrigger(id, trigger_type, function_id, config))


def invoke(function_id: str, data: Any, invocation_id: str) -> bytes:
    """A call that is answered."""
    return _encode(_Invoke(function_id, data, invocation_id))


def invoke_void(function_id: str, data: Any) -> bytes:
    """A call that is not."""
    return _encode(_Invoke(function_id, data, action={"type": "void"}))


def answer(invocation_id: str, function_id: str, result: bytes) -> bytes:
    """A result, JSON already."""
    return _encode(_Answer(invocation_id, function_id, msgspec.Raw(result)))


def failure(invocation_id: str, function_id: str, code: str, message: str) -> bytes:
    """A failure. What is not Unicode in its text is shown as ``?``."""
    text = message.encode("utf-8", "replace").decode()
    return _encode(_Failure(invocation_id, function_id, {"code": code, "message": text}))
