"""Byte streams beside the calls, each end a WebSocket of its own (reference A8).

Sending answers with the reader's reference at once and pumps afterwards, piece by piece as the engine takes them; the
write end is opened for an empty file too, because a reader waits for it. A receiver stops the stream while what came
before is being written.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.logger import Logger

from agentd.files.errors import FilesError
from agentd.files.send import ConsumerVanished, FileRead
from agentd.files.threads import Ending, RunInThread
from agentd.worker.errors import Coded
from agentd.worker.sandbox import Caller, CallFailed
from agentd.worker.websocket import Address, ClientSocket, NotConnected, connect

if TYPE_CHECKING:
    from agentd.files.read import Content

_log = Logger()

CREATE: Final = "engine::channels::create"
BUFFER: Final = 64
"""Messages that the engine holds between the two ends."""
FRAME_BYTES: Final = 64 * 1024
READER_SECS: Final = 600.0
"""How long a reader may take for the last of a file, which the engine and the kernel hold for it."""
STALL_SECS: Final = 30.0
"""A stream without a frame for so long has failed (reference B2)."""


class EngineChannels:
    """`agentd.worker.function.Channels` at an engine."""

    def __init__(self, engine: Caller, address: Address, reactor: Any, run_in_thread: RunInThread) -> None:
        self._engine = engine
        self._address = address
        self._reactor = reactor
        self._run_in_thread = run_in_thread
        self._open: set[Deferred[Any]] = set()

    async def send(self, content: "Content") -> dict[str, Any]:
        """The reader's reference; the content follows. Raises `Coded` S216, with `content` closed."""
        file = FileRead(self._reactor, self._run_in_thread, content)
        try:
            made = await self._engine.call(CREATE, {"buffer_size": BUFFER})
            writer, reader = made["writer"], made["reader"]
            url = self._address.channel(writer["channel_id"], writer["access_key"], "write")
        except (CallFailed, KeyError, TypeError) as reason:
            await file.close()
            text = reason.message if isinstance(reason, CallFailed) else "an answer that is not understood"
            raise Coded("S216", f"no channel could be made: {text}") from None
        except BaseException:
            file.close()
            raise
        self._keep(Deferred.fromCoroutine(self._pump(file, url)))
        return {
            "channel_id": reader["channel_id"],
            "access_key": reader["access_key"],
            "direction": "read",
        }

    async def _pump(self, file: FileRead, url: str) -> None:
        """All of `file` into a channel. Nobody waits for it: the reader is told what went wrong."""
        sink = _Sink()
        try:
            socket = sink.socket = await connect(self._reactor, self._address, url, sink)
        except NotConnected as reason:
            _log.warn("a channel could not be opened for writing: {reason}", reason=str(reason))
            await file.close()
            return
        except BaseException:
            file.close()
            raise
        try:
            try:
                await file.send(sink)
            except FilesError as reason:
                socket.say(json.dumps({"error": str(reason)}).encode())
            except ConsumerVanished:
                return
            # What is sent may still wait for a slow reader.
            socket.close(READER_SECS)
            await sink.over.wait()
        finally:
            socket.abort()

    async def receive(
        self, reference: dict[str, Any], write: Callable[[bytes], Awaitable[object] | None]
    ) -> int:
        """Every chunk of a caller's channel to `write`, in order. The bytes given. Raises `Coded` S216."""
        url = self._reading(reference)
        source = _Source(self._reactor)
        try:
            socket = await connect(self._reactor, self._address, url, source)
        except NotConnected as reason:
            raise Coded("S216", f"the channel could not be opened: {reason}") from None
        source.attach(socket)
        closing: Deferred[Any] = source.over
        self._keep(closing)
        total = 0
        try:
            while True:
                chunk = await source.next()
                if chunk is None:
                    return total
                writing = write(chunk)
                if writing is not None:
                    await writing
                total += len(chunk)
        finally:
            socket.close()
            source.stop()

    def _reading(self, reference: Mapping[str, Any]) -> str:
        id, key = reference.get("channel_id"), reference.get("access_key")
        if not isinstance(id, str) or not isinstance(key, str):
            raise Coded("S210", "content: a channel has a channel_id and an access_key")
        if reference.get("direction", "read") != "read":
            raise Coded("S210", "content: the reference must be that of a channel's reader")
        return self._address.channel(id, key, "read")

    def _keep(self, running: "Deferred[Any]") -> None:
        self._open.add(running)
        running.addBoth(self._ended, running)

    def _ended(self, result: Any, running: "Deferred[Any]") -> None:
        self._open.discard(running)
        if hasattr(result, "value") and not isinstance(result.value, CancelledError):
            _log.failure("a channel broke", result)

    def stop(self) -> "Deferred[Any]":
        """Close every channel; fires when they are."""
        running = list(self._open)
        for each in running:
            each.cancel()
        return DeferredList(running)


