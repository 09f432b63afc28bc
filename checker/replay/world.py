"""The real daemon in memory: its own handlers, jobs and rules, on a clock, children and connections that are ours.

Everything above the edge of the process is what `agentd.tap.compose` builds; what is replaced is the edge:

* **time** is a `Timers`: it stands still, and lets the one timer be fired that is meant, whatever the others are
  set to. A model abstracts from durations, and each order of timers is the order of some configuration;
* **children** are `checker.replay.children`, which do what they are told;
* **connections** are `Connection`s of bytes, which the peer may stop reading or drop, and those that the daemon itself
  asks for are `Dial`s, which are accepted when a run says so;
* **threads** are none: what the daemon gives to a pool runs at once, or when `Threads` is told to run it.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import define, field
from twisted.internet import task
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import (
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    UserError,
)
from twisted.internet.interfaces import IConsumer, IHalfCloseableProtocol, IPushProducer, ITransport
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.config import Config
from agentd.environments.limits import DEFAULTS, Limits
from agentd.tap import World, compose
from checker.replay.children import Children

if TYPE_CHECKING:
    from agentd.worker.face import WorkerOptions

WALL_CLOCK = 1_700_000_000.0
"""Epoch seconds at which a daemon in memory begins."""
TURNS = 10_000
"""Timers that are due at once, one after the other, before that is a daemon that goes round in circles."""


class Timers(task.Clock):
    """A clock that stands still, and timers that are fired one by one; a reactor that connects to nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
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


class Threads:
    """The pool: what is given to it runs at once, or, when `held`, when `run` says so."""

    def __init__(self) -> None:
        self.held = False
        self.waiting: list[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Give `function` to the pool."""
        if not self.held:
            return maybeDeferred(function, *args)
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, function, args))
        return done

    def run(self, index: int = 0) -> None:
        """Let one of those that wait run, and the daemon hear of its end."""
        done, function, args = self.waiting.pop(index)
        try:
            result = function(*args)
        except BaseException:
            done.errback(Failure())
        else:
            done.callback(result)


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
        return _PEER

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


_PEER = IPv4Address("TCP", "192.0.2.1", 1)
_HOST = IPv4Address("TCP", "192.0.2.2", 9000)


@define(eq=False)
class Connection:
    """One connection to the daemon, from the peer's side."""

    channel: Any
    transport: Transport
    _unsent: bytearray = field(factory=bytearray)

    def send(self, data: bytes) -> None:
        """Bytes arrive at the daemon as one read, as soon as it reads."""
        self._unsent += data
        self.deliver()

    def deliver(self) -> None:
        """What was sent and not read yet arrives, if the daemon reads now."""
        while self._unsent and self.reading:
            data, self._unsent = bytes(self._unsent), bytearray()
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

    def leave(self, clean: bool = False) -> None:
        """The peer is gone."""
        self.transport.end(ConnectionDone() if clean else ConnectionLost())


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
        self.transport.protocol = self._factory.buildProtocol(_PEER)
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


def quiet_config(**changes: Any) -> Config:
    """A configuration for a daemon in memory: nothing of this machine is changed or read beyond what it must."""
    settings: dict[str, Any] = {
        "repair_identity": False,
        "hooks_dir": os.devnull,
        "passwd_file": os.devnull,
        "group_file": os.devnull,
    }
    return Config(**{**settings, **changes})


class MemoryDaemon:
    """A daemon in memory. `changes` are knobs of `agentd.config.Config`, `limits` those of its environment; it is a
    worker too if `worker` says how."""

    def __init__(
        self, limits: Limits = DEFAULTS, worker: "WorkerOptions | None" = None, **changes: Any
    ) -> None:
        self.clock = Timers()
        self.children = Children()
        self.threads = Threads()
        self.starved: set[int] = set()
        """Pids the kernel killed for lack of memory."""
        self.failed: list[str] = []
        """Why it cannot go on."""
        self.stopped = 0
        """How often the daemon was asked to leave."""
        self.config = quiet_config(**changes)
        world = World(
            reactor=self.clock,
            run_in_thread=self.threads,
            wall_clock=lambda: WALL_CLOCK + self.clock.seconds(),
            environ={},
            out_of_memory=lambda pid: pid in self.starved,
            spawner=self.children,
            limits=limits,
        )
        self.daemon, self.site, _ = compose(self.config, world, self._stop, worker, self.failed.append)
        self.connections: list[Connection] = []

    def _stop(self) -> None:
        self.stopped += 1

    def connect(self) -> Connection:
        """A new connection."""
        channel: Any = self.site.buildProtocol(_PEER)  # type: ignore[no-untyped-call]
        transport = Transport(self.clock)
        transport.protocol = channel
        channel.makeConnection(transport)
        connection = Connection(channel, transport)
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        """Every peer leaves, and everybody the daemon has connected to."""
        for connection in self.connections:
            connection.leave()
        for dial in self.clock.dials:
            if dial.open:
                dial.fail()
        self.clock.settle()

    def left(self) -> list[str]:
        """What is still there of what the daemon began, for a person to read: nothing, once every peer has left, every
        child has ended and everything due has happened."""
        found = [f"a request in flight: {self.site.state}"] if self.site.state.in_flight else []
        found += [f"a timer: {call.func.__qualname__}" for call in self.clock.arm()]
        found += ["a child that runs" for child in self.children.all if not child.exited]
        found += [f"a fault that it cannot go on with: {reason}" for reason in self.failed]
        found += ["work for the pool"] * len(self.threads.waiting)
        waiting = [dial for dial in self.clock.dials if dial.transport is None and not dial.over]
        found += [f"a connection to port {dial.port} that is waited for" for dial in waiting]
        return found
