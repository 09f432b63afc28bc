"""The server's end of a WebSocket that can be stopped, bounded in what it holds, and always gets to its end.

autobahn does the framing (RFC 6455). What it leaves open is settled here:

* *Stopping.* `hold` stops the reads, and the parsing of what one read has brought already (64 KiB at most), so
  that no frame, a close frame least of all, gets ahead of one that waits. `release` goes on.
* *Turns.* One read can bring ten thousand frames, and parsing them takes time that other connections want: after
  `STEPS_PER_TURN` steps they have their turn.
* *A peer that is behind.* Its transport tells `fell_behind` when more than 64 KiB are unsent, and `caught_up`.
  Pings in between are answered once, with the last (5.5.3): answering each would let a peer that never reads
  fill memory.
* *Violations.* The peer gets a close frame that says so, and is then read without being understood until it has
  had time to see the frame; a close with unread bytes would reset the connection and could overtake it.
* *Closing.* After our close frame the peer has `close_timeout` seconds to answer it, which includes the time it
  needs to read what came before; then the connection is closed behind what is still unsent, with the same time
  again before it is aborted. A peer that closes first is answered at once.
* *A peer that vanished* while nothing was sent is found by TCP keep-alive, unseen by its program.

Of autobahn's names this relies on, beyond the documented callbacks, on `consumeData`, `processData`, `sendData`,
`sendCloseFrame`, `_dataReceived`, `_fail_connection`, `CONFIG_ATTRS`, `state` and `data`;
``tests/tunnel/test_canaries.py`` watches them. Its own timers run on the global reactor and cannot be cancelled, so
they are off.

Importing autobahn costs 150 ms and 12 MiB: nothing may import this file before the port listens.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet.base import DelayedCall

from agentd.tunnel.valve import Valve

KEEP_ALIVE_SECS: Final = 60
"""Silence after which the kernel asks whether the peer is still there; it gives up after a minute more."""
STEPS_PER_TURN: Final = 256
"""Parser steps in one turn of the reactor; a frame takes two or a few, and a step some microseconds."""
PROTOCOL_ERROR: Final = 1002
VIOLATIONS: Final[Mapping[int, str]] = {
    PROTOCOL_ERROR: "the bytes received are not WebSocket frames",
    1007: "a text frame is not UTF-8",
    1009: "a frame or message is too long",
}
"""The close codes of RFC 6455 7.4.1 for bytes that break its rules or ours, in our words."""


class PeerSocket(WebSocketServerProtocol):
    """A server protocol for `agentd.tunnel.mount.take_over`. Subclasses define the methods of the second half.

    `close_timeout` and `linger` are seconds; `linger` is how long a peer is read after a violation.
    """

    # autobahn takes these over from the factory one by one, and writes them out for a log line that nobody reads: a
    # third of what an upgrade costs. `makeConnection` takes them over instead.
    CONFIG_ATTRS: list[str] = []  # noqa: RUF012  # it is theirs
    _settings: ClassVar = (
        *WebSocketServerProtocol.CONFIG_ATTRS_COMMON,
        *WebSocketServerProtocol.CONFIG_ATTRS_SERVER,
    )
    # autobahn leaves these without types
    transport: Any
    sendMessage: Callable[..., Any]
    sendPong: Callable[..., Any]

    def __init__(self, close_timeout: float, linger: float, reactor: Any) -> None:
        super().__init__()
        self._close_timeout = close_timeout
        self._linger = linger
        self._reactor = reactor
        self._deadline: DelayedCall | None = None
        self._turn: DelayedCall | None = None
        self._held = False
        self._parsing = False
        self._deaf = False
        self._behind = False
        self._peer_closed = False
        self._unanswered_ping: bytes | None = None

    # -- what a subclass uses --------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the peer is stopped."""
        return self._held

    @property
    def behind(self) -> bool:
        """Whether the peer leaves more than a buffer unsent."""
        return self._behind

    def hold(self) -> None:
        """Read and parse no more for now."""
        self._held = True
        self.transport.pauseProducing()

    def release(self) -> None:
        """Go on; what waits is parsed at once."""
        if self._held:
            self._held = False
            self._go_on()

    def _go_on(self) -> None:
        if not self._held and self._turn is None:
            self.transport.resumeProducing()
            self.consumeData()

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, or answer the peer's with it, and see the connection to its end."""
        self.sendCloseFrame(code=code, reasonUtf8=reason.encode() or None, isReply=self._peer_closed)
        self.release()  # the peer's answer is a frame behind all others
        if self._peer_closed:
            self.hang_up()
        else:
            self.expect(self._linger if self._deaf else self._close_timeout, self.hang_up)

    def hang_up(self) -> None:
        """Close the connection behind what is still to be written, but do not wait for ever."""
        self._deaf = True
        self.transport.unregisterProducer()
        self.transport.loseConnection()
        self.expect(self._close_timeout, self.transport.abortConnection)

    def expect(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` after `seconds`, unless something else is expected, nothing any more, or the end comes."""

        def late() -> None:
            self._deadline = None
            act()

        self.expect_nothing()
        self._deadline = self._reactor.callLater(seconds, late)

    def expect_nothing(self) -> None:
        """What was expected has come."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- what a subclass defines, besides `onConnect`, `onOpen` and the onMessage callbacks -----------------

    def violated(self, code: int) -> None:
        """The peer broke the rules; the answer is `close` with this code, or `hang_up`."""
        raise NotImplementedError

    def peer_closed(self) -> None:
        """The peer sent a close frame; the answer is `close`."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is over."""
        raise NotImplementedError

    def fell_behind(self) -> None:
        """The peer takes no more for now."""
        raise NotImplementedError

    def caught_up(self) -> None:
        """The peer has taken everything."""
        raise NotImplementedError

    # -- what autobahn and Twisted call ----------------------------------------------------------------

    def onOpen(self) -> None:
        """The opening handshake is answered."""
        self.transport.registerProducer(Valve(self._fell_behind, self._caught_up), True)
        self.transport.setTcpKeepAlive(True)
        handle = self.transport.getHandle()
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_SECS)
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_SECS // 4)
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)

    def makeConnection(self, transport: Any) -> None:
        """The connection is handed over."""
        for name in self._settings:
            setattr(self, name, getattr(self.factory, name))
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    def dataReceived(self, data: bytes) -> None:
        """Bytes from the peer."""
        if not self._deaf:
            self._dataReceived(data)

    def consumeData(self) -> None:
        """Parse what is buffered, as far as it may be parsed now."""
        if self.state not in (self.STATE_OPEN, self.STATE_CLOSING):
            super().consumeData()
            return
        if self._parsing or self._turn is not None:
            return
        self._parsing = True
        steps = STEPS_PER_TURN
        try:
            while steps and not self._held and not self._deaf and self.processData():
                steps -= 1
        finally:
            self._parsing = False
        if self._deaf:
            self.data = b""
        elif not steps:
            self.transport.pauseProducing()
            self._turn = self._reactor.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._go_on()

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Write a frame. autobahn's own spends a fifth of a bulk transfer on a log line nobody asked for."""
        self.transport.write(data)

    def _fail_connection(self, code: int = PROTOCOL_ERROR, reason: str = "") -> None:
        self._deaf = True
        if self.state == self.STATE_OPEN:
            self.violated(code if code in VIOLATIONS else PROTOCOL_ERROR)
        else:
            self.hang_up()

    def onPing(self, payload: bytes) -> None:
        """Answer, at once or when the peer has caught up."""
        if self._behind:
            self._unanswered_ping = payload
        else:
            self.sendPong(payload)

    def onCloseFrame(self, code: int | None, reasonRaw: bytes | None) -> bool:
        """The peer closes, or answers our close frame. Nothing behind it is looked at."""
        self.wasClean = True
        self._peer_closed = True
        if self.state == self.STATE_OPEN:
            self.peer_closed()
        else:
            self.hang_up()
        return True

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """The connection is over."""
        self.expect_nothing()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.lost()

    def _fell_behind(self) -> None:
        self._behind = True
        self.fell_behind()

    def _caught_up(self) -> None:
        self._behind = False
        if self._unanswered_ping is not None:
            ping, self._unanswered_ping = self._unanswered_ping, None
            self.sendPong(ping)
        self.caught_up()


class PeerSocketFactory(WebSocketServerFactory):
    """The settings of a `PeerSocket`; `headers` go on the 101."""

    def __init__(self, reactor: Any, headers: Mapping[str, str]) -> None:
        super().__init__(server=None, headers=dict(headers), reactor=reactor)  # type: ignore[no-untyped-call]
        self.setProtocolOptions(  # type: ignore[no-untyped-call]
            versions=[13],
            webStatus=False,
            utf8validateIncoming=True,
            failByDrop=True,
            openHandshakeTimeout=0,
            closeHandshakeTimeout=0,
            autoPingInterval=0,
            tcpNoDelay=True,
        )
