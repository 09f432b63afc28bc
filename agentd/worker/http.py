"""The functions over HTTP: what there is, and a call with its arguments as the body.

An additive face beside the engine, with the bearer token, so that the functions are useful without one. A result is
the answer's body; a failure is ``{code, message}`` with 422, in the same two shapes as over the engine. Content streams
of `fs::read` and `fs::write` need an engine; over HTTP the files routes carry content.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from agentd.http.messages import JSON, Answer, Refused, Response, as_json
from agentd.http.request import AgentRequest, BodyTooLarge
from agentd.http.routes import Auth, Body, Refusals, Route, Shape, Status

PREFIX: Final = "/v1/functions"
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_JSON = "application/json"


class Failure(msgspec.Struct, frozen=True):
    """Every answer that is no success: the code that a caller of the engine would get, and words for a person."""

    code: str
    message: str


class FunctionDocument(msgspec.Struct, frozen=True):
    """One function, as the engine is told of it."""

    name: str
    description: str
    metadata: dict[str, Any]
    request_schema: dict[str, Any]
    response_schema: dict[str, Any]


class FunctionList(msgspec.Struct, frozen=True):
    """Every function, by name."""

    functions: list[FunctionDocument]


def failure(status: int, code: str, message: str) -> Response:
    """An answer in the one shape of failures."""
    return as_json(Failure(code, message.encode("utf-8", "replace").decode()), status)


_COMMON: Final = (
    Status(401, "unauthorized", "the token is missing or not the installed one"),
    Status(404, "function_not_found", "there is no such function or path"),
    Status(405, "method_not_allowed", "the path has no such method; Allow says which"),
    Status(500, "internal_error", "an unforeseen fault; only the log says more"),
    Status(503, "unavailable", "no token is installed"),
)

ROUTES: Final = (
    Route(
        "GET",
        PREFIX,
        Auth.BEARER,
        "The functions of the worker: names, descriptions and JSON Schemas.",
        (Status(200, "", "all of them"), *_COMMON),
        response=Shape(_JSON, FunctionList),
        tags=("functions",),
        problem=Failure,
    ),
    Route(
        "POST",
        f"{PREFIX}/{{id}}",
        Auth.BEARER,
        "Call a function. A caller who leaves ends the call, and a command in the foreground with it.",
        (
            Status(200, "", "the result"),
            Status(400, "invalid_request", "the body is not JSON"),
            Status(413, "payload_too_large", "the body is larger than 16 MiB"),
            Status(
                422, "", "the function failed; the code is the function's, such as S211 or invocation_failed"
            ),
            *_COMMON,
        ),
        body=Body.WANTED,
        request=Shape(_JSON, note="The function's arguments, an object; empty for one without."),
        response=Shape(_JSON, note="The function's result, as its response_schema says."),
        tags=("functions",),
        problem=Failure,
    ),
)

TOO_LARGE: Final = failure(413, "payload_too_large", f"the body is larger than {MAX_BODY_BYTES} bytes")
REFUSALS: Final = Refusals(
    unavailable=failure(503, "unavailable", "no token is installed"),
    unauthorized=Response(
        401,
        as_json(Failure("unauthorized", "the token is missing or not the installed one")).body,
        JSON,
        ((b"WWW-Authenticate", b"Bearer"),),
    ),
    not_found=failure(404, "function_not_found", "there is no such function"),
    wrong_method=failure(405, "method_not_allowed", "the path has no such method"),
    bad_path=failure(404, "function_not_found", "there is no such function"),
    too_large=TOO_LARGE,
    internal=failure(500, "internal_error", "internal error"),
)


async def read_arguments(request: AgentRequest) -> Any:
    """The body as JSON; without one, no arguments. Raises `Refused` with 413 or 400."""
    if request.declared is not None and request.declared > MAX_BODY_BYTES:
        raise Refused(TOO_LARGE)
    try:
        body = await request.read_body(MAX_BODY_BYTES)
    except BodyTooLarge:
        raise Refused(TOO_LARGE) from None
    if not body.strip():
        return {}
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused(failure(400, "invalid_request", "the body is not JSON")) from None


def document(functions: Mapping[str, Any]) -> bytes:
    """`FunctionList` as JSON, of `agentd.worker.registry.Described` by name."""
    return msgspec.json.encode(
        FunctionList(
            [
                FunctionDocument(
                    name, each.description, each.metadata, each.request_schema, each.response_schema
                )
                for name, each in functions.items()
            ]
        )
    )


def result(encoded: bytes) -> Answer:
    """A result, JSON already."""
    return Response(200, encoded, JSON)


if __name__ == "__main__":
    from agentd.http.document import markdown

    print(markdown(ROUTES), end="")
