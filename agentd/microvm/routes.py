"""The route list of protocol v1: twenty rows, and nothing answers that is not one of them."""

from typing import Final

from agentd.http.routes import FORM, Auth, Body, Event, Route, Shape, Status
from agentd.microvm import shapes

HOOK_PREFIX: Final = "/aws/lambda-microvms/runtime/v1"

_JSON = "application/json"
_EVENT_STREAM = "text/event-stream"
_OCTETS = "application/octet-stream"
_TAR = "application/x-tar"

_UNAUTHORIZED = Status(401, "", "no bearer token, or not the installed one")
_CLOSED = Status(503, "", "no token is installed yet: the control API is closed")
_DENIALS = (_UNAUTHORIZED, _CLOSED)
_UNKNOWN = Status(404, "unknown_exec", "no exec has this id, or it was acknowledged and collected")
_TOO_LARGE = Status(413, "", "the body is longer than limits.max_body_bytes, counted on the wire")
_ACKNOWLEDGED = Status(200, "", "acknowledged, always: on anything else the platform ends the VM")
_NO_ROOM = Status(
    507,
    "",
    "the file system has less room than the reserve; the body says how much. Not retryable, and no fault",
)


def _hook(name: str, summary: str, *statuses: Status, request: Shape | None = None) -> Route:
    return Route(
        "POST",
        f"{HOOK_PREFIX}/{name}",
        Auth.PLATFORM,
        summary,
        statuses or (_ACKNOWLEDGED,),
        body=Body.WANTED,
        request=request,
        tags=("hooks",),
    )


def _json(shape: type) -> Shape:
    return Shape(_JSON, shape)


HOOKS: Final = (
    _hook("ready", "The image build asks whether the daemon is up; also before bootstrap."),
    _hook("validate", "The image build asks once more; the hook log is the only trace of it."),
    _hook(
        "run",
        "One-shot bootstrap: installs the token, the launch environment and the tunnel identity of the "
        "payload, which is JSON inside the string runHookPayload.",
        Status(200, "", "installed; or the installed token again, whose other fields are ignored"),
        Status(
            400, "", "the body or the payload is not what it must be; the text names the key, never a value"
        ),
        Status(409, "", "another token is installed; nothing changes"),
        request=_json(shapes.RunHookEnvelope),
    ),
    _hook("suspend", "The VM is about to be suspended; the workload's handler runs first."),
    _hook("resume", "The VM was resumed. Everything survives except the clocks, which jump."),
    _hook(
        "terminate",
        "The VM is about to end: the handler runs, then the daemon stops taking on execs, lets requests in "
        "flight finish, and exits, unless it is configured to acknowledge only.",
    ),
)

