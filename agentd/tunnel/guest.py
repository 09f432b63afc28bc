"""The tunnel's TCP connection to a port on the guest's loopback.

Its end is told apart from its failure, and closing it says what it means (contract f.1, f.2):

* `shut` writes what is pending, then sends FIN, so that the guest reads every byte and then an end of file.
  It goes on reading and dropping for a moment: closing a socket that holds unread bytes sends a reset
  instead (RFC 2525 2.17), and the guest would see an error in place of the end.
* `reset` sends RST at once (SO_LINGER 0, socket(7)), so that the guest cannot take what it read for all there was.

A dial to a port of the ephemeral range on which nothing listens can connect a socket to itself (TCP's
simultaneous open, RFC 9293 3.5). Such a connection answers what it is sent, so it counts as nobody listening.
"""

from typing import Any, Never, Protocol

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionRefusedError, TimeoutError
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.tunnel.limits import TunnelLimits
from agentd.tunnel.valve import Valve

LOOPBACK = "127.0.0.1"
"""The only address that is ever dialled; no name is ever resolved."""


class NobodyThere(Exception):
    """The dial failed; the text completes "port N "."""


class GuestOwner(Protocol):
    """What a guest connection tells its tunnel."""

    def guest_sent(self, data: bytes) -> None:
        """Bytes, at most a read's worth."""

    def guest_ended(self) -> None:
        """The guest sent its last byte."""

    def guest_failed(self, while_writing: bool) -> None:
        """The connection broke, with bytes of the caller still unwritten or not."""

    def guest_behind(self) -> None:
        """The guest takes no more for now."""

    def guest_ready(self) -> None:
        """The guest has taken everything."""

    def guest_gone(self) -> None:
        """The connection no longer exists; always the last call."""


@implementer(IHalfCloseableProtocol)
class Guest(TwistedProtocol):
    """One connection to the guest. Its owner hears nothing of it after `shut` or `reset` but `guest_gone`."""

    transport: Any

    def __init__(self, owner: GuestOwner, limits: TunnelLimits, reactor: Any) -> None:
        self._owner = owner
        self._limits = limits
        self._reactor = reactor
        self._leaving = False
        self._ended = False
        self._behind = False
        self._linger: DelayedCall | None = None

    def send(self, data: bytes) -> None:
        """Write bytes of the caller."""
        self.transport.write(data)

    def pause(self) -> None:
        """Read no more for now."""
        if not self._leaving:
            self.transport.pauseProducing()

    def resume(self) -> None:
        """Read on."""
        if not self._leaving and not self._ended:
            self.transport.resumeProducing()

    def shut(self) -> None:
        """Write what is pending, send FIN, and go."""
        if self._leaving:
            return
        self._leaving = True
        self.transport.unregisterProducer()
        if self._ended:
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()
            self.transport.resumeProducing()

    def reset(self) -> None:
        """Send RST and go, whatever is pending."""
        self._leaving = True
        self.transport.abortConnection()

    # -- what Twisted calls ----------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """The port accepted."""
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(Valve(self._fell_behind, self._caught_up), True)

    def dataReceived(self, data: bytes) -> None:
        """Bytes from the guest."""
        if not self._leaving:
            self._owner.guest_sent(data)

    def readConnectionLost(self) -> None:
        """The guest sent FIN."""
        self._ended = True
        if self._leaving:
            self.transport.loseConnection()
        else:
            self._owner.guest_ended()

    def writeConnectionLost(self) -> None:
        """What was pending is written and FIN is sent."""
        self._linger = self._reactor.callLater(self._limits.linger, self._lingered)

    def _lingered(self) -> None:
        self._linger = None
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is over."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if not self._leaving:
            self._leaving = True
            self._owner.guest_failed(self._behind)
        self._owner.guest_gone()

    def _fell_behind(self) -> None:
        self._behind = True
        self._owner.guest_behind()

    def _caught_up(self) -> None:
        self._behind = False
        self._owner.guest_ready()


def dial(owner: GuestOwner, port: int, limits: TunnelLimits, reactor: Any) -> "Deferred[Guest]":
    """Connect to `port`; fails with `NobodyThere`. Cancel it to give up."""
    endpoint = TCP4ClientEndpoint(reactor, LOOPBACK, port, timeout=limits.dial_timeout)
    factory: Any = Factory.forProtocol(lambda: Guest(owner, limits, reactor))
    connecting: Deferred[Any] = endpoint.connect(factory)

    def connected(guest: Guest) -> Guest:
        if guest.transport.getHost() == guest.transport.getPeer():
            guest.reset()
            raise NobodyThere("has no listener")
        return guest

    def failed(failure: Failure) -> Never:
        if failure.check(ConnectionRefusedError):
            raise NobodyThere("has no listener")
        if failure.check(TimeoutError):
            raise NobodyThere(f"did not accept within {limits.dial_timeout:g} s")
        raise NobodyThere("could not be connected to")

    return connecting.addCallbacks(connected, failed)
