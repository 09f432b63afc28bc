"""The errors of an environment: one body for all, and which answer an errno means (environments 2, 5.2)."""

import errno
import os
from enum import Enum, unique
from typing import Final

from agentd.environments import shapes
from agentd.http.messages import Headers, Refused, Response, as_json
from agentd.http.routes import Refusals


@unique
class Slug(Enum):
    """What clients branch on."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    ENVIRONMENT_FAILED = "environment_failed"
    LIMIT_EXCEEDED = "limit_exceeded"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    INVALID_BODY = "invalid_body"
    TOO_MANY_PROCESSES = "too_many_processes"
    INTERNAL_ERROR = "internal_error"
    EXEC_FAILED = "exec_failed"
    EXEC_TIMEOUT = "exec_timeout"
    FILE_OPERATION_FAILED = "file_operation_failed"
    ENVIRONMENT_NOT_RUNNING = "environment_not_running"


def error(status: int, slug: Slug, message: str, headers: Headers = ()) -> Response:
    """An answer in the one shape of errors."""
    printable = message.encode("utf-8", "replace").decode("utf-8")
    return as_json(shapes.Error(slug.value, printable), status, headers)


def refuse(status: int, slug: Slug, message: str) -> Refused:
    """`error`, to be raised."""
    return Refused(error(status, slug, message))


def invalid(message: str) -> Refused:
    """400."""
    return refuse(400, Slug.INVALID_REQUEST, message)


def invalid_query(detail: str) -> Refused:
    """400 for a query that cannot be parsed."""
    return invalid(f"invalid query: {detail}")


def too_large(limit: int) -> Response:
    """413."""
    return error(413, Slug.PAYLOAD_TOO_LARGE, f"body is larger than {limit} bytes")


def not_running(reason: str | None = None) -> Response:
    """503: not yet, not any more, or not at all."""
    tail = f": {reason}" if reason else ""
    return error(503, Slug.ENVIRONMENT_NOT_RUNNING, f"the environment is not running{tail}")


NO_RESOURCE: Final = error(404, Slug.NOT_FOUND, "no such resource")
NO_ROUTE: Final = error(404, Slug.NOT_FOUND, "no such route")
NO_FILE: Final = error(404, Slug.NOT_FOUND, "no such file or directory")
FORBIDDEN: Final = error(403, Slug.FORBIDDEN, "permission denied")
SUSPENDED: Final = error(409, Slug.LIMIT_EXCEEDED, "the environment is suspended: usage limit reached")


def failed(reason: str) -> Response:
    """409: broken until repaired."""
    return error(409, Slug.ENVIRONMENT_FAILED, f"the environment has failed: {reason}")


REFUSALS: Final = Refusals(
    unavailable=not_running("it was not bootstrapped"),
    unauthorized=error(401, Slug.UNAUTHORIZED, "missing or invalid key", ((b"WWW-Authenticate", b"Bearer"),)),
    not_found=NO_ROUTE,
    wrong_method=error(405, Slug.METHOD_NOT_ALLOWED, "method not allowed"),
    bad_path=NO_RESOURCE,
    too_large=error(413, Slug.PAYLOAD_TOO_LARGE, "body is too large"),
    internal=error(500, Slug.INTERNAL_ERROR, "internal error"),
    early_length=False,
)
"""What is answered where no handler is asked (environments 2.3, points 1 to 3)."""


_FORBIDDEN_ERRORS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_INVALID_ERRORS: Final = {
    errno.EISDIR: "path is a directory",
    errno.ELOOP: "path goes through too many symbolic links",
    errno.ENAMETOOLONG: "path is too long",
    errno.EINVAL: "path is not valid here",
    errno.ENXIO: "path is not a regular file",
    errno.ENODEV: "path is not a regular file",
}


def file_error(operation: str, number: int | None, *, parents: bool = False) -> Response:
    """The answer to a file operation that failed with errno `number` (environments 5.2).

    `parents`: missing parents were to be made, so that something in their way is a refusal and not an absence.
    """
    if number in (errno.ENOENT, errno.ENOTDIR):
        return FORBIDDEN if parents and number == errno.ENOTDIR else NO_FILE
    if number in _FORBIDDEN_ERRORS:
        return FORBIDDEN
    if number in _INVALID_ERRORS:
        return error(400, Slug.INVALID_REQUEST, _INVALID_ERRORS[number])
    text = os.strerror(number) if number else "the operation could not be completed"
    return error(503, Slug.FILE_OPERATION_FAILED, f"{operation} failed: {text}")
