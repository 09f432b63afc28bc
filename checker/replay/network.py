"""The sockets and the clock of a daemon in memory: bytes that arrive when a run says so, and timers that fire then.

A `Connection` is somebody's to the daemon, a `Dial` the daemon's to somebody; both have a `Transport` at the daemon's
side, whose far side is ours.
"""

from collections.abc import Iterable
from typing import Any

from attrs import define
from twisted.internet import task
from twisted.internet.address import IPv4Address
from twisted.internet.error import (
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    UserError,
)
from twisted.internet.interfaces import (
    IConsumer,
    IHalfCloseableProtocol,
    IHostnameResolver,
    IPushProducer,
    IReactorPluggableNameResolver,
    ITransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

TURNS = 10_000
"""Timers that are due at once, one after the other, before that is a daemon that goes round in circles."""
PEER = IPv4Address("TCP", "192.0.2.1", 1)
"""Whoever is at the far side of a connection."""
_HOST = IPv4Address("TCP", "192.0.2.2", 9000)


@implementer(IHostnameResolver)
class Addresses:
    """Names that are addresses already."""

    def resolveHostName(
        self,
        receiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: object = None,
        transportSemantics: str = "TCP",
    ) -> Any:
        """Say so."""
        receiver.resolutionBegan(self)
        receiver.addressResolved(IPv4Address("TCP", hostName, portNumber))
        receiver.resolutionComplete()
        return self


@implementer(IReactorPluggableNameResolver)
class Timers(task.Clock):
    """A clock that stands still, and timers that are fired one by one; a reactor that connects to nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.nameResolver = Addresses()
        self.dials: list[Dial] = []
        """Connections that were asked for."""

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float, bindAddress: object) -> "Dial":
        """Ask for a connection."""
        dial = Dial(host, port, factory, self)
        self.dials.append(dial)
        factory.doStart()
        factory.startedConnecting(dial)
        return dial

    def due(self) -> list[Any]:
        """The timers whose time has come, in the order they fire."""
        return [call for call in self.calls if call.getTime() <= self.seconds()]

    def turn(self) -> bool:
        """Fire what is due now, as one turn of a reactor does; says whether anything was."""
        calls = self.due()
        for call in calls:
            if call.active():
                self.fire(call)
        return bool(calls)

    def settle(self) -> None:
        """Turn until nothing is due."""
        for _ in range(TURNS):
            if not self.turn():
                return
        raise RuntimeError(f"{TURNS:,} turns, and still something is due")

    def fire(self, call: Any) -> None:
        """Fire one timer, whatever its time."""
        self.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)

    def arm(self) -> list[Any]:
        """Every timer that is armed, in the order of their times."""
        return sorted(self.calls, key=lambda call: float(call.getTime()))


@implementer(ITransport, IConsumer, IPushProducer)
class Transport:
    """A connected socket of the daemon's: it never takes time to send, and reads when the daemon lets it.

    As with a real one, its protocol hears a turn later of an end that it asked for itself.
    """

    def __init__(self, clock: Timers) -> None:
        self._clock = clock
        self.sent = bytearray()
        self.protocol: Any = None
        self.producer: Any = None
        self.reading = True
        """Whether the daemon reads."""
        self.half_closed = False
        self.closed = False
        """Whether the daemon closed it, or its half, in good order."""
        self.aborted = False
        """Whether the daemon closed it with a reset."""
        self.disconnecting = False
        self.gone = False
        self.late = b""
        """What the daemon wrote after it had closed its side."""
        self.room: int | None = None
        """How often the daemon can send until the socket is full, and it has to stop; None for ever."""

    def write(self, data: bytes) -> None:
        """Send to the peer."""
        if self.half_closed or self.disconnecting or self.gone:
            self.late += data
            return
        self.sent += data
        if self.room is not None:
            self.room -= 1
            if self.room <= 0 and self.producer is not None:
                self.producer.pauseProducing()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send to the peer."""
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Who is to be told that the peer does not read, and that it does."""
        self.producer = producer

    def unregisterProducer(self) -> None:
        """Nobody is."""
        self.producer = None

    def pauseProducing(self) -> None:
        """The daemon stops reading."""
        self.reading = False

    def resumeProducing(self) -> None:
        """The daemon reads on."""
        self.reading = True

    def stopProducing(self) -> None:
        """The daemon reads no more."""
        self.reading = False

    def loseWriteConnection(self) -> None:
        """Close the write half, once everything is sent: it is, always."""
        if not (self.half_closed or self.gone):
            self.half_closed = self.closed = True
            if IHalfCloseableProtocol.providedBy(self.protocol):
                self.protocol.writeConnectionLost()

    def loseConnection(self) -> None:
        """Close, once everything is sent."""
        if not (self.disconnecting or self.gone):
            self.closed = True
            self._ending(ConnectionDone())

    def abortConnection(self) -> None:
        """Close at once."""
        if not (self.aborted or self.gone):
            self.aborted = True
            self._ending(ConnectionAborted())

    def _ending(self, reason: Exception) -> None:
        self.disconnecting, self.reading = True, False
        self._clock.callLater(0, self.end, reason)

    def end(self, reason: Exception) -> None:
        """The connection is over, which its protocol hears once."""
        if not self.gone:
            self.gone = self.disconnecting = True
            self.protocol.connectionLost(Failure(reason))

    def getPeer(self) -> IPv4Address:
        """Where the peer is."""
        return PEER

    def getHost(self) -> IPv4Address:
        """Where the daemon is."""
        return _HOST

    def getHandle(self) -> "Transport":
        """What socket options are set on."""
        return self

    def setsockopt(self, *option: object) -> None:
        """There is no kernel that they would be for."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        """There is nothing to delay."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """There is nothing to keep alive."""


@define(eq=False)
class Connection:
    """One connection to the daemon, from the peer's side."""

    channel: Any
    transport: Transport

    def send(self, data: bytes) -> None:
        """Bytes arrive at the daemon as one read, which must be reading. Raises RuntimeError."""
        if not self.reading:
            raise RuntimeError("the daemon does not read from that connection")
        self.channel.dataReceived(data)

    @property
    def reading(self) -> bool:
        """Whether the daemon reads from this connection."""
        return self.transport.reading and not self.transport.disconnecting

    @property
    def closed(self) -> bool:
        """Whether the daemon has closed its side, or all of it."""
        return self.transport.half_closed or self.transport.disconnecting

    @property
    def received(self) -> bytes:
        """Everything the daemon has sent."""
        return bytes(self.transport.sent)

    def take(self) -> bytes:
        """What the daemon has sent since the last time."""
        data = bytes(self.transport.sent)
        self.transport.sent.clear()
        return data

    def pause(self) -> None:
        """The peer stops reading: the daemon's socket is full."""
        if self.transport.producer is not None:
            self.transport.producer.pauseProducing()

    def resume(self, room: int | None = None) -> None:
        """The peer reads on, so that the daemon can send so often."""
        self.transport.room = room
        if self.transport.producer is not None:
            self.transport.producer.resumeProducing()

    def leave(self) -> None:
        """The peer is gone."""
        self.transport.end(ConnectionLost())


@define(eq=False)
class Dial:
    """A connection that the daemon asked for, and its far end once that has accepted."""

    host: str
    port: int
    _factory: Any
    _clock: Timers
    transport: Transport | None = None
    over: bool = False
    """Whether it came to nothing."""

    def accept(self) -> None:
        """The far end accepts."""
        self.transport = Transport(self._clock)
        self.transport.protocol = self._factory.buildProtocol(PEER)
        self.transport.protocol.makeConnection(self.transport)

    def getDestination(self) -> IPv4Address:
        """Where it is to lead."""
        return IPv4Address("TCP", self.host, self.port)

    def refuse(self) -> None:
        """Nobody is there."""
        self._fail(ConnectionRefusedError())

    def stopConnecting(self) -> None:
        """The daemon gives up."""
        self._fail(UserError())

    def _fail(self, reason: Exception) -> None:
        self.over = True
        self._factory.clientConnectionFailed(self, Failure(reason))
        self._factory.doStop()

    def send(self, data: bytes) -> None:
        """Bytes arrive at the daemon, which must be reading."""
        assert self.transport is not None
        if not self.transport.reading:
            raise RuntimeError("the daemon does not read")
        self.transport.protocol.dataReceived(data)

    def end(self) -> None:
        """The far end has sent its last."""
        assert self.transport is not None
        self.transport.protocol.readConnectionLost()

    def fail(self, *, behind: bool = False) -> None:
        """The connection breaks; if `behind`, while the far end takes no more."""
        assert self.transport is not None
        if behind:
            self.transport.producer.pauseProducing()
        self.transport.end(ConnectionLost())

    @property
    def open(self) -> bool:
        """Whether there is a connection."""
        return self.transport is not None and not self.transport.gone
