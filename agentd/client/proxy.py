"""Credentials for the platform's endpoint proxy, minted as `agentd.client.credentials` decides.

The caller brings a *minter*: an awaitable that, given a set of ports, returns the proxy's header map, in which
`X-aws-proxy-auth` holds the token. Everything else is here: sharing one mint among concurrent callers, renewal,
growing the set of ports, forgetting on resume, and the two forms in which the credential is presented, headers
for HTTP and subprotocols for a WebSocket (a browser cannot set headers there).

`diagnose` reads the answer to one HTTPS request on the port of a WebSocket that closed with 1006: that code
comes without a reason, and the request tells a token of the wrong scope from a port where nothing listens.
"""

import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from agentd.client.credentials import (
    Ask,
    Cache,
    Lifetimes,
    Mint,
    Use,
    begin,
    decide,
    fail,
    resume,
    serves,
    succeed,
)
from agentd.client.errors import AgentError
from agentd.client.retry import Fault
from agentd.client.secret import MASK, Secret

AUTH_HEADER = "X-aws-proxy-auth"
PORT_HEADER = "X-aws-proxy-port"
MARKER = "lambda-microvms"
"""The subprotocol every WebSocket offers; the far end selects it."""

Minter = Callable[[frozenset[int]], Awaitable[Mapping[str, str]]]


class MintFailed(AgentError):
    """No proxy token could be had; the minter's own error is the cause."""

    fault = Fault.CREDENTIAL


class HeaderMap(dict[str, str]):
    """Request headers whose values do not show."""

    def __repr__(self) -> str:
        return f"HeaderMap({', '.join(self)})"

    __str__ = __repr__


class Subprotocols(list[str]):
    """Offered WebSocket subprotocols; the one that carries the token does not show."""

    def __repr__(self) -> str:
        prefix = f"{MARKER}.authentication."
        return repr([prefix + MASK if name.startswith(prefix) else name for name in self])

    __str__ = __repr__


class Diagnosis(enum.Enum):
    """What stands behind a WebSocket close code 1006, as far as one HTTPS request can tell."""

    WRONG_SCOPE = "the proxy refused the port: the token was not minted for it"
    NOTHING_LISTENS = "the proxy let it through, but nothing listens on the port"
    REACHABLE = "the port answers HTTP; the WebSocket itself was refused or cut"
    UNREACHABLE = "the proxy could not be reached"


def diagnose(status: int | None) -> Diagnosis:
    """The diagnosis for the status of that request (None: there was no answer)."""
    if status is None:
        return Diagnosis.UNREACHABLE
    return {403: Diagnosis.WRONG_SCOPE, 502: Diagnosis.NOTHING_LISTENS}.get(status, Diagnosis.REACHABLE)


class ProxyCredentials:
    """The proxy tokens of one VM.

    Args:
        minter: called with the ports a token must open.
        reactor: for its clock (`seconds`) and for the limit on a mint.
        lifetimes: how long a token serves.
        mint_timeout: seconds a mint may take.
    """

    def __init__(
        self, minter: Minter, *, reactor: Any, lifetimes: Lifetimes | None = None, mint_timeout: float = 30.0
    ) -> None:
        self._minter = minter
        self._reactor = reactor
        self._lifetimes = lifetimes or Lifetimes()
        self._mint_timeout = mint_timeout
        self._cache = Cache()
        self._headers = HeaderMap()
        self._token: Secret | None = None
        self._waiters: dict[Mint, list[Deferred[None]]] = {}

    def __repr__(self) -> str:
        return f"<ProxyCredentials mints={self._cache.mints}>"

    @property
    def mint_count(self) -> int:
        """How many times the minter was called."""
        return self._cache.mints

    @property
    def secrets(self) -> Iterable[Secret]:
        """What must not appear in any text."""
        return () if self._token is None else (self._token,)

    def resumed(self) -> None:
        """The VM was resumed: forget the token."""
        self._cache = resume(self._cache)
        self._token, self._headers = None, HeaderMap()

    async def connect_headers(self, port: int) -> HeaderMap:
        """The headers for a request to `port` on this VM.

        Raises:
            MintFailed: a new token was needed and could not be had.
            ValueError: not a port.
        """
        await self._ensure(port)
        return HeaderMap({**self._headers, PORT_HEADER: str(port)})

    async def connect_subprotocols(self, port: int, application: str | None = None) -> Subprotocols:
        """The subprotocols to offer in a WebSocket handshake to `port`.

        Args:
            port: the port on this VM.
            application: a subprotocol of the service there, offered after the proxy's own three.
        """
        token = await self._ensure(port)
        offered = [MARKER, f"{MARKER}.authentication.{token.reveal()}", f"{MARKER}.port.{port}"]
        return Subprotocols(offered if application is None else [*offered, application])

    async def _ensure(self, port: int) -> Secret:
        """A token that opens `port` now."""
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise ValueError(f"not a port: {port!r}")
        while True:
            decision = decide(self._cache, port, self._reactor.seconds(), self._lifetimes)
            if isinstance(decision, Use):
                assert self._token is not None, "a grant is kept together with its token"
                return self._token
            waiter: Deferred[None] = Deferred()
            if isinstance(decision, Ask):
                mint = self._begin(decision, waiter)
            else:
                mint = decision.mint
                self._waiters[mint].append(waiter)
            try:
                await waiter
            except MintFailed:
                if serves(self._cache.grant, port, self._reactor.seconds(), self._lifetimes) and self._token:
                    return self._token
                if mint.epoch == self._cache.epoch and port in mint.ports:
                    raise

    def _begin(self, ask: Ask, waiter: Deferred[None]) -> Mint:
        """Begin a mint that `waiter` waits for. It runs on its own: who leaves does not take it from the others."""
        self._cache, mint = begin(self._cache, ask, self._reactor.seconds())
        self._waiters[mint] = [waiter]
        minting = Deferred.fromCoroutine(_awaited(self._minter, mint.ports))
        minting.addTimeout(self._mint_timeout, self._reactor)
        minting.addCallbacks(self._minted, self._failed, callbackArgs=(mint,), errbackArgs=(mint,))
        minting.addErrback(self._failed, mint)
        return mint

    def _minted(self, answer: Mapping[str, str], mint: Mint) -> None:
        headers = {str(name): str(value) for name, value in answer.items()}
        found = [value for name, value in headers.items() if name.lower() == AUTH_HEADER.lower()]
        if len(found) != 1:
            raise MintFailed(f"the minter's header map has no {AUTH_HEADER}")
        token = Secret(found[0])
        self._cache, kept = succeed(self._cache, mint)
        if kept:
            self._token = token
            self._headers = HeaderMap({n: v for n, v in headers.items() if n.lower() != PORT_HEADER.lower()})
        for waiter in self._waiters.pop(mint):
            waiter.callback(None)

    def _failed(self, failure: Any, mint: Mint) -> None:
        self._cache = fail(self._cache, mint, self._reactor.seconds())
        fault = failure.value
        if not isinstance(fault, MintFailed):
            fault = MintFailed(f"minting a proxy token failed: {type(failure.value).__name__}")
            fault.__cause__ = failure.value
        for waiter in self._waiters.pop(mint):
            waiter.errback(fault)


async def _awaited(minter: Minter, ports: frozenset[int]) -> Mapping[str, str]:
    """The minter's answer; also for a minter that fails before it awaits anything."""
    return await minter(ports)