class _Sink:
    """The write end: a consumer for a file."""

    def __init__(self) -> None:
        self.over = Ending()
        self.socket: ClientSocket | None = None
        self._producer: Any = None

    def message(self, payload: bytes, binary: bool) -> None:
        """A reader has nothing to say."""

    def heard(self) -> None:
        """What comes is not waited for."""

    def closed(self, reason: str) -> None:
        self.over.over()
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.stopProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert self.socket is not None
        self._producer = producer
        if self.socket.over:
            self._producer = None
            producer.stopProducing()
        else:
            self.socket.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self.socket is not None and not self.socket.over:
            self.socket.transport.unregisterProducer()

    def write(self, data: bytes) -> None:
        assert self.socket is not None
        for start in range(0, len(data), FRAME_BYTES):
            self.socket.say(data[start : start + FRAME_BYTES], True)


class _Source:
    """The read end: chunks in order, one at a time, or S216 when none comes for too long."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._socket: ClientSocket | None = None
        self._chunks: deque[bytes] = deque()
        self._waiting: Deferred[None] | None = None
        self._timer: Any = None
        self._ended = False
        self._stalled = False
        self.over: Deferred[Any] = Deferred(lambda _: self._cut())

    def attach(self, socket: ClientSocket) -> None:
        """The socket that the chunks come from."""
        self._socket = socket
        if self._chunks:
            socket.transport.pauseProducing()

    def message(self, payload: bytes, binary: bool) -> None:
        """A chunk; text is a message beside the bytes, and skipped."""
        if binary and payload:
            self._chunks.append(payload)
            if self._socket is not None:
                self._socket.transport.pauseProducing()
            self._wake()
        elif self._timer is not None:
            self._timer.reset(STALL_SECS)

    def heard(self) -> None:
        """Only frames count as progress."""

    def closed(self, reason: str) -> None:
        """The end of the stream."""
        self._ended = True
        self._wake()
        if not self.over.called:
            self.over.callback(None)

    async def next(self) -> bytes | None:
        """The next chunk, None at the end. Raises `Coded` S216 after 30 s without a frame."""
        while not self._chunks:
            if self._stalled:
                raise Coded("S216", f"the channel had nothing for {STALL_SECS:g} s")
            if self._ended:
                return None
            if self._socket is not None:
                self._socket.transport.resumeProducing()
            self._timer = self._reactor.callLater(STALL_SECS, self._stall)
            self._waiting = Deferred()
            try:
                await self._waiting
            finally:
                self._waiting = None
                self.stop()
        return self._chunks.popleft()

    def _stall(self) -> None:
        self._timer = None
        self._stalled = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def _cut(self) -> None:
        self._stalled = True
        if self._socket is not None:
            self._socket.abort()

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class NoChannels:
    """Where there is no engine: the files themselves are sent and taken over HTTP (``/v1/fs/file``)."""

    async def send(self, content: "Content") -> dict[str, Any]:
        """Raises `Coded` S216."""
        raise Coded("S216", "a channel needs an engine; over HTTP, read files with GET /v1/fs/file")

    async def receive(
        self, reference: dict[str, Any], write: Callable[[bytes], Awaitable[object] | None]
    ) -> int:
        """Raises `Coded` S216."""
        raise Coded("S216", "a channel needs an engine; over HTTP, write files with PUT /v1/fs/file")
