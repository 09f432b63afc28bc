"""A daemon's tunnel route, callers and guests, over loopback."""

import os
import struct
from collections.abc import Callable
from typing import Any

from attrs import define, field
from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, ServerFactory
from twisted.internet.task import deferLater
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site
from zope.interface import implementer

from agentd.rules import tunnel as rules
from agentd.rules.payload import TunnelIdentity
from agentd.tunnel import mount, noise
from agentd.tunnel.limits import TunnelLimits

SEED = bytes(range(32))
HOST_SECRET = bytes(range(100, 132))
KEYS = TunnelIdentity(SEED, noise.public_key(HOST_SECRET))
DEADLINE = 20.0
"""Seconds after which something that should have happened did not."""


def the_reactor() -> Any:
    """The reactor pytest-twisted runs."""
    from twisted.internet import reactor

    return reactor


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for `condition` to hold, under a deadline; returns its value."""
    reactor = the_reactor()
    end = reactor.seconds() + DEADLINE
    while not (value := condition()):
        assert reactor.seconds() < end, f"never happened: {what}"
        await deferLater(reactor, 0.002, lambda: None)
    return value


async def settled(value: Callable[[], Any]) -> None:
    """Wait until `value` has been the same for many looks: the kernel's buffers are full.

    They take a little more when a window probe is answered, a quarter of a second after the last byte.
    """
    looks: list[Any] = []

    def same() -> bool:
        looks.append(value())
        return len(looks) > 250 and len(set(looks[-250:])) == 1

    await until(same, "a value that stays")


def unsent(transport: Any) -> int:
    """Bytes in a transport's user-space buffer."""
    return int(len(transport.dataBuffer) - transport.offset + transport._tempDataLen)


class Door(Resource):
    """The part of a face that a tunnel needs: it parses the query and hands over."""

    isLeaf = True

    def __init__(self, limits: TunnelLimits, keys: TunnelIdentity | None) -> None:
        super().__init__()
        self.limits = limits
        self.keys = keys
        self.tunnels = mount.Tunnels()
        self.finished: list[str] = []
        self.headers: list[tuple[bytes, bytes]] = [(b"microvms-agentd-version", b"0.1.0")]

    def render_GET(self, request: Any) -> Any:
        request.notifyFinish().addErrback(lambda failure: self.finished.append(failure.type.__name__))
        try:
            mount.upgrade(
                request,
                port=int(request.args[b"port"][0]),
                identity=b"identity" in request.args,
                keys=self.keys,
                limits=self.limits,
                reactor=the_reactor(),
                headers=self.headers,
                tunnels=self.tunnels,
            )
        except mount.UpgradeRefused as refusal:
            request.setResponseCode(400)
            return str(refusal).encode()
        return NOT_DONE_YET

    @property
    def relay(self) -> Any:
        """The one tunnel there is."""
        (relay,) = self.tunnels._open
        return relay


@implementer(IHalfCloseableProtocol)
class GuestConnection(Protocol):
    """A server's side of a connection in the guest; notes what happens, acts only when told."""

    transport: Any

    def __init__(self, reading: bool) -> None:
        self.reading = reading
        self.received = bytearray()
        self.end: str | None = None

    def connectionMade(self) -> None:
        if not self.reading:
            self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def readConnectionLost(self) -> None:
        self.end = "eof"

    def writeConnectionLost(self) -> None:
        pass

    def connectionLost(self, reason: Any) -> None:
        if self.end is None:
            self.end = "reset"


class GuestServer(ServerFactory):
    """A server on the guest's loopback. `reading=False`: its connections read nothing until resumed."""

    noisy = False

    def __init__(self, reading: bool = True) -> None:
        self.reading = reading
        self.connections: list[GuestConnection] = []
        self.listener = the_reactor().listenTCP(0, self, interface="127.0.0.1")

    @property
    def port(self) -> int:
        return int(self.listener.getHost().port)

    def buildProtocol(self, addr: Any) -> GuestConnection:
        self.connections.append(GuestConnection(self.reading))
        return self.connections[-1]

    async def connection(self) -> GuestConnection:
        """The first connection."""
        await until(lambda: self.connections, "a guest connection")
        return self.connections[0]


