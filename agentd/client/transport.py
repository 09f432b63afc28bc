"""One request to the daemon: credentials on it, a deadline around it, a typed error out of it.

Built on treq's client, which is injected (anything with its `request` method, such as `treq.testing.StubTreq`).
Redirects are not followed, because a credential must not travel to a place its owner did not name. Answers are
read unbuffered through `Body`, an inbox with back-pressure; JSON answers are gathered under a cap. Requests that
their protocol makes idempotent are repeated along a back-off; the others report the first fault.
"""

import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from treq.client import HTTPClient
from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, RequestTransmissionFailed, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer
from zope.interface import implementer

from agentd.client.body import Answer, Body
from agentd.client.errors import (
    BY_SLUG,
    AgentError,
    AnswerError,
    ProtocolFault,
    TransportFault,
    Unreachable,
    answer_error,
)
from agentd.client.flow import cancellable
from agentd.client.messages import ErrorBody
from agentd.client.proxy import ProxyCredentials
from agentd.client.retry import Backoff, repeats_unasked
from agentd.client.secret import Secret, TokenProvider, provide, scrub
from agentd.client.upload import Upload

MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""Cap on a JSON answer: two captured streams at their default cap, each byte escaped the worst way JSON has."""

MAX_ERROR_BYTES = 64 * 1024
"""How much of an unsuccessful answer's body is read."""

CACHED_CONNECTION_SECONDS = 20
"""How long an idle connection is kept: well under the daemon's own idle limit, so that it is not met closing."""

T = TypeVar("T")


class HTTP(Protocol):
    """What is needed of treq."""

    def request(self, method: str, url: str, **kwargs: Any) -> Deferred[Any]: ...


