"""The WebSocket under a tunnel: autobahn's client, turned from callbacks into an inbox and an outlet.

Imported when the first tunnel is opened, because autobahn costs more than the rest of the library together.
Frames of a plain tunnel are byte ranges and pass on as they arrive, without being put together first; a verified
tunnel's messages are units, bounded by what Noise allows. autobahn's own logging is off: at its debug level it
writes out the handshake, credentials included.
"""

import re
from typing import Any

from attrs import frozen
from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.defer import Deferred

from agentd.client.flow import Inbox, Outlet
from agentd.rules.tunnel import MAX_MESSAGE_BYTES, TAG_BYTES

MAX_HANDSHAKE_BYTES = 64 * 1024
"""How much the far end may send before the upgrade is complete."""

CLOSE_SECONDS = 5
"""How long the far end may take to answer a close."""


@frozen
class Closing:
    """How a WebSocket ended.

    Args:
        code: the close code; 1006 when there was no closing handshake.
        reason: the far end's words, or autobahn's.
        status: the HTTP status that refused the upgrade, where there was one.
    """

    code: int
    reason: str
    status: int | None


class _Mute:
    """A logger that keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Socket(WebSocketClientProtocol):
    """One WebSocket.

    Args:
        whole: deliver messages as units, refuse text, and bound their size.
    """

    log: Any = _Mute()
    transport: Any

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.inbox = Inbox()
        self.outlet = Outlet()
        self.opened: Deferred[None] = Deferred()
        """Fires when the upgrade is complete, or with a `ConnectionError` when it never will be."""
        self.closing: Closing | None = None
        """How it ended, once it has."""
        self.closed: Deferred[None] = Deferred()
        self.foul = False
        """Whether the far end sent what it must not."""
        self._whole = whole
        self._parts: list[bytes] = []
        self._size = 0

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if not self.opened.called and len(self.data or b"") > MAX_HANDSHAKE_BYTES:
            self.transport.abortConnection()

    def onOpen(self) -> None:
        self.transport.setTcpKeepAlive(1)
        self.transport.registerProducer(self.outlet, True)
        self.inbox.attach(self.transport)
        self.opened.callback(None)

    def onMessageBegin(self, isBinary: bool) -> None:
        self._parts, self._size = [], 0
        if self._whole and not isBinary:
            self._reject()

    def onMessageFrameBegin(self, length: int) -> None:
        self._size += length
        if self._whole and self._size > MAX_MESSAGE_BYTES:
            self._reject()

    def onMessageFrameData(self, payload: bytes) -> None:
        if self.foul:
            return
        if self._whole:
            self._parts.append(bytes(payload))
        else:
            self.inbox.put(bytes(payload))

    def onMessageFrameEnd(self) -> None:
        pass

    def onMessageEnd(self) -> None:
        if self._whole and not self.foul:
            message = b"".join(self._parts)
            if len(message) >= TAG_BYTES:
                self.inbox.put(message)
            else:  # nobody sealed that; an empty one would not even be noticed
                self._reject()
        self._parts = []

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        if self.closing is not None:
            return
        found = re.match(r"HTTP/1\.[01] (\d{3})", getattr(self, "http_status_line", ""))
        status = int(found[1]) if found else None
        self.closing = Closing(code if code is not None else 1005, reason or "", status)
        self.inbox.end()
        self.outlet.stop(ConnectionError("the tunnel is closed"))
        if not self.opened.called:
            self.opened.errback(ConnectionError(self.closing.reason))
        self.closed.callback(None)

    def say(self, data: bytes) -> None:
        """Send one binary message."""
        self.sendMessage(data, True)  # type: ignore[no-untyped-call]  # autobahn's types stop here

    def say_close(self, code: int, reason: str) -> None:
        """Send a close frame; what was sent before it goes out first."""
        if self.closing is None:
            self.sendClose(int(code), reason or None)

    def drain(self) -> None:
        """Drop whatever still arrives, so that the far end's close can be read behind it."""
        self.inbox.discard()
        if self.closing is None:
            self.transport.resumeProducing()

    def abort(self) -> None:
        """Drop the connection now. May be repeated."""
        self.inbox.discard()
        if self.closing is None and self.transport is not None:
            self.transport.abortConnection()

    def _reject(self) -> None:
        self.foul = True
        self.abort()


def socket_factory(
    url: str, headers: dict[str, str], protocols: list[str], socket: Socket, reactor: Any, timeout: float
) -> WebSocketClientFactory:
    """The factory that connects `socket` to `url`.

    Args:
        url: `ws://` or `wss://`.
        headers: added to the handshake.
        protocols: the subprotocols to offer.
        reactor: the Twisted reactor.
        timeout: seconds for the upgrade.
    """
    factory = WebSocketClientFactory(
        url, headers=headers, protocols=protocols, useragent="agentd-client", reactor=reactor
    )
    factory.log = _Mute()
    factory.noisy = False
    factory.protocol = lambda: socket  # type: ignore[assignment]  # any callable will do
    factory.setProtocolOptions(
        openHandshakeTimeout=timeout,
        closeHandshakeTimeout=CLOSE_SECONDS,
        failByDrop=True,
        tcpNoDelay=True,
        utf8validateIncoming=False,
    )
    return factory