@define(eq=False)
class World:
    """Everything a test started; `tear_down` ends it."""

    limits: TunnelLimits = field(factory=TunnelLimits)
    keys: TunnelIdentity | None = KEYS
    clock: Any = None
    """Drives the timeouts of HTTP in place of the reactor."""
    door: Door = field(init=False)
    listener: Any = field(init=False)
    guests: list[GuestServer] = field(factory=list)
    callers: list[Any] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.door = Door(self.limits, self.keys)
        site = Site(self.door, reactor=self.clock)
        site.noisy = False  # type: ignore[attr-defined]
        self.listener = the_reactor().listenTCP(0, site, interface="127.0.0.1")

    @property
    def port(self) -> int:
        return int(self.listener.getHost().port)

    def guest(self, reading: bool = True) -> GuestServer:
        self.guests.append(GuestServer(reading))
        return self.guests[-1]

    async def call(
        self, port: int, *, identity: bool = False, protocols: list[str] | None = None, **caller: Any
    ) -> "Caller":
        """A WebSocket to the tunnel route, open."""
        query = f"port={port}" + ("&identity=true" if identity else "")
        factory = WebSocketClientFactory(f"ws://127.0.0.1:{self.port}/v1/tcp?{query}", protocols=protocols)
        factory.noisy = False
        factory.setProtocolOptions(
            openHandshakeTimeout=0, closeHandshakeTimeout=0, serverConnectionDropTimeout=0, failByDrop=False
        )
        made: list[Caller] = []

        def build() -> Caller:
            made.append((SealedCaller if identity else Caller)(**caller))
            return made[-1]

        factory.protocol = build
        the_reactor().connectTCP("127.0.0.1", self.port, factory)
        await until(lambda: made and (made[0].opened or made[0].closed), "an open WebSocket")
        self.callers.append(made[0])
        return made[0]

    async def raw(self, port: int, *, identity: bool = False, extra: bytes = b"") -> "RawCaller":
        """A TCP connection that has had its 101 and speaks frames by hand. `extra` follows the head at once."""
        raw = await self.connect()
        raw.transport.write(head(port, identity) + extra)
        await until(lambda: b"\r\n\r\n" in raw.received, "an answer")
        raw.head, _, rest = bytes(raw.received).partition(b"\r\n\r\n")
        raw.received = bytearray(rest)
        return raw

    async def connect(self) -> "RawCaller":
        """A TCP connection to the daemon."""
        endpoint = TCP4ClientEndpoint(the_reactor(), "127.0.0.1", self.port)
        raw: RawCaller = await endpoint.connect(Factory.forProtocol(RawCaller))  # type: ignore[assignment]
        self.callers.append(raw)
        return raw

    async def tear_down(self) -> None:
        await self.listener.stopListening()
        for guest in self.guests:
            await guest.listener.stopListening()
        for caller in self.callers:
            caller.transport.abortConnection()
        for guest in self.guests:
            for connection in guest.connections:
                connection.transport.abortConnection()
        await until(lambda: not len(self.door.tunnels), "the end of every tunnel")
        for guest in self.guests:
            for connection in guest.connections:
                await until(lambda: connection.transport.disconnected, "the end of a guest connection")  # noqa: B023
        for caller in self.callers:
            await until(lambda: caller.transport.disconnected, "the end of a caller")  # noqa: B023


