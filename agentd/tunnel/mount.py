"""From an accepted HTTP request to a tunnel: the last checks, and the hand-over of the connection.

The face has decided everything that is answered in HTTP (the token, the query); then it calls `upgrade`, which
answers 101 itself, or raises `UpgradeRefused` before anything was sent, for the face to answer 400 with. Once
the 101 is out, every outcome is a close code (contract a.9, f).

`take_over` is the part that any WebSocket on the HTTP port can use. The channel of the request goes on existing as
the owner of the connection: it is what a site counts and aborts, and when the connection is lost it hears of it
last, so that `Request.notifyFinish` fires then. Bytes that came behind the request's head are not lost; they are
the first bytes of the WebSocket. Of twisted.web's channel this uses, beyond its documented interface, only
`_dataBuffer`; ``tests/tunnel/test_canaries.py`` watches it.

autobahn parses the opening handshake once more, from a head that holds nothing but what it needs: its own checks
have nothing left to refuse then, and no credential of the request can get into its log.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from twisted.python.failure import Failure

from agentd.rules.payload import TunnelIdentity
from agentd.rules.tunnel import SUBPROTOCOL
from agentd.tunnel.limits import TunnelLimits

if TYPE_CHECKING:
    from agentd.tunnel.relay import Relay

_VERSION = b"13"
_KEY_BYTES = 16


class UpgradeRefused(Exception):
    """The request is no WebSocket opening handshake (RFC 6455 4.2.1); the text says why, in one line."""


class Tunnels:
    """The tunnels of one daemon that still hold a connection on either side."""

    def __init__(self) -> None:
        self._open: set[Relay] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, relay: "Relay") -> None:
        """A tunnel was made."""
        self._open.add(relay)

    def over(self, relay: "Relay") -> None:
        """Both its connections are gone."""
        self._open.discard(relay)

    def stop(self) -> None:
        """Close every tunnel with 1001; connections end as their far ends answer."""
        for relay in list(self._open):
            relay.stop()


def warm() -> None:
    """Import what a tunnel needs: 200 ms, best spent after the port listens and before the first tunnel."""
    import agentd.tunnel.relay  # noqa: F401


def upgrade(
    request: Any,
    *,
    port: int,
    identity: bool,
    keys: TunnelIdentity | None,
    limits: TunnelLimits,
    reactor: Any,
    headers: Iterable[tuple[bytes, bytes]] = (),
    tunnels: Tunnels | None = None,
) -> None:
    """Answer `request` with 101 and make its connection a tunnel to `port`.

    `identity` is what the query asked for and `keys` what this VM was launched with, if anything; both are needed
    for a verified tunnel, and asking without keys is close code 4401. `headers` go on the 101. Once this has
    returned, the request must not be answered any more.

    Raises `UpgradeRefused` if the request's headers do not ask for a WebSocket, with nothing sent.
    """
    key, offered = check_upgrade(request)
    from agentd.tunnel.relay import Relay
    from agentd.tunnel.websocket import PeerSocketFactory

    registry = Tunnels() if tunnels is None else tunnels
    relay = Relay(port, identity, keys, limits, reactor, registry.over)
    relay.factory = PeerSocketFactory(reactor, {name.decode(): value.decode() for name, value in headers})
    registry.opened(relay)
    take_over(request, relay, key, SUBPROTOCOL if SUBPROTOCOL in offered else None)


def check_upgrade(request: Any) -> tuple[bytes, list[str]]:
    """The ``Sec-WebSocket-Key`` and the offered subprotocols; raises `UpgradeRefused`."""
    if request.method != b"GET" or request.clientproto != b"HTTP/1.1":
        raise UpgradeRefused("a WebSocket upgrade is a GET over HTTP/1.1")
    if "upgrade" not in _tokens(request, b"connection"):
        raise UpgradeRefused("the Connection header does not say upgrade")
    if "websocket" not in _tokens(request, b"upgrade"):
        raise UpgradeRefused("the Upgrade header does not say websocket")
    if _only(request, b"sec-websocket-version") != _VERSION:
        raise UpgradeRefused("the Sec-WebSocket-Version header is not 13")
    key = _only(request, b"sec-websocket-key")
    try:
        nonce = base64.b64decode(key, validate=True)
    except binascii.Error:
        nonce = b""
    if len(nonce) != _KEY_BYTES:
        raise UpgradeRefused("the Sec-WebSocket-Key header is not 16 bytes of base64")
    if request.requestHeaders.hasHeader(b"transfer-encoding") or _only(request, b"content-length") not in (
        b"",
        b"0",
    ):
        raise UpgradeRefused("a WebSocket upgrade has no body")
    return key, _items(request, b"sec-websocket-protocol")


def _items(request: Any, name: bytes) -> list[str]:
    lines: list[bytes] = request.requestHeaders.getRawHeaders(name, [])
    return [item.strip().decode("latin-1") for line in lines for item in line.split(b",")]


def _tokens(request: Any, name: bytes) -> set[str]:
    return {item.lower() for item in _items(request, name)}


def _only(request: Any, name: bytes) -> bytes:
    """The value of a header that is there once, else nothing."""
    lines: list[bytes] = request.requestHeaders.getRawHeaders(name, [])
    return lines[0].strip() if len(lines) == 1 else b""


def take_over(request: Any, protocol: Any, key: bytes, subprotocol: str | None) -> None:
    """Give the request's connection to `protocol`, an autobahn server protocol with its factory set.

    `key` is what `check_upgrade` returned; `subprotocol` is offered to the protocol's ``onConnect`` if not None.
    """
    channel = request.channel
    transport = channel.transport
    http_lost = channel.connectionLost

    def lost(reason: Failure) -> None:
        protocol.connectionLost(reason)
        http_lost(reason)

    early = b"".join(channel._dataBuffer)
    channel.setTimeout(None)
    channel.dataReceived = channel.rawDataReceived = protocol.dataReceived
    channel.connectionLost = lost
    transport.unregisterProducer()
    protocol.makeConnection(transport)
    transport.resumeProducing()
    protocol.dataReceived(_head(key, subprotocol))
    if early:
        protocol.dataReceived(early)


def _head(key: bytes, subprotocol: str | None) -> bytes:
    lines = [
        b"GET / HTTP/1.1",
        b"Host: localhost",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: " + _VERSION,
        b"Sec-WebSocket-Key: " + key,
    ]
    if subprotocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + subprotocol.encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"
