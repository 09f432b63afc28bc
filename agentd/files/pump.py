"""From a producer on the reactor thread to a blocking consumer in a pool thread, in order, in bounded memory.

Bytes queue up on the reactor side; one batch at a time goes to a pool thread. Above `HIGH_BYTES` queued the
source is paused, below `LOW_BYTES` it is resumed, so memory is bounded by the mark and one read of the
source. Every chunk is charged a little more than its length: an interpreter pays some 60 bytes for an object,
and a body that arrives byte by byte must not cost more memory than one that arrives in blocks.

The first failure is final: the queue is dropped, the source is told once, later writes vanish.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from agentd.files.threads import RunInThread

HIGH_BYTES = 2 * 1024 * 1024
"""Queued bytes above which the source is paused."""
LOW_BYTES = 1024 * 1024
"""Queued bytes below which it is resumed."""
BATCH_BYTES = 1024 * 1024
"""Bytes handed to a pool thread at once."""
CHUNK_OVERHEAD = 64


def _nothing() -> None: ...


def _ignore(_: Exception) -> None: ...


@frozen
class Flow:
    """What a sink tells its source; every call is made on the reactor thread.

    `failed` is called at most once, before `finish`, so that an answer need not wait for the end of a body that
    cannot be stored; the same error comes out of `finish`.
    """

    pause: Callable[[], None] = _nothing
    resume: Callable[[], None] = _nothing
    failed: Callable[[Exception], None] = _ignore


class Consume(Protocol):
    """Takes a batch in a pool thread; returns what could not be taken yet, usually nothing."""

    def __call__(self, batch: list[bytes], /) -> list[bytes]: ...


class Pump:
    """Moves what `write` is given to `consume`, which runs in pool threads and never twice at a time.

    `ready` is asked to wait, on the reactor, before what `consume` left over is tried again.
    """

    def __init__(
        self,
        run_in_thread: RunInThread,
        consume: Consume,
        flow: Flow,
        ready: Callable[[], Deferred[None]] | None = None,
    ) -> None:
        self._run = run_in_thread
        self._consume = consume
        self._flow = flow
        self._ready = ready
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._paused = False
        self._working: Deferred[None] | None = None
        self._waiting: Deferred[None] | None = None
        self._idle: list[Deferred[None]] = []
        self._stopped = False
        self.error: Exception | None = None

    def write(self, data: bytes) -> None:
        """Queue `data`; the source may be paused before this returns."""
        if self._stopped or not data:
            return
        self._queue.append(data)
        self._queued += len(data) + CHUNK_OVERHEAD
        if self._queued > HIGH_BYTES and not self._paused:
            self._paused = True
            self._flow.pause()
        self._work()

    def drain(self) -> Deferred[None]:
        """Fires when everything written so far was consumed; fails with the pump's error."""
        return self._when_idle().addCallback(lambda _: self._check())

    def stop(self) -> Deferred[None]:
        """Drop what is queued; fires when no thread is at work for this pump, and never fails."""
        self._stopped = True
        self._clear()
        if self._waiting is not None:
            self._waiting.cancel()
        return self._when_idle()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _when_idle(self) -> Deferred[None]:
        idle: Deferred[None] = Deferred(lambda _: None)
        if self._working is None and not self._queue:
            idle.callback(None)
        else:
            self._idle.append(idle)
        return idle

    def _clear(self) -> None:
        self._queue.clear()
        self._queued = 0

    def _work(self) -> None:
        if self._working is not None:
            return
        if not self._queue:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.called:
                    waiter.callback(None)
            return
        batch = []
        size = 0
        while self._queue and size < BATCH_BYTES:
            chunk = self._queue.popleft()
            batch.append(chunk)
            size += len(chunk) + CHUNK_OVERHEAD
        self._working = working = Deferred.fromCoroutine(self._carry(batch, size))
        working.addCallbacks(lambda _: None, self._failed)
        working.addCallback(self._next)

    async def _carry(self, batch: list[bytes], size: int) -> None:
        rest = await self._run(self._consume, batch)
        while rest and not self._stopped and self._ready is not None:
            self._waiting = self._ready()
            try:
                await self._waiting
            finally:
                self._waiting = None
            rest = await self._run(self._consume, rest)
        if not self._stopped:
            self._queued -= size

    def _next(self, _: None) -> None:
        self._working = None
        if self._paused and self._queued < LOW_BYTES and not self._stopped:
            self._paused = False
            self._flow.resume()
        self._work()

    def _failed(self, reason: Failure) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._clear()
        assert isinstance(reason.value, Exception)
        self.error = reason.value
        self._flow.failed(self.error)
