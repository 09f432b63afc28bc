"""The WebSocket of an attached client: messages in, stdin and signals out (environments 8).

The socket is that of the tunnels, made to carry text: each message is one chunk of its inbox, so a reader that
is slow holds the daemon back through the connection, and the daemon keeps what it owes as an offset.
"""

from typing import Any

import msgspec

from agentd.client.environment_messages import ProcessExit, ProcessInfo, Signal, Stream
from agentd.client.errors import AgentError, ProtocolFault, TransportFault
from agentd.client.websocket import Socket

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""A message of the daemon's: the first one holds the whole command, the others 64 KiB of output at most."""

WRITE_CHARACTERS = 128 * 1024
"""Characters of stdin in one message: well under the daemon's limit, whatever they are."""


class AttachedMessage(msgspec.Struct, frozen=True, tag_field="type", tag="attached"):
    """The first message: the process."""

    process: ProcessInfo


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="output"):
    """Output of one stream at an offset."""

    stream: Stream
    offset: int
    data: str


class ExitMessage(msgspec.Struct, frozen=True, tag_field="type", tag="exit"):
    """The last message: how it ended."""

    exit: ProcessExit
    next: int


class ErrorMessage(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """A message of ours was refused; with `next`, the daemon stops."""

    message: str
    next: int | None = None


Message = AttachedMessage | OutputMessage | ExitMessage | ErrorMessage

_decode = msgspec.json.Decoder(Message).decode


class DaemonStopping(TransportFault):
    """The daemon goes away; `next` is where to go on, should the process outlive it."""

    def __init__(self, next_offset: int) -> None:
        self.next = next_offset
        super().__init__("the daemon is shutting down")


class AttachRefused(AgentError):
    """What was said was not done; the text says why."""


class AttachSocket(Socket):
    """A WebSocket of text messages, each delivered whole."""

    def __init__(self) -> None:
        super().__init__(whole=True)

    def onMessageBegin(self, isBinary: bool) -> None:
        """The first frame of a message."""
        self._parts, self._size = [], 0
        if isBinary:
            self._reject()

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame of `length` bytes follows."""
        self._size += length
        if self._size > MAX_TEXT_BYTES:
            self._reject()

    def say(self, data: bytes) -> None:
        """Send one text message."""
        self.sendMessage(data, False)  # type: ignore[no-untyped-call]  # autobahn's types stop here


class Attached:
    """An attached client: an asynchronous iterator of messages, and an asynchronous context manager."""

    def __init__(self, socket: AttachSocket) -> None:
        self._socket = socket
        self._over = False
        self.next = 0
        """Where a later attach goes on: at the last message received, which it then brings again."""

    async def __aenter__(self) -> "Attached":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> "Attached":
        return self

    async def __anext__(self) -> Message:
        """The next message; the exit is the last.

        Raises:
            TransportFault: the connection was lost.
            DaemonStopping: the daemon goes away.
            ProtocolFault: what came is none of the messages there are.
        """
        if self._over:
            raise StopAsyncIteration
        data = await self._socket.inbox.get()
        if not data:
            if self._socket.foul:
                raise ProtocolFault("the daemon sent what is no message")
            raise TransportFault("the connection to the process was lost")
        try:
            message = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.close()
            raise ProtocolFault("the daemon sent what is no message") from None
        if isinstance(message, OutputMessage):
            self.next = message.offset
        elif isinstance(message, ExitMessage):
            self.next = message.next
            self._over = True
        elif isinstance(message, ErrorMessage) and message.next is not None:
            raise DaemonStopping(message.next)
        return message

    async def write(self, text: str, *, eof: bool = False) -> None:
        """Write to its stdin, and end it afterwards if `eof`. A refusal comes as an `ErrorMessage`.

        Raises:
            TransportFault: the connection is gone.
        """
        for start in range(0, len(text), WRITE_CHARACTERS):
            await self._say(stdin=text[start : start + WRITE_CHARACTERS])
        if eof:
            await self._say(stdin_eof=True)

    async def signal(self, name: Signal) -> None:
        """Send a signal to its group.

        Raises:
            TransportFault: the connection is gone.
        """
        await self._say(signal=name)

    async def _say(self, **members: Any) -> None:
        try:
            await self._socket.outlet.ready()
        except ConnectionError:
            raise TransportFault("the connection to the process was lost") from None
        self._socket.say(msgspec.json.encode(members))

    def close(self) -> None:
        """Leave; the process does not notice. May be repeated."""
        self._over = True
        self._socket.say_close(1000, "")
        self._socket.drain()
