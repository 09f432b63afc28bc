"""From a `Content` to a Twisted consumer: a push producer whose reads happen in pool threads.

At any time one piece may be in the consumer's buffer and one more may be on its way from the disk; while the
consumer is paused that second piece waits here and nothing is read. So memory is two pieces, and the disk
works while the network does. Pieces arrive through the reactor one by one, so many transfers take turns.

What is left of a large file once the consumer has written its first piece out goes from the page cache to the
connection within the kernel, in pool threads too, since a page may have to come from the disk first: it is then in
nobody's memory, and costs a third of the time (``docs/performance.md``).
"""

import os
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.files.read import Content
from agentd.files.threads import Reactor, RunInThread, when_ready

PUSH_LEAST_BYTES = 512 * 1024
"""With less than this left, the change of ways is not worth it."""

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

    def send(self, consumer: Consumer, socket: int | None = None) -> Deferred[int]:
        """Write the content to `consumer`, registered as its streaming producer, then unregister and close.

        `socket` is a descriptor of the connection that the consumer writes to, which becomes ours: once the consumer
        has paused and then asks for more, its own buffer is empty, and the rest may go there past it.

        Fires with the bytes written. Fails with `FilesError` when reading fails, when the consumer has had part of
        it and its connection can only be cut, and with `ConsumerVanished`. Cancelling stops the transfer.
        """
        sender = _Sender(self._reactor, self._run, self._content, consumer, socket)
        sender.start()
        return sender.done

    def close(self) -> Deferred[None]:
        """Close without sending; fires when it is closed."""
        return self._run(self._content.close)


@implementer(IPushProducer)
class _Sender:
    def __init__(
        self,
        reactor: Reactor,
        run_in_thread: RunInThread,
        content: Content,
        consumer: Consumer,
        socket: int | None,
    ) -> None:
        self._reactor = reactor
        self._run = run_in_thread
        self._content = content
        self._consumer = consumer
        self._socket = socket
        self._past = False
        """Whether the rest goes past the consumer, as soon as that has written out what it has."""
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
        if self._past and not (self._ended or self._reading or self._waiting is not None):
            self._push()
        elif self._piece is not None and not self._ended:
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
        if self._ended:
            return
        self._past = self._paused and self._socket is not None and self._content.rest >= PUSH_LEAST_BYTES
        if not self._past:
            self._read()

    def _push(self) -> None:
        self._reading = True
        before = self._content.rest

        def pushed(room: bool) -> None:
            self._reading = False
            self._sent += before - self._content.rest
            if self._ended:
                self._close()
            elif not self._content.rest:
                self._consumer.unregisterProducer()
                self._end(None)
            elif room:
                self._push()
            else:
                assert self._socket is not None
                self._waiting = when_ready(self._reactor, self._socket, writing=True)
                self._waiting.addCallbacks(self._has_room, lambda _: None).addErrback(self._failed)

        assert self._socket is not None
        self._run(self._content.push, self._socket).addCallbacks(pushed, self._push_failed).addErrback(
            self._failed
        )

    def _has_room(self, _: None) -> None:
        self._waiting = None
        self._push()

    def _push_failed(self, reason: Failure) -> None:
        self._reading = False
        if self._ended:
            self._close()
        elif reason.check(NotImplementedError):
            self._past = False
            self._close_socket()
            self._read()
        elif reason.check(ConnectionError):
            self._failed(Failure(ConsumerVanished("the consumer went away")))
        else:
            self._failed(reason)

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

    def _close_socket(self) -> None:
        if self._socket is not None:
            os.close(self._socket)
            self._socket = None

    def _close(self) -> None:
        self._close_socket()
        self._run(self._content.close).addErrback(
            lambda reason: _log.failure("closing a file that was sent", reason)
        )