@implementer(IAgent)
class _Verbatim:
    """Bodies as they are stored: treq always offers gzip, which would change their length and their digest."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[Any]:
        plain = headers.copy() if headers is not None else Headers()
        plain.removeHeader(b"accept-encoding")
        return self._agent.request(method, uri, plain, bodyProducer)


def default_http(reactor: Any, tls: Any = None) -> tuple[HTTP, HTTPConnectionPool]:
    """treq on a pool of kept connections, and the pool, to be closed at the end.

    Args:
        reactor: the Twisted reactor.
        tls: an `IPolicyForHTTPS` that says whom to trust; None for the system's authorities.
    """
    pool = HTTPConnectionPool(reactor, persistent=True)
    pool.maxPersistentPerHost = 8
    pool.cachedConnectionTimeout = CACHED_CONNECTION_SECONDS
    extra = {} if tls is None else {"contextFactory": tls}
    client: Any = HTTPClient(cast(Any, _Verbatim(Agent(reactor, pool=pool, connectTimeout=10, **extra))))
    return client, pool


class Transport:
    """Requests to one daemon.

    Args:
        url: its base, `http://host:port` or `https://…`; a path in it is kept as a prefix.
        reactor: for timers.
        http: the HTTP client.
        token: the agent token or where to get it; None while there is none.
        proxy: credentials for an endpoint proxy in between.
        port: the daemon's own port on the VM, which the proxy is told.
        backoff: how idempotent requests are repeated.
        timeout: seconds a request may take until the head of its answer is there.
        idle: seconds of silence in a body.

    Raises:
        ValueError: the URL is not an HTTP one, or carries credentials or a query.
    """

    def __init__(
        self,
        url: str,
        *,
        reactor: Any,
        http: HTTP,
        token: str | Secret | TokenProvider | None,
        proxy: ProxyCredentials | None,
        port: int,
        backoff: Backoff,
        timeout: float,
        idle: float,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the daemon's URL must be http://HOST:PORT or https://HOST:PORT")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("the daemon's URL must not carry credentials, a query or a fragment")
        self.base = url.rstrip("/")
        self.reactor = reactor
        self.proxy = proxy
        self.port = port
        self.backoff = backoff
        self.timeout = timeout
        self.idle = idle
        self._http = http
        self._token: Secret | TokenProvider | None = Secret(token) if isinstance(token, str) else token

    @property
    def has_token(self) -> bool:
        """Whether there is a token, or somewhere to get one."""
        return self._token is not None

    def adopt(self, token: Secret) -> None:
        """Use this token from now on."""
        self._token = token

    async def bearer(self) -> Secret | None:
        """The agent token, from wherever it comes."""
        return None if self._token is None else await provide(self._token)

    def pause(self, seconds: float) -> Deferred[None]:
        """A Deferred that fires after so many seconds."""
        return deferLater(self.reactor, seconds, lambda: None)

    async def credentials(
        self, *, auth: bool, port: int | None = None
    ) -> tuple[dict[str, str], list[Secret]]:
        """The headers that authorise a request, and the secrets that are in them."""
        headers: dict[str, str] = {}
        secrets: list[Secret] = []
        if auth and (token := await self.bearer()) is not None:
            headers["Authorization"] = f"Bearer {token.reveal()}"
            secrets.append(token)
        if self.proxy is not None:
            headers.update(await self.proxy.connect_headers(port or self.port))
            secrets.extend(self.proxy.secrets)
        return headers, secrets

    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | Upload | None = None,
        auth: bool = True,
        port: int | None = None,
        timeout: float | None = None,
        idle: float | None = None,
    ) -> Answer:
        """Send one request, once.

        Args:
            path: already percent-encoded.
            query: names and values, encoded here.
            body: bytes, or a producer of them.
            auth: whether the route wants the agent token.
            port: another port than the daemon's, for the proxy.
            timeout: seconds until the head of the answer, instead of the usual. For a body that streams they
                count from the last bytes that were taken.

        Returns:
            the answer, if its status is a 2xx one.

        Raises:
            TransportFault: there was no answer.
            AnswerError: there was another one.
        """
        credentials, secrets = await self.credentials(auth=auth, port=port)
        encoded = urlencode(list(query), quote_via=quote, safe="")
        url = f"{self.base}{path}" + (f"?{encoded}" if encoded else "")
        fields = Headers()
        for name, value in {**(headers or {}), **credentials}.items():
            fields.setRawHeaders(name, [value])
        limit = self.timeout if timeout is None else timeout
        try:
            pending = self._http.request(
                method,
                url,
                headers=fields,
                data=body,
                allow_redirects=False,
                unbuffered=True,
                reactor=self.reactor,
            )
            response = await self._within(limit, pending, body)
        except (AgentError, CancelledError):
            raise
        except Exception as fault:
            raise transport_fault(fault, secrets) from None
        reader = Body(self.reactor, self.idle if idle is None else idle)
        response.deliverBody(reader)
        length = response.length if isinstance(response.length, int) else None
        if not 200 <= response.code <= 299:
            raise await self._refusal(response.code, response.headers, reader, secrets)
        return Answer(response.code, response.headers, reader, length)

    async def _within(self, limit: float, pending: Deferred[Any], body: object) -> Any:
        """The answer, if it comes before `limit` seconds without progress."""
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            pending.cancel()

        deadline = self.reactor.callLater(limit, expire)

        def moved() -> None:
            if deadline.active():
                deadline.reset(limit)

        if isinstance(body, Upload):
            body.moved = moved
        try:
            return await cancellable(pending, self._discard)
        except Exception:
            if expired:
                raise TransportFault(f"no answer within {limit:g} seconds") from None
            raise
        finally:
            if deadline.active():
                deadline.cancel()

    def _discard(self, response: Any) -> None:
        """Let go of an answer that nobody waits for any more."""
        body = Body(self.reactor, self.idle)
        response.deliverBody(body)
        body.close()

    async def call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        repeat: bool = True,
        **request: Any,
    ) -> tuple[T, Answer]:
        """Send a request, repeated along the back-off if `repeat`, and decode the JSON it brings.

        Returns:
            the decoded body, and the answer it came with.

        Raises:
            TransportFault, AnswerError: as `open`, of the last attempt; `attempts` counts them.
            ProtocolFault: the body is not the JSON that the contract says.
        """
        failures = 0
        while True:
            try:
                answer = await self.open(method, path, **request)
                raw = await answer.body.gather(MAX_ANSWER_BYTES)
                break
            except (TransportFault, AnswerError) as fault:
                failures += 1
                fault.attempts = failures
                delay = self.backoff.after(failures) if repeat and _repeats(fault) else None
                if delay is None:
                    raise
            await self.pause(delay)
        if kind is type(None):
            return None, answer
        try:
            return msgspec.json.decode(raw, type=kind), answer
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise ProtocolFault(
                f"the answer to {method} {path} is not what the protocol says: {fault}"
            ) from None

    async def _refusal(self, status: int, headers: Headers, body: Body, secrets: list[Secret]) -> AnswerError:
        """The error for an answer that is not a success, with as much of its body as is worth reading."""
        slug, detail, written = "", "", None
        try:
            raw = await body.gather(MAX_ERROR_BYTES)
        except (TransportFault, ProtocolFault):
            raw = b""
        kind = (headers.getRawHeaders("content-type") or [""])[0].split(";")[0].strip().lower()
        if kind == "application/json" or kind.endswith("+json"):
            try:
                error_body = msgspec.json.decode(raw, type=ErrorBody)
                slug, written = error_body.error, error_body.written
                detail = error_body.detail or error_body.message
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        elif kind == "text/plain":
            detail = raw.decode("utf-8", "replace")
        if slug not in BY_SLUG:
            slug = scrub(slug, secrets)
        return answer_error(status, slug, scrub(detail, secrets), written)


def _repeats(fault: TransportFault | AnswerError) -> bool:
    """Whether an idempotent request is sent again after this."""
    return isinstance(fault, TransportFault) or repeats_unasked(fault.status, fault.slug)


def transport_fault(fault: Exception, secrets: Iterable[Secret] = ()) -> TransportFault:
    """What Twisted's many ways of not getting an answer come down to, in one line."""
    inner: Any = fault
    while reasons := getattr(inner, "reasons", None):
        first = reasons[0]
        inner = first.value if isinstance(first, Failure) else first
    text = scrub(" ".join(str(inner).split()) or type(inner).__name__, secrets)
    if isinstance(inner, (error.ConnectError, error.DNSLookupError, ConnectionRefusedError)):
        return Unreachable(f"cannot connect: {text}")
    if isinstance(inner, ssl.SSLError) or type(inner).__module__.startswith(("OpenSSL", "service_identity")):
        return Unreachable(f"TLS failed: {text}")
    if isinstance(fault, RequestTransmissionFailed):
        return TransportFault(f"the connection was lost while sending, perhaps with a refusal: {text}")
    if isinstance(fault, ResponseFailed):
        return TransportFault(f"the connection was lost before the answer: {text}")
    return TransportFault(f"the request failed: {text}")
