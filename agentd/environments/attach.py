"""A client attached to a process: output, exit and errors out; stdin and signals in (environments 8).

The connection is a `PeerSocket`, which does the framing, the closing handshake and the brakes. Output is a
`Follower` of the process' log, so a client that does not read costs an offset. Its messages are read whatever
it does: a signal must arrive although stdin is stuck and although the client itself does not read.

Importing this brings in autobahn: 150 ms, so it happens on a pool thread, at the first attach.
"""

import sys
from typing import Any, Final

import msgspec

from agentd._version import VERSION
from agentd.environments import reading, shapes
from agentd.environments.context import Environment
from agentd.environments.processes import chunk_of
from agentd.environments.reading import NotJson, WrongShape
from agentd.environments.table import Process, ProcessTable
from agentd.http.request import VERSION_HEADER
from agentd.process.follow import Follower, Item, Piece
from agentd.rules.output import End
from agentd.tunnel.websocket import VIOLATIONS, PeerSocket, PeerSocketFactory

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
TOO_LONG: Final = 1009
ERRORS_BEHIND: Final = 16
"""How many errors are sent to a client that does not read; what it does not read, it does not miss."""

_encode = msgspec.json.Encoder().encode


class Attachment(PeerSocket):
    """One attached client."""

    def __init__(self, environment: Environment, table: ProcessTable, process: Process, since: int) -> None:
        limits = environment.limits
        super().__init__(limits.close, limits.close, environment.clock)
        self.factory = PeerSocketFactory(environment.clock, {VERSION_HEADER.decode(): VERSION})
        self._clock = environment.clock
        self._limits = limits
        self._table = table
        self._process = process
        self._follower = Follower(process.log, since, self, environment.clock.callLater, sys.maxsize)
        self._over = False
        self._message = bytearray()
        self._length = 0
        self._binary = False
        self._unheard = 0
        self._pinged: float | None = None
        """When the first ping was sent that nothing has come after."""
        self._timer: Any = None
        process.listeners.add(self)

    # -- to the client ---------------------------------------------------------------------------------------

    def onConnect(self, request: Any) -> None:
        """No subprotocol is ever selected."""

    def onOpen(self) -> None:
        """The 101 is on its way."""
        super().onOpen()
        self._say(shapes.AttachedMessage(self._process.shown()))
        self._timer = self._clock.callLater(self._limits.ping, self._ping)
        self._follower.start()

    def _say(self, message: shapes.AttachServerMessage) -> None:
        self.sendMessage(_encode(message), False)

    def deliver(self, items: list[Item]) -> None:
        """Output; what was evicted shows as a gap between offsets."""
        for item in items:
            if isinstance(item, Piece):
                chunk = chunk_of(item)
                self._say(shapes.OutputMessage(chunk.stream, chunk.offset, chunk.data))
            elif isinstance(item, End):
                ended = self._process.exit
                assert ended is not None
                self._say(shapes.ExitMessage(ended, self._follower.cursor))
                self._leave(NORMAL, "")

    def fell_behind(self) -> None:
        """The client does not read."""
        self._follower.pauseProducing()

    def caught_up(self) -> None:
        """The client has read everything."""
        self._unheard = 0
        self._follower.resumeProducing()

    def stop(self) -> None:
        """The daemon stops: say where to go on."""
        if self.state == self.STATE_OPEN and not self._over:
            self._say(shapes.ErrorMessage("the daemon is shutting down", self._follower.cursor))
            self._leave(GOING_AWAY, "the daemon is shutting down")

    def drop(self) -> None:
        """Cut the connection."""
        self._end()
        self.transport.abortConnection()

    def _leave(self, code: int, reason: str) -> None:
        self._end()
        self.close(code, reason)

    def _end(self) -> None:
        self._over = True
        self._follower.stop()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    # -- its life ----------------------------------------------------------------------------------------------

    def _ping(self) -> None:
        now = self._clock.seconds()
        if self._pinged is None:
            self._pinged = now
        elif now - self._pinged >= self._limits.silence:
            self.drop()
            return
        self.sendPing()
        self._timer = self._clock.callLater(self._limits.ping, self._ping)

    def dataReceived(self, data: bytes) -> None:
        """Bytes from the client: it is there."""
        self._pinged = None
        super().dataReceived(data)

    def violated(self, code: int) -> None:
        """The client broke the rules of WebSocket, or sent too much."""
        self._leave(code, VIOLATIONS[code])

    def peer_closed(self) -> None:
        """The client leaves. The process does not care."""
        self._leave(NORMAL, "")

    def lost(self) -> None:
        """The connection is over."""
        self._end()
        self._process.listeners.discard(self)
        self._table.left(self._process)

    # -- from the client ---------------------------------------------------------------------------------------

    def onMessageBegin(self, isBinary: bool) -> None:
        """The first frame of a message."""
        self._binary = isBinary
        self._message = bytearray()
        self._length = 0

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame of `length` bytes follows."""
        self._length += length
        if self._length > self._limits.message:
            self._fail_connection(TOO_LONG)

    def onMessageFrameData(self, payload: bytes) -> None:
        """The next bytes of a frame."""
        if not self._over:
            self._message += payload

    def onMessageFrameEnd(self) -> None:
        """A frame is complete, which means nothing: a message may have many."""

    def onMessageEnd(self) -> None:
        """A message is complete."""
        message, self._message = bytes(self._message), bytearray()
        if self._over:
            return
        fault = "messages are text" if self._binary else self._obey(message)
        if fault is None:
            return
        if self.behind:
            self._unheard += 1
            if self._unheard > ERRORS_BEHIND:
                return
        self._say(shapes.ErrorMessage(fault))

    def _obey(self, message: bytes) -> str | None:
        """Do all that a message asks, or nothing, and say why."""
        try:
            asked = reading.decode(message, shapes.AttachClientMessage)
        except NotJson as reason:
            return f"message is not valid JSON: {reason}"
        except WrongShape as reason:
            return str(reason)
        if asked.stdin is None and asked.stdin_eof is None and asked.signal is None:
            return "message is empty"
        queue = self._process.input
        data = None if asked.stdin is None else asked.stdin.encode()
        if data is not None:
            fault = queue.judge(len(data))
            if fault is not None:
                return f"stdin: {fault.value}"
        if asked.stdin_eof:
            fault = queue.judge(None)
            if fault is not None:
                return f"stdin_eof: {fault.value}"
        if data:
            queue.put(data)
        if asked.stdin_eof:
            queue.end()
        if asked.signal is not None:
            self._process.signal(asked.signal)
        return None
