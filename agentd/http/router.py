"""From a request to its handler: the route lists, tables of plain paths, Klein for the rest.

Theory of operation
-------------------
Every row of every face's list is registered with Klein, once something comes that needs it: werkzeug compiles each rule
in half a millisecond, which a start need not wait for. Paths without parameters, and those whose parameters are written
plainly, are in tables, which answer them at a third of the cost; the checks they pass are the same, because both ways
lead to one `Endpoint`.

An endpoint decides from headers alone, in the order of the contract (a.0, i.1): the declared length (413), the
token (503, 401), the method (405); only then does a body byte count.

What Klein and werkzeug do by themselves is fenced here: HTML error pages, redirects for double slashes, ``%2F``
decoded into a separator (segments are kept encoded until after the match), answers made of ``None``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from inspect import isawaitable
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

from attrs import evolve
from klein import Klein
from klein.resource import KleinResource
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from agentd.http.messages import HANDED_OVER, Refused, Response
from agentd.http.request import AgentRequest, BodyTooLarge, CallerGone
from agentd.http.routes import PLAIN, Auth, Body, Face, Handler, Refusals, Route
from agentd.rules.bootstrap import Access

Gate = Callable[[bytes | None], Access]
"""Decides a presented token; see `agentd.rules.bootstrap.authorize`."""

_log = Logger()


class Endpoint:
    """One row of a route list, ready to run."""

    def __init__(
        self, route: Route, handler: Handler, gate: Gate, max_body_bytes: int, refusals: Refusals = PLAIN
    ) -> None:
        self.route = route
        self.parameters = tuple(re.findall(r"\{(\w+)\}", route.path))
        """The names of the parameters of the path, in its order."""
        self.refusals = refusals
        self._denied = {
            Access.UNAVAILABLE: refusals.unavailable,
            Access.UNAUTHORIZED: refusals.unauthorized,
        }
        self._handler = handler
        self._gate = gate if route.auth is Auth.BEARER else None
        self._cap = max_body_bytes

    def refusal(self, request: AgentRequest) -> Response | None:
        """What the headers alone decide against, or None."""
        if self._gate is None:
            return None
        early = self.refusals.early_length
        if early and request.declared is not None and request.declared > self._cap:
            return self.refusals.too_large
        return self._denied.get(self._gate(request.bearer))

    def run(self, request: AgentRequest, parameters: Mapping[str, str]) -> Deferred[None] | None:
        """Answer `request`. A Deferred fires when an answer that is not immediate was given."""
        refused = self.refusal(request)
        if refused is not None:
            request.respond(refused)
            return None
        try:
            arguments = {name: _segment(raw) for name, raw in parameters.items()}
        except UnicodeDecodeError:
            request.respond(self.refusals.bad_path)
            return None
        if self.route.body is Body.WANTED:
            request.hold_continue()
        elif not request.complete:
            return Deferred.fromCoroutine(self._after_body(request, arguments))
        try:
            answer = self._handler(request, **arguments)
        except Exception:
            self._fail(request, Failure())
            return None
        if isawaitable(answer):
            return Deferred.fromCoroutine(self._finish(request, answer))
        self._give(request, answer)
        return None

    async def _after_body(self, request: AgentRequest, arguments: Mapping[str, str]) -> None:
        try:
            await request.discard_body(self._cap)
            answer = self._handler(request, **arguments)
        except Exception:
            self._fail(request, Failure())
            return
        if isawaitable(answer):
            await self._finish(request, answer)
        else:
            self._give(request, answer)

    async def _finish(self, request: AgentRequest, answer: Any) -> None:
        try:
            result = await answer
        except (Exception, CancelledError):
            self._fail(request, Failure())
        else:
            self._give(request, result)

    def _give(self, request: AgentRequest, answer: Any) -> None:
        if answer is HANDED_OVER:
            return
        if isinstance(answer, Response):
            request.respond(answer)
        else:
            self._fail(request, Failure(TypeError(f"a handler returned {type(answer).__name__}")))

    def _fail(self, request: AgentRequest, failure: Failure) -> None:
        if failure.check(Refused):
            assert isinstance(failure.value, Refused)
            request.respond(failure.value.response)
        elif failure.check(BodyTooLarge):
            request.respond(self.refusals.too_large)
        elif request.gone and failure.check(CallerGone, CancelledError):
            pass
        else:
            # The traceback shows code, never values; the message may quote a caller, so it stays out.
            _log.error(
                "{method} {path} failed: {kind}",
                method=self.route.method,
                path=self.route.path,
                kind=failure.type.__name__ if failure.type else "unknown",
                where=_where(failure),
            )
            if request.startedWriting and not request.gone:
                request.channel.transport.abortConnection()
            request.respond(self.refusals.internal)


def _where(failure: Failure) -> list[str]:
    """The frames of a failure, innermost last, as ``file:line function``."""
    return [f"{name}:{line} {function}" for function, name, line, _, _ in failure.frames[-8:]]


def _segment(raw: str) -> str:
    return unquote_to_bytes(raw).decode("utf-8")


def _until_finished(request: Any, running: Deferred[None] | None) -> Deferred[None]:
    """What Klein waits for: it finishes a request whose handler returns, and ours finish themselves."""
    if request.finished or request.gone:
        return succeed(None)
    done: Deferred[None] = request.notifyFinish()

    def gone(failure: Failure) -> None:
        if running is not None:
            running.cancel()

    return done.addErrback(gone)


def _with_head(methods: Iterable[bytes]) -> list[bytes]:
    """What a path answers: GET brings HEAD along."""
    known = sorted(methods)
    return [*known, b"HEAD"] if b"GET" in known else known


_PLAIN: Final = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.~:-]*").fullmatch
"""A parameter's value that stands for itself in a path (RFC 3986 2.3 and 3.3), and is no dot segment."""


