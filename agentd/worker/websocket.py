"""A WebSocket to the engine: the worker's own connection, or one end of a channel.

autobahn does the framing. Its timers run on the global reactor and its log writes out headers, credentials included:
both are off, and what they were for is done here. Importing autobahn costs 150 ms and 12 MiB: nothing may import this
file before the worker face wants it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

from attrs import field, frozen
from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS

CONNECT_SECS: Final = 10.0
"""For the whole of an attempt to connect (reference A1, A7)."""
CLOSE_SECS: Final = 5.0
"""For the engine's part of a closing handshake."""
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Largest message that is taken; one that is larger ends the connection with 1009."""
DEFAULT_PORTS: Final = {"ws": 80, "wss": 443}


class BadAddress(ValueError):
    """The text is no address of an engine."""


@frozen
class Address:
    """Where the engine is. `query` and `headers` may hold secrets and are shown to nobody."""

    secure: bool
    host: str
    port: int
    path: str
    query: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self) -> str:
        """For the worker's own connection."""
        return self._join(self.path or "/", self.query)

    def channel(self, channel_id: str, access_key: str, direction: str) -> str:
        """For one end of a channel (reference A8)."""
        path = f"{self.path.rstrip('/')}/ws/channels/{quote(channel_id, safe='')}"
        key = f"key={quote(access_key, safe='')}&dir={direction}"
        return self._join(path, f"{self.query}&{key}" if self.query else key)

    def _join(self, path: str, query: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        base = f"{'wss' if self.secure else 'ws'}://{host}:{self.port}{path}"
        return f"{base}?{query}" if query else base


def parse_address(url: str, headers: Mapping[str, str] | None = None) -> Address:
    """The address of ``ws://HOST:PORT/``. Raises `BadAddress`, which quotes nothing."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise BadAddress("expected ws://HOST:PORT or wss://HOST:PORT") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.username is not None:
        raise BadAddress("expected ws://HOST:PORT or wss://HOST:PORT")
    return Address(
        parts.scheme == "wss",
        parts.hostname,
        port if port is not None else DEFAULT_PORTS[parts.scheme],
        parts.path,
        parts.query,
        headers or {},
    )


class Receiver(Protocol):
    """Who owns a socket. Nothing is called after `closed`."""

    def message(self, payload: bytes, binary: bool) -> None:
        """A message came."""

    def heard(self) -> None:
        """Anything came: a sign of life."""

    def closed(self, reason: str) -> None:
        """The connection is over."""


class NotConnected(ConnectionError):
    """No WebSocket came about. `status` is that of the answer that refused it, where there was one."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class _Mute:
    """A logger that keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class ClientSocket(WebSocketClientProtocol):
    """One WebSocket."""

    log: Any = _Mute()
    transport: Any

    def __init__(self, receiver: Receiver, reactor: Any) -> None:
        super().__init__()
        self._receiver = receiver
        self._reactor = reactor
        self._deadline: Any = None
        self.opened: Deferred[None] = Deferred(lambda _: self.abort())
        self.over = False

    def say(self, payload: bytes, binary: bool = False) -> None:
        """Send one message, unless the connection is over."""
        if self.state == self.STATE_OPEN:
            self.sendMessage(payload, binary)  # type: ignore[no-untyped-call]  # autobahn's types stop here

    def ping(self) -> None:
        """Ask the engine for a sign of life."""
        if self.state == self.STATE_OPEN:
            self.sendPing()

    def close(self, seconds: float = CLOSE_SECS) -> None:
        """End it in good order behind what is still to be sent; the engine has `seconds` to read that and agree."""
        if self.over:
            return
        if self.state == self.STATE_OPEN:
            self.sendClose(1000)
            self._expect_end(seconds)
        elif self.state != self.STATE_CLOSING:
            self.abort()

    def abort(self) -> None:
        """Drop the connection now. May be repeated."""
        if not self.over and self.transport is not None:
            self.transport.abortConnection()

    def _expect_end(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._reactor.callLater(seconds, self._late)

    def _late(self) -> None:
        self._deadline = None
        self.abort()

    # -- what autobahn calls --------------------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Bytes from the engine: a sign of life, whatever they are."""
        if not self.over:
            self._receiver.heard()
        super().dataReceived(data)

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Write a frame. autobahn's own spends its time on a log line nobody asked for."""
        self.transport.write(data)

    def onOpen(self) -> None:
        """The upgrade is complete."""
        self.transport.setTcpNoDelay(True)
        if not self.opened.called:
            self.opened.callback(None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """A whole message."""
        if not self.over:
            self._receiver.message(payload, isBinary)

    def onCloseFrame(self, code: Any, reasonRaw: Any) -> Any:
        """The engine closes, or answers our close frame; then it drops the connection, soon."""
        result = super().onCloseFrame(code, reasonRaw)
        self._expect_end(CLOSE_SECS)
        return result

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """It is over, before or after it was open."""
        if self.over:
            return
        self.over = True
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.opened.called:
            self._receiver.closed(f"closed with {code}" if wasClean else "the connection was lost")
            return
        found = re.match(r"HTTP/1\.[01] (\d{3})", getattr(self, "http_status_line", "") or "")
        status = int(found[1]) if found else None
        text = f"the upgrade was answered with {status}" if status else "the upgrade was not completed"
        self.opened.errback(NotConnected(text, status))


async def connect(reactor: Any, address: Address, url: str, receiver: Receiver) -> ClientSocket:
    """An open socket to `url` at `address`. Raises `NotConnected`, whose text quotes neither query nor headers."""
    connecting = Deferred.fromCoroutine(_connect(reactor, address, url, receiver))
    late = False

    def expired(result: Any, seconds: float) -> Any:
        nonlocal late
        late = True
        return result

    connecting.addTimeout(CONNECT_SECS, reactor, onTimeoutCancel=expired)
    try:
        return await connecting
    except NotConnected:
        raise
    except Exception as reason:
        if late:
            raise NotConnected(f"no answer within {CONNECT_SECS:g} s") from None
        if isinstance(reason, CancelledError):
            raise
        raise NotConnected(_words(reason)) from None


def _words(reason: Exception) -> str:
    """Why a connection failed, in one line."""
    return " ".join(str(reason).split()) or type(reason).__name__


async def _connect(reactor: Any, address: Address, url: str, receiver: Receiver) -> ClientSocket:
    socket = ClientSocket(receiver, reactor)
    endpoint: Any = HostnameEndpoint(reactor, address.host.encode("ascii"), address.port)
    if address.secure:
        endpoint = wrapClientTLS(_trust(address), endpoint)
    await endpoint.connect(_factory(url, address.headers, socket, reactor))
    try:
        await socket.opened
    except BaseException:
        socket.abort()
        raise
    return socket


def _trust(address: Address) -> Any:
    try:
        from twisted.internet.ssl import optionsForClientTLS
    except ImportError:
        raise NotConnected("wss:// needs pyOpenSSL and service_identity") from None
    return optionsForClientTLS(address.host)


def _factory(
    url: str, headers: Mapping[str, str], socket: ClientSocket, reactor: Any
) -> WebSocketClientFactory:
    factory = WebSocketClientFactory(url, headers=dict(headers), useragent="agentd", reactor=reactor)
    factory.log = _Mute()
    factory.noisy = False
    factory.protocol = lambda: socket  # type: ignore[assignment]  # any callable will do
    factory.setProtocolOptions(
        openHandshakeTimeout=0,
        closeHandshakeTimeout=0,
        serverConnectionDropTimeout=0,
        autoPingInterval=0,
        failByDrop=True,
        tcpNoDelay=True,
        # Text is JSON, whose decoder checks it.
        utf8validateIncoming=False,
        maxFramePayloadSize=MAX_MESSAGE_BYTES,
        maxMessagePayloadSize=MAX_MESSAGE_BYTES,
    )
    return factory
