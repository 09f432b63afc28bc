"""The route list of an environment: twelve rows, and nothing answers below its prefix that is not one of them."""

from typing import Final

from agentd.environments import shapes
from agentd.http.routes import FORM, Auth, Body, Event, Route, Shape, Status

PREFIX: Final = "/v1/environments"
_ROOT: Final = f"{PREFIX}/{{id}}"

_JSON = "application/json"
_OCTETS = "application/octet-stream"

_COMMON: Final = (
    Status(401, "unauthorized", "the key is missing or not the installed one"),
    Status(404, "not_found", "there is no such environment"),
    Status(405, "method_not_allowed", "the path has no such method; Allow says which"),
    Status(409, "environment_failed", "the agent user has no usable home, or the operator says so"),
    Status(409, "limit_exceeded", "the operator has suspended the environment for its usage"),
    Status(500, "internal_error", "an unforeseen fault; only the log says more"),
    Status(
        503,
        "environment_not_running",
        "not bootstrapped yet, shutting down, or there is no agent user: the message says which",
    ),
)
_QUERY = Status(400, "invalid_request", "the query is malformed, or a value in it cannot be")
_BODY: Final = (
    Status(400, "invalid_request", "the body is not JSON, or a value in it cannot be"),
    Status(413, "payload_too_large", "the body is larger than 16 MiB"),
    Status(415, "unsupported_media_type", "the Content-Type is not application/json"),
    Status(422, "invalid_body", "the JSON is not what the schema says; unknown members count"),
)
_NO_PROCESS = Status(404, "not_found", "there is no such process")
_START = Status(503, "exec_failed", "the program could not be started, or the directory not be entered")
_FORBIDDEN = Status(403, "forbidden", "the agent user may not")
_NO_FILE = Status(404, "not_found", "there is no such file or directory")
_FILE = Status(503, "file_operation_failed", "the system failed: a full disk, an I/O error, too many files")


def _json(shape: object) -> Shape:
    return Shape(_JSON, shape)


def _route(
    method: str,
    path: str,
    summary: str,
    statuses: tuple[Status, ...],
    *,
    tag: str,
    body: Body = Body.IGNORED,
    query: type | None = None,
    request: Shape | None = None,
    response: Shape | None = None,
    events: tuple[Event, ...] = (),
) -> Route:
    return Route(
        method,
        f"{_ROOT}{path}",
        Auth.BEARER,
        summary,
        (*statuses, *_COMMON),
        body=body,
        query=None if query is None else Shape(FORM, query),
        request=request,
        response=response,
        events=events,
        tags=(tag,),
        problem=shapes.Error,
    )


EXEC: Final = (
    _route(
        "POST",
        "/exec",
        "Run a command as the agent user to its end, at most 10 minutes; 1 MiB of each output is returned.",
        (
            Status(200, "", "it ended, by itself, by a signal or by its timeout"),
            *_BODY,
            _START,
            Status(503, "exec_timeout", "it could not be killed within 30 s of its timeout"),
        ),
        tag="environment commands",
        body=Body.WANTED,
        request=_json(shapes.ExecRequest),
        response=_json(shapes.ExecResult),
    ),
)

FILES: Final = (
    _route(
        "GET",
        "/files",
        "Read a regular file, streamed.",
        (
            Status(200, "", "the bytes; a transfer cut short means that the file failed or shrank"),
            _QUERY,
            _FORBIDDEN,
            _NO_FILE,
            _FILE,
        ),
        tag="environment files",
        query=shapes.PathQuery,
        response=Shape(_OCTETS, note="The file's bytes."),
    ),
    _route(
        "PUT",
        "/files",
        "Write a regular file: whole or not at all where the agent user may put a file in its place.",
        (
            Status(201, "", "written, new or over an old one"),
            _QUERY,
            _FORBIDDEN,
            _NO_FILE,
            Status(413, "payload_too_large", "the body is larger than 1 GiB"),
            _FILE,
        ),
        tag="environment files",
        body=Body.WANTED,
        query=shapes.WriteQuery,
        request=Shape(_OCTETS, note="The file's bytes, streamed to disk; the Content-Type is not looked at."),
        response=_json(shapes.WriteFileResult),
    ),
    _route(
        "DELETE",
        "/files",
        "Remove a file, a link itself, or with recursive=true a directory and everything in it.",
        (Status(204, "", "removed"), _QUERY, _FORBIDDEN, _NO_FILE, _FILE),
        tag="environment files",
        query=shapes.RemoveQuery,
    ),
    _route(
        "GET",
        "/files/list",
        "List one level of a directory: the first 10,000 entries by the bytes of their names.",
        (
            Status(200, "", "the entries; truncated says whether there are more"),
            _QUERY,
            _FORBIDDEN,
            _NO_FILE,
            _FILE,
        ),
        tag="environment files",
        query=shapes.PathQuery,
        response=_json(shapes.DirectoryListing),
    ),
)

PROCESSES: Final = (
    _route(
        "GET",
        "/processes",
        "Every background process that has not been deleted, oldest first.",
        (Status(200, "", "at most 64"),),
        tag="environment processes",
        response=_json(shapes.ProcessList),
    ),
    _route(
        "POST",
        "/processes",
        "Start a background process as the agent user; its newest 8 MiB of output are retained.",
        (
            Status(201, "", "started"),
            *_BODY,
            Status(429, "too_many_processes", "64 exist, running and exited; deleting one makes room"),
            _START,
        ),
        tag="environment processes",
        body=Body.WANTED,
        request=_json(shapes.SpawnRequest),
        response=_json(shapes.Process),
    ),
    _route(
        "GET",
        "/processes/{pid}",
        "One background process.",
        (Status(200, "", "as it is now"), _NO_PROCESS),
        tag="environment processes",
        response=_json(shapes.Process),
    ),
    _route(
        "DELETE",
        "/processes/{pid}",
        "Kill a process that runs, and forget it and its output.",
        (Status(204, "", "the id and its place are free"), _NO_PROCESS),
        tag="environment processes",
    ),
    _route(
        "GET",
        "/processes/{pid}/output",
        "Read output from an offset: at once if there is any, else when it comes, after wait_secs at most.",
        (
            Status(200, "", "at most 4 MiB; reading consumes nothing"),
            _QUERY,
            _NO_PROCESS,
        ),
        tag="environment processes",
        query=shapes.OutputQuery,
        response=_json(shapes.ProcessOutput),
    ),
    _route(
        "GET",
        "/processes/{pid}/attach",
        "Upgrade to a WebSocket: output out, stdin and signals in. Each message is a JSON text.",
        (
            Status(101, "", "upgraded; from here on AttachServerMessage out, AttachClientMessage in"),
            Status(400, "invalid_request", "the query is malformed, or the request is no WebSocket upgrade"),
            _NO_PROCESS,
        ),
        tag="environment processes",
        query=shapes.AttachQuery,
        response=_json(shapes.AttachServerMessage),
        events=(Event("(from the client)", shapes.AttachClientMessage, "what a client may send"),),
    ),
    _route(
        "POST",
        "/processes/{pid}/signal",
        "Send TERM, KILL, INT or HUP to the process group; nothing happens to one that has exited.",
        (Status(204, "", "sent, or there was nobody to send it to"), *_BODY, _NO_PROCESS),
        tag="environment processes",
        body=Body.WANTED,
        request=_json(shapes.SignalRequest),
    ),
)

ROUTES: Final = (*EXEC, *FILES, *PROCESSES)


if __name__ == "__main__":
    from agentd.http.document import markdown

    print(markdown(ROUTES), end="")
