"""From a `Content` to a Twisted consumer: a push producer whose reads happen in pool threads.

At any time one piece may be in the consumer's buffer and one more may be on its way from the disk; while the
consumer is paused that second piece waits here and nothing is read. So memory is two pieces, and the disk
works while the network does. Pieces arrive through the reactor one by one, so many transfers take turns.
"""

from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.files.read import Content
from agentd.files.threads import Reactor, RunInThread, when_ready

_log = Logger()


class Consumer(Protocol):
    """`IConsumer` in words that a type checker follows; a transport or a `twisted.web` request is one."""

    def registerProducer(self, producer: Any, streaming: bool) -> object: ...
    def unregisterProducer(self) -> object: ...
    def write(self, data: bytes) -> object: ...


class ConsumerVanished(Exception):
    """The consumer stopped the transfer: its peer is gone."""


class FileRead:
    """An opened file, or a packed archive, ready to be sent. `send` it or `close` it, once."""

    def __init__(self, reactor: Reactor, run_in_thread: RunInThread, content: Content) -> None:
        self._reactor = reactor
        self._run = run_in_thread
        self._content = content
        self.length = content.length
        """Bytes that `send` will write, None when only reading can tell."""
        self.size = content.size
        """Size of the whole regular file."""
        self.range = content.range
        """The byte range selected, None for everything."""

    def send(self, consumer: Consumer) -> Deferred[int]:
        """Write the content to `consumer`, registered as its streaming producer, then unregister and close.

        Fires with the bytes written. Fails with `FilesError` when reading fails, when the consumer has had part of
        it and its connection can only be cut, and with `ConsumerVanished`. Cancelling stops the transfer.
        """
        sender = _Sender(self._reactor, self._run, self._content, consumer)
        sender.start()
        return sender.done

    def close(self) -> Deferred[None]:
        """Close without sending; fires when it is closed."""
        return self._run(self._content.close)


@implementer(IPushProducer)
class _Sender:
    def __init__(
        self, reactor: Reactor, run_in_thread: RunInThread, content: Content, consumer: Consumer
    ) -> None:
        self._reactor = reactor
        self._run = run_in_thread
        self._content = content
        self._consumer = consumer
        self._paused = False
        self._ended = False
        self._reading = False
        self._waiting: Deferred[None] | None = None
        self._piece: bytes | None = None
        self._sent = 0
        self.done: Deferred[int] = Deferred(self._cancelled)

    def start(self) -> None:
        self._consumer.registerProducer(self, True)
        # The first piece was read when the file was opened.
        if not self._ended:
            self._read()

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        if self._piece is not None and not self._ended:
            piece, self._piece = self._piece, None
            self._got(piece)

    def stopProducing(self) -> None:
        self._end(Failure(ConsumerVanished("the consumer went away")))

    def _cancelled(self, _: Deferred[int]) -> None:
        if not self._ended:
            self._consumer.unregisterProducer()
            self._end(Failure(CancelledError()))

    def _read(self) -> None:
        self._reading = True
        self._run(self._content.next).addCallbacks(self._was_read, self._read_failed).addErrback(self._failed)

    def _was_read(self, piece: bytes | None) -> None:
        self._reading = False
        if self._ended:
            self._close()
        elif piece is None:
            self._read()
        elif self._paused:
            self._piece = piece
        else:
            self._got(piece)

    def _got(self, piece: bytes) -> None:
        if not piece:
            self._consumer.unregisterProducer()
            self._end(None)
            return
        self._sent += len(piece)
        self._consumer.write(piece)
        if not self._ended:
            self._read()

    def _read_failed(self, reason: Failure) -> None:
        self._reading = False
        if self._ended:
            self._close()
        elif reason.check(BlockingIOError):
            self._waiting = when_ready(self._reactor, self._content.fd)
            self._waiting.addCallbacks(self._is_ready, lambda _: None).addErrback(self._failed)
        else:
            self._failed(reason)

    def _is_ready(self, _: None) -> None:
        self._waiting = None
        self._read()

    def _failed(self, reason: Failure) -> None:
        if not self._ended:
            self._consumer.unregisterProducer()
            self._end(reason)

    def _end(self, reason: Failure | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._piece = None
        if self._waiting is not None:
            self._waiting.cancel()
        if not self._reading:
            self._close()
        if self.done.called:
            return
        if reason is None:
            self.done.callback(self._sent)
        else:
            self.done.errback(reason)

    def _close(self) -> None:
        self._run(self._content.close).addErrback(
            lambda reason: _log.failure("closing a file that was sent", reason)
        )