EXEC: Final = (
    Route(
        "POST",
        "/v1/exec/start",
        Auth.BEARER,
        "Start a command under an id the caller mints; a retry with the same id spawns nothing. With "
        "Prefer: wait=SECONDS the answer is held for the result and has the poll shape.",
        (
            Status(200, "", "started now or by an earlier request; the phase is the actual one"),
            Status(
                400,
                "malformed_request",
                "the body is not a start request, exec_id is empty, timeout_sec is not a positive finite number, "
                "command is empty without a shell, or shell is an empty string",
            ),
            Status(
                400, "unknown_user", "user is no name of /etc/passwd and not all digits; nothing was spawned"
            ),
            Status(
                400, "unknown_group", "group is no name of /etc/group and not all digits; nothing was spawned"
            ),
            Status(
                400,
                "unknown_shell",
                "shell is no executable file where it was looked for; nothing was spawned",
            ),
            *_DENIALS,
            Status(503, "shutting_down", "the daemon is on its way out and starts nothing new"),
            _TOO_LARGE,
            Status(500, "spawn_failed", "the child could not be started; the id is free again. Never 404"),
        ),
        body=Body.WANTED,
        request=_json(shapes.StartRequest),
        response=_json(shapes.StartResponse),
        tags=("exec",),
    ),
    Route(
        "GET",
        "/v1/exec/{id}",
        Auth.BEARER,
        "Phase of an exec, and its outcome between exit and acknowledgement. Changes nothing. Honours "
        "Prefer: wait=SECONDS.",
        (Status(200, "", "the phase, with the outcome when it is exited"), *_DENIALS, _UNKNOWN),
        response=_json(shapes.PollResponse),
        tags=("exec",),
    ),
    Route(
        "GET",
        "/v1/exec/{id}/stream",
        Auth.BEARER,
        "Follow an exec's output as server-sent events from a byte offset.",
        (
            Status(200, "", "events from the offset on; attaching and leaving do not affect the exec"),
            Status(400, "malformed_request", "offset is not an unsigned integer"),
            *_DENIALS,
            _UNKNOWN,
        ),
        query=Shape(FORM, shapes.StreamQuery),
        response=Shape(
            _EVENT_STREAM,
            note="The next offset is an event's offset plus the length of its decoded bytes, and its id. "
            "A body that ends without an exit event was cut; the command may still run.",
        ),
        events=(
            Event("output", shapes.OutputEvent, "bytes of one stream at an offset"),
            Event("gap", shapes.GapEvent, "bytes in [from, to) that will never be delivered"),
            Event("exit", shapes.ExitEvent, "the result is published; nothing follows"),
        ),
        tags=("exec",),
    ),
    Route(
        "POST",
        "/v1/exec/{id}/stdin",
        Auth.BEARER,
        "Write to a child's stdin, or end it, or both. End of file is explicit.",
        (
            Status(200, "", "written; eof says whether the pipe was closed"),
            Status(400, "malformed_request", "the body is not a stdin request, or data_b64 is not base64"),
            *_DENIALS,
            _UNKNOWN,
            Status(
                408,
                "stdin_write_timeout",
                "the child did not read in time; the body's written counts the bytes in the pipe; retryable from there",
            ),
            Status(409, "stdin_not_requested", "the exec was started without stdin"),
            Status(410, "stdin_closed", "closed by an earlier eof, by the child, or by its end; final"),
            Status(
                413, "stdin_write_too_large", "the decoded write is larger than limits.max_stdin_write_bytes"
            ),
            _TOO_LARGE,
            Status(500, "stdin_write_failed", "the write failed for another reason"),
        ),
        body=Body.WANTED,
        request=_json(shapes.StdinRequest),
        response=_json(shapes.StdinResponse),
        tags=("exec",),
    ),
    Route(
        "POST",
        "/v1/exec/{id}/ack",
        Auth.BEARER,
        "Take the outcome and release the output. Only acknowledged execs are ever collected.",
        (
            Status(200, "", "the outcome, once more and for the last time; the TTL has started"),
            *_DENIALS,
            _UNKNOWN,
            Status(409, "still_running", "the result is not published yet"),
            Status(409, "already_acked", "an earlier acknowledgement released the output"),
        ),
        response=_json(shapes.PollResponse),
        tags=("exec",),
    ),
    Route(
        "POST",
        "/v1/exec/{id}/kill",
        Auth.BEARER,
        "SIGTERM, then SIGKILL after the grace, to the whole process group. Answers when that is over.",
        (Status(200, "", "killed is false when there was no group to signal"), *_DENIALS, _UNKNOWN),
        response=_json(shapes.KillResponse),
        tags=("exec",),
    ),
    Route(
        "GET",
        "/v1/procs",
        Auth.BEARER,
        "Every registered exec with the live pids of its process group.",
        (Status(200, "", "in the order of their starts; empty when nothing ran"), *_DENIALS),
        response=_json(shapes.ProcsResponse),
        tags=("exec",),
    ),
)

TUNNEL: Final = (
    Route(
        "GET",
        "/v1/tcp",
        Auth.BEARER,
        "Upgrade to a WebSocket relayed to a port on the guest's loopback; outcomes after that are close codes.",
        (
            Status(101, "", "upgraded; the dial comes after, and a refused one is close code 4502"),
            Status(
                400, "malformed_request", "port is missing or no port, identity is no flag, or no upgrade"
            ),
            *_DENIALS,
        ),
        query=Shape(FORM, shapes.TunnelQuery),
        tags=("tunnel",),
    ),
)

