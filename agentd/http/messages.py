"""What a handler returns, and what it raises to refuse.

A `Response` is complete: status, headers, body. A handler that streams, or hands the connection to another
protocol, returns `HANDED_OVER` instead, so that forgetting to answer cannot look like an answer. `Refused`
carries a `Response` up through any depth of helpers.
"""

from enum import Enum
from typing import Any, Final

import msgspec
from attrs import field, frozen

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
OCTETS: Final = b"application/octet-stream"
TAR: Final = b"application/x-tar"
EVENTS: Final = b"text/event-stream"

Headers = tuple[tuple[bytes, bytes], ...]

_encode = msgspec.json.Encoder().encode


@frozen
class Response:
    """A whole answer. `headers` are besides content-type and content-length."""

    status: int
    body: bytes = field(default=b"", repr=False)
    content_type: bytes | None = None
    headers: Headers = ()


class _HandedOver(Enum):
    HANDED_OVER = "handed over"


HANDED_OVER: Final = _HandedOver.HANDED_OVER
"""Returned by a handler that answers by itself, now or later."""

Answer = Response | _HandedOver


class Refused(Exception):
    """Ends a request with `response`. Its text names the status only: a body may quote a caller's value."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"refused with {response.status}")
        self.response = response


class Problem(msgspec.Struct, frozen=True):
    """The error body of the exec family: a slug to branch on and prose for a person (contract a.0)."""

    error: str
    detail: str


def as_json(value: Any, status: int = 200, headers: Headers = ()) -> Response:
    """A JSON answer of anything msgspec encodes."""
    return Response(status, _encode(value), JSON, headers)


def as_text(status: int, text: str) -> Response:
    """A prose answer, UTF-8. Lone surrogates (a path of arbitrary bytes) are shown as ``?``."""
    return Response(status, text.encode("utf-8", "replace"), TEXT)


def problem(status: int, slug: str, detail: str) -> Response:
    """An answer in the error shape of the exec family."""
    printable = detail.encode("utf-8", "replace").decode("utf-8")
    return as_json(Problem(slug, printable), status)


def refuse(status: int, slug: str, detail: str) -> Refused:
    """`problem`, to be raised."""
    return Refused(problem(status, slug, detail))


EMPTY_OK: Final = Response(200)
TOO_LARGE: Final = as_text(413, "length limit exceeded")
INTERNAL: Final = as_text(500, "internal error")
