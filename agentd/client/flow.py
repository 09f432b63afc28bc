"""Bytes between callbacks and coroutines, with back-pressure in both directions.

Twisted delivers bytes by calling; the library's callers ask for them by awaiting. `Inbox` joins the two: it
holds what came until it is asked for, tells the producer to pause above its high-water mark and to go on below
half of it, so a slow reader stops the sender through the socket and memory stays within the mark plus one read.
`Outlet` is the other half: it lets a writer wait until the transport has taken what it was given.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer

T = TypeVar("T")

HIGH_WATER = 256 * 1024
"""Bytes an inbox holds before it pauses its producer."""


class Pausable(Protocol):
    """What an inbox needs of its producer: the two calls of Twisted's IPushProducer."""

    def pauseProducing(self) -> object: ...

    def resumeProducing(self) -> object: ...


class Inbox:
    """A bounded queue of byte chunks with one reader.

    Args:
        high_water: bytes held before the producer is paused.
    """

    def __init__(self, high_water: int = HIGH_WATER) -> None:
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._high_water = high_water
        self._producer: Pausable | None = None
        self._paused = False
        self._ended = False
        self._fault: Exception | None = None
        self._waiter: Deferred[None] | None = None

    @property
    def held(self) -> int:
        """Bytes waiting to be read."""
        return self._held

    def attach(self, producer: Pausable | None) -> None:
        """Name the producer that back-pressure acts on."""
        self._producer = producer

    def put(self, data: bytes) -> None:
        """Take a chunk from the producer; what comes after the end is dropped."""
        if self._ended or not data:
            return
        self._chunks.append(data)
        self._held += len(data)
        if self._held >= self._high_water and not self._paused and self._producer is not None:
            self._paused = True
            self._producer.pauseProducing()
        self._wake()

    def end(self, fault: Exception | None = None) -> None:
        """Say that nothing more comes: a clean end, or the fault that readers get after the last chunk."""
        if self._ended:
            return
        self._ended = True
        self._fault = fault
        self._producer = None
        self._wake()

    def discard(self) -> None:
        """Forget what is held and whatever still comes: the reader has left."""
        self._chunks.clear()
        self._held = 0
        self.end()

    async def get(self) -> bytes:
        """The next chunk, or ``b""`` at the end (and again after it). One reader at a time.

        Raises:
            Exception: the fault given to `end`, once everything before it has been read.
        """
        while not self._chunks:
            if self._ended:
                if self._fault is not None:
                    raise self._fault
                return b""
            self._waiter = Deferred()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._chunks.popleft()
        self._held -= len(data)
        if self._paused and self._held <= self._high_water // 2 and self._producer is not None:
            self._paused = False
            self._producer.resumeProducing()
        return data

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)


@implementer(IPushProducer)
class Outlet:
    """The writing side's brake: registered as a transport's producer, it is open while the buffer has room."""

    def __init__(self) -> None:
        self._open = True
        self._stopped: Exception | None = None
        self._waiters: list[Deferred[None]] = []

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self._open = False

    def resumeProducing(self) -> None:
        """The transport's buffer has drained."""
        self._open = True
        self._release()

    def stopProducing(self) -> None:
        """The transport is gone."""
        self.stop(ConnectionAbortedError("the connection was closed while writing"))

    def stop(self, fault: Exception) -> None:
        """Let every present and later writer fail with `fault`."""
        if self._stopped is None:
            self._stopped = fault
        self._release()

    async def ready(self) -> None:
        """Return when the transport takes more.

        Raises:
            Exception: the transport is gone.
        """
        while not self._open and self._stopped is None:
            waiter: Deferred[None] = Deferred()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        if self._stopped is not None:
            raise self._stopped

    def _release(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)


def cancellable(pending: "Deferred[T]", late: Callable[[T], object]) -> "Deferred[T]":
    """`pending`, whose cancellation is a `CancelledError` and final.

    What Twisted's own Deferreds make of being cancelled depends on where they were: a host name that cannot be
    found, a request that was not generated, even a success. A caller that repeats what failed must not take that
    for a failure, and a result that comes all the same goes to `late`.
    """
    leaving = False

    def cancel(_: "Deferred[T]") -> None:
        nonlocal leaving
        leaving = True
        pending.cancel()

    def forward(result: "T | Failure") -> None:
        if not leaving:
            outer.callback(result)  # a failure, too, goes on as one
        elif not isinstance(result, Failure):
            late(result)

    outer: Deferred[T] = Deferred(cancel)
    pending.addBoth(forward)
    return outer