FILES: Final = (
    Route(
        "GET",
        "/v1/fs/file",
        Auth.BEARER,
        "Read a file, or a range of its lines, counted from 1 and inclusive.",
        (
            Status(200, "", "the bytes, streamed; a range that ends past the last line ends with it"),
            Status(206, "", "additive: the byte range that a Range header asked for"),
            Status(400, "", "path is missing or a directory, or a bound is no integer, 0, or reversed"),
            *_DENIALS,
            Status(404, "", "there is no such file"),
            Status(416, "", "additive: the Range header asks for bytes past the end"),
            Status(500, "", "the file cannot be opened or examined"),
        ),
        query=Shape(FORM, shapes.FileReadQuery),
        response=Shape(_OCTETS, note="The file's bytes."),
        tags=("files",),
    ),
    Route(
        "PUT",
        "/v1/fs/file",
        Auth.BEARER,
        "Write a file, parents included. Not confined: the same token runs commands.",
        (
            Status(204, "", "written, with its mode; agentd-write says how, Repr-Digest what"),
            Status(
                400, "", "path is missing, mode is not octal, or the digest does not match; nothing changed"
            ),
            *_DENIALS,
            _TOO_LARGE,
            _NO_ROOM,
            Status(500, "", "a parent could not be made, or the write or the mode failed"),
        ),
        body=Body.WANTED,
        query=Shape(FORM, shapes.FsQuery),
        request=Shape(_OCTETS, note="The file's bytes, streamed to disk."),
        tags=("files",),
    ),
    Route(
        "GET",
        "/v1/fs/tar",
        Auth.BEARER,
        "Download a tree as an archive.",
        (
            Status(200, "", "the archive, streamed; symlinks are stored as symlinks"),
            Status(400, "", "path is missing or not a directory"),
            *_DENIALS,
            Status(404, "", "there is no such directory"),
            Status(413, "", "the tree is larger than limits.max_tar_members or max_tar_bytes"),
            Status(500, "", "the tree cannot be walked or packed"),
        ),
        query=Shape(FORM, shapes.FsQuery),
        response=Shape(_TAR, note="Uncompressed unless Accept-Encoding asks for gzip or zstd."),
        tags=("files",),
    ),
    Route(
        "PUT",
        "/v1/fs/tar",
        Auth.BEARER,
        "Upload an archive and extract it below a directory, which no member can leave.",
        (
            Status(204, "", "extracted"),
            Status(400, "", "path is missing or relative, the archive is broken, or a member is refused"),
            *_DENIALS,
            Status(413, "", "the body or the archive is larger than its limits"),
            Status(415, "", "additive: the Content-Encoding is none that is understood"),
            _NO_ROOM,
            Status(500, "", "extraction failed for a reason of the file system"),
        ),
        body=Body.WANTED,
        query=Shape(FORM, shapes.FsQuery),
        request=Shape(_TAR, note="Uncompressed, or as Content-Encoding says: gzip, zstd."),
        tags=("files",),
    ),
)

OPEN: Final = (
    Route(
        "GET",
        "/v1/health",
        Auth.NONE,
        "How the daemon is. Polling it from outside is what keeps an idle VM alive; busy says whether to.",
        (Status(200, "", "always, bootstrapped or not"),),
        response=_json(shapes.Health),
        tags=("open",),
    ),
    Route(
        "GET",
        "/v1/schema",
        Auth.NONE,
        "This contract: every route, shape, status and limit in force.",
        (
            Status(200, "", "the document"),
            Status(400, "malformed_request", "additive: format is none that there is"),
        ),
        query=Shape(FORM, shapes.SchemaQuery),
        response=Shape(_JSON, note="This document, or with format=openapi the OpenAPI 3.1 document."),
        tags=("open",),
    ),
)

ROUTES: Final = (*HOOKS, *EXEC, *TUNNEL, *FILES, *OPEN)


if __name__ == "__main__":
    from agentd.http.document import markdown

    print(markdown(ROUTES), end="")