class Caller(WebSocketClientProtocol):
    """A client that notes what it gets."""

    transport: Any

    def __init__(self) -> None:
        super().__init__()
        self.opened = False
        self.closed = False
        self.frames: list[bytes] = []
        self.pongs: list[bytes] = []
        self.code: int | None = None
        self.close_reason: str | None = None
        self.response: Any = None

    @property
    def received(self) -> bytes:
        return b"".join(self.frames)

    def onConnect(self, response: Any) -> None:
        self.response = response

    def onOpen(self) -> None:
        self.opened = True

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        assert isBinary
        self.frames.append(payload)

    def onPong(self, payload: bytes) -> None:
        self.pongs.append(payload)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.closed = True
        if self.remoteCloseCode is not None:
            self.code, self.close_reason = self.remoteCloseCode, self.remoteCloseReason

    def send(self, data: bytes, binary: bool = True) -> None:
        self.sendMessage(data, binary)  # type: ignore[no-untyped-call]

    async def over(self) -> tuple[int | None, str | None]:
        """The daemon's close code and reason, once the connection is gone; (None, None): no close frame."""
        await until(lambda: self.closed, "the WebSocket's end")
        return self.code, self.close_reason


class SealedCaller(Caller):
    """The client of a verified tunnel. `offers`: promise an end of stream. `shake`: begin on its own."""

    def __init__(
        self, secret: bytes = HOST_SECRET, seed: bytes = SEED, offers: bool = True, shake: bool = True
    ) -> None:
        super().__init__()
        self.handshake = noise.initiator(secret, noise.public_key(seed))
        self.session: noise.Session | None = None
        self.offers = offers
        self.shake = shake
        self.daemon_offered: bool | None = None
        self.ended = False

    def onOpen(self) -> None:
        self.opened = True
        if self.shake:
            self.send(self.handshake.write(rules.flags(self.offers)))

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.session is None:
            self.daemon_offered = rules.offered(self.handshake.read(payload))
            self.session = self.handshake.split()
            return
        plaintext = self.session.open(payload)
        assert not self.ended, "a message behind the end of stream"
        if plaintext:
            self.frames.append(plaintext)
        else:
            self.ended = True

    def seal(self, data: bytes) -> None:
        """Send `data` sealed; nothing is the end of stream."""
        assert self.session is not None
        self.send(self.session.seal(data))

    async def shaken(self) -> None:
        await until(lambda: self.session is not None or self.closed, "a handshake")
        assert self.session is not None, (self.code, self.close_reason)


class RawCaller(Protocol):
    """A TCP connection to the daemon that sends what it likes."""

    transport: Any

    def __init__(self) -> None:
        self.received = bytearray()
        self.head = b""
        self.lost: str | None = None

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Any) -> None:
        self.lost = reason.type.__name__

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def close_code(self) -> int | None:
        """The code of the close frame that ends what was received; None if the connection ends without."""
        await until(lambda: b"\x88" in self.received[-127:] or self.lost, "a close frame or the end")
        for at in range(max(0, len(self.received) - 127), len(self.received)):
            rest = self.received[at:]
            if rest[0] == 0x88 and len(rest) == 2 + rest[1]:
                return int(struct.unpack_from("!H", rest, 2)[0])
        return None


def head(port: int, identity: bool = False, **changed: str | None) -> bytes:
    """An opening handshake; a keyword replaces a header (None removes it)."""
    headers: dict[str, str | None] = {
        "Host": "vm",
        "Connection": "keep-alive, Upgrade",
        "Upgrade": "WebSocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Authorization": "Bearer never-to-be-logged",
    }
    headers.update({name.replace("_", "-"): value for name, value in changed.items()})
    lines = [f"GET /v1/tcp?port={port}{'&identity=true' if identity else ''} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def frame(payload: bytes, opcode: int = 2, *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """One client frame (RFC 6455 5.2)."""
    first = (0x80 if fin else 0) | (rsv << 4) | opcode
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        out = bytes([first, bit | len(payload)])
    elif len(payload) < 65536:
        out = bytes([first, bit | 126]) + struct.pack("!H", len(payload))
    else:
        out = bytes([first, bit | 127]) + struct.pack("!Q", len(payload))
    if not masked:
        return out + payload
    mask = os.urandom(4)
    return out + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
