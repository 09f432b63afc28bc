"""The shape of a route list: what one row says.

Each face declares its routes once, as a tuple of `Route`. From that list come the router
(`agentd.http.router`), ``GET /v1/schema`` and the OpenAPI document (`agentd.http.document`), the tables in
``docs/`` and the tests that drive every documented status. A path that is not on a list cannot be reached.
"""

from collections.abc import Awaitable, Callable
from enum import Enum, unique
from typing import Any

from attrs import field, frozen

from agentd.http.messages import INTERNAL, TOO_LARGE, Answer, Response, as_text

Handler = Callable[..., "Answer | Awaitable[Answer]"]
"""``handler(request, **path_parameters)``; plain functions answer without a coroutine's cost."""


@unique
class Auth(Enum):
    """Who may call, spelled as the schema document spells it."""

    BEARER = "bearer"
    NONE = "none"
    PLATFORM = "none (platform hook)"


@unique
class Body(Enum):
    """What becomes of a request's body."""

    IGNORED = "ignored"
    """Read to its end within the caps, and dropped."""
    WANTED = "wanted"
    """The handler reads it."""


@frozen
class Status:
    """One documented answer: status code, slug ("" when none), and what it means."""

    code: int
    slug: str
    meaning: str


@frozen
class Shape:
    """A body or query: its media type, and either its type or a note on what the bytes are."""

    media_type: str
    type: Any = None
    note: str | None = None


@frozen
class Event:
    """One server-sent event of a stream."""

    name: str
    type: Any
    meaning: str


@frozen
class Route:
    """One row of a route list."""

    method: str
    path: str
    """Segments in braces are parameters: one percent-decoded segment each."""
    auth: Auth
    summary: str
    statuses: tuple[Status, ...]
    body: Body = Body.IGNORED
    query: Shape | None = None
    request: Shape | None = None
    response: Shape | None = None
    events: tuple[Event, ...] = ()
    tags: tuple[str, ...] = ()
    problem: Any = None
    """The type of the body of every answer that is no success; None for the shape of the exec family."""

    @property
    def key(self) -> tuple[str, str]:
        """What a handler is registered under."""
        return self.method, self.path


FORM = "application/x-www-form-urlencoded"


@frozen
class Refusals:
    """What a face answers where none of its handlers is asked. The defaults are those of wire protocol v1."""

    unavailable: Response = Response(503)
    """No token is installed."""
    unauthorized: Response = Response(401)
    not_found: Response = Response(404)
    """No such path below the face's prefix."""
    wrong_method: Response = Response(405)
    """``Allow`` is added."""
    bad_path: Response = as_text(400, "the path is not percent-encoded UTF-8")
    too_large: Response = TOO_LARGE
    internal: Response = INTERNAL
    early_length: bool = True
    """Whether a declared length over the cap is refused before the token is looked at."""


PLAIN = Refusals()


@frozen
class Face:
    """A route list with a handler for each row, and who may use its bearer routes."""

    name: str
    routes: tuple[Route, ...]
    handlers: dict[tuple[str, str], Handler] = field(repr=False)
    refusals: Refusals = field(default=PLAIN, repr=False)
    prefix: bytes = b""
    """Below it every path is this face's, also those that are on no list; empty for none."""

    def handler(self, route: Route) -> Handler:
        """The handler of a row.

        Raises `LookupError` for a row without one, which stops the daemon at start.
        """
        try:
            return self.handlers[route.key]
        except KeyError:
            raise LookupError(f"{self.name}: no handler for {route.method} {route.path}") from None