def _rule(path: str) -> str:
    return path.replace("{", "<").replace("}", ">")


class Router:
    """Dispatches requests over the route lists of `faces`."""

    def __init__(self, faces: Iterable[Face], gate: Gate, max_body_bytes: int) -> None:
        self._exact: dict[bytes, dict[bytes, Endpoint]] = {}
        self._patterns: dict[tuple[bytes | None, ...], dict[bytes, Endpoint]] = {}
        """Paths with parameters: by their segments, None for a parameter, and method."""
        self._places: dict[int, list[tuple[int, ...]]] = {}
        """Number of segments to the places that parameters of such a path can have, the fewest parameters first."""
        self._endpoints: dict[str, Endpoint] = {}
        self._methods: dict[str, list[bytes]] = {}
        self._prefixes: list[tuple[bytes, Refusals]] = []
        for face in faces:
            if face.prefix:
                self._prefixes.append((face.prefix, face.refusals))
            for route in face.routes:
                self._add(Endpoint(route, face.handler(route), gate, max_body_bytes, face.refusals))

    def _add(self, endpoint: Endpoint) -> None:
        route = endpoint.route
        name = f"{route.method} {route.path}"
        if name in self._endpoints:
            raise LookupError(f"{name} is on two route lists")
        self._endpoints[name] = endpoint
        self._methods.setdefault(route.path, []).append(route.method.encode())
        if "{" not in route.path:
            self._exact.setdefault(route.path.encode(), {})[route.method.encode()] = endpoint
            return
        segments = route.path.encode().split(b"/")
        places = tuple(place for place, segment in enumerate(segments) if segment.startswith(b"{"))
        pattern = tuple(None if place in places else segment for place, segment in enumerate(segments))
        self._patterns.setdefault(pattern, {})[route.method.encode()] = endpoint
        known = self._places.setdefault(len(segments), [])
        if places not in known:
            known.append(places)
            known.sort(key=len)

    @cached_property
    def _klein(self) -> Klein:
        app = Klein()
        app.url_map.merge_slashes = False
        app.url_map.strict_slashes = True
        app.handle_errors(MethodNotAllowed)(self._method_not_allowed)
        app.handle_errors(HTTPException)(self._unmatched)
        for name, endpoint in self._endpoints.items():
            route = endpoint.route
            app.route(_rule(route.path), methods=[route.method], endpoint=name)(self._through_klein(endpoint))
        return app

    @cached_property
    def _resource(self) -> KleinResource:
        return self._klein.resource()

    def _through_klein(self, endpoint: Endpoint) -> Callable[..., Deferred[None]]:
        own = _with_head([endpoint.route.method.encode()])

        def run(request: Any, **parameters: str) -> Deferred[None]:
            # werkzeug takes "get" for GET; methods are case-sensitive (RFC 9110 9.1).
            if request.method not in own:
                self._refuse_method(request, endpoint)
                return _until_finished(request, None)
            return _until_finished(request, endpoint.run(request, parameters))

        return run

    def dispatch(self, request: AgentRequest) -> None:
        """Answer `request`, now or later."""
        methods, parameters = self._look_up(request.path)
        if methods is None:
            if not request.path.isascii():
                request.respond(self._refusals(request).bad_path)
                return
            if request.path[:1] != b"/" or request.path[:2] == b"//":
                # Klein drops the first byte unseen, and werkzeug every slash that follows.
                request.respond(self._refusals(request).not_found)
                return
            self._resource.render(cast(IRequest, request))
            return
        method = b"GET" if request.method == b"HEAD" else request.method
        endpoint = methods.get(method)
        if endpoint is None:
            self._refuse_method(request, next(iter(methods.values())))
            return
        running = endpoint.run(request, parameters)
        if running is not None:
            request.when_gone(running.cancel)

    def _look_up(self, path: bytes) -> tuple[dict[bytes, Endpoint] | None, dict[str, str]]:
        """What the tables have for a path, by method, with its parameters; None when Klein has to look."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, {}
        segments: list[bytes | None] = [*path.split(b"/")]
        for places in self._places.get(len(segments), ()):
            pattern = segments.copy()
            for place in places:
                pattern[place] = None
            methods = self._patterns.get(tuple(pattern))
            if methods is not None:
                values = [cast(bytes, segments[place]) for place in places]
                if not all(map(_PLAIN, values)):
                    return None, {}
                names = next(iter(methods.values())).parameters
                return methods, {
                    name: value.decode("ascii") for name, value in zip(names, values, strict=True)
                }
        return None, {}

    def _refuse_method(self, request: AgentRequest, known: Endpoint) -> None:
        allowed = b", ".join(_with_head(self._methods[known.route.path]))
        refused = known.refusal(request)
        if refused is None:
            wrong = known.refusals.wrong_method
            refused = evolve(wrong, headers=(*wrong.headers, (b"Allow", allowed)))
        request.respond(refused)

    def _method_not_allowed(self, request: Any, failure: Failure) -> Deferred[None]:
        error = failure.value
        assert isinstance(error, MethodNotAllowed)
        mapper = self._klein.url_map.bind("localhost", path_info=request.path.decode("ascii"))
        name, _ = mapper.match(method=next(iter(error.valid_methods or ())))
        self._refuse_method(request, self._endpoints[name])
        return _until_finished(request, None)

    def _unmatched(self, request: Any, failure: Failure) -> Deferred[None]:
        request.respond(self._refusals(request).not_found)
        return _until_finished(request, None)

    def _refusals(self, request: AgentRequest) -> Refusals:
        """Those of the face that a path on no list belongs to."""
        for prefix, refusals in self._prefixes:
            if request.path == prefix or request.path.startswith(prefix + b"/"):
                return refusals
        return PLAIN
