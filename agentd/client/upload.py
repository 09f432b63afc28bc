"""Request bodies that stream: from a source that is awaited to a transport that pushes back.

Twisted asks a body for its bytes once and expects to be fed; `Upload` feeds it from anything with an awaitable
`read`, waits while the transport is full, and keeps count and SHA-256 of what it sent. Large blocks are hashed in
the reactor's thread pool.
"""

import hashlib
from collections.abc import AsyncIterable, Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IConsumer
from twisted.internet.threads import deferToThreadPool
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer

from agentd.client.errors import AgentError
from agentd.client.flow import Outlet

HASH_ELSEWHERE_BYTES = 128 * 1024
"""From this size on, a block is hashed in a thread: a smaller one takes less time than the way there and back."""

Progress = Callable[[int], object]
"""Called with the bytes moved so far."""


class Source(Protocol):
    """Where an upload's bytes come from."""

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end."""


class BytesSource:
    """Bytes already in memory."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    async def read(self) -> bytes:
        """All of them, once."""
        data, self._rest = self._rest, b""
        return data


class IterableSource:
    """Whatever an asynchronous iterator yields."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(chunks)

    async def read(self) -> bytes:
        """The next chunk that is not empty."""
        async for chunk in self._chunks:
            if chunk:
                return chunk
        return b""


class LengthChanged(AgentError):
    """A file grew or shrank while it was being sent; nothing was stored."""


@implementer(IBodyProducer)
class Upload:
    """One request body.

    Args:
        reactor: whose thread pool hashes large blocks.
        source: its bytes.
        length: how many there will be, or None when that is not known (it is then sent chunked).
        progress: told after each block.
    """

    def __init__(
        self, reactor: Any, source: Source, length: int | None = None, progress: Progress | None = None
    ) -> None:
        self.length: Any = UNKNOWN_LENGTH if length is None else length
        self.sent = 0
        """Bytes given to the transport so far."""
        self.fault: Exception | None = None
        """What went wrong on this side, if anything did."""
        self.moved: Callable[[], object] = lambda: None
        """Called whenever bytes were taken: the request's deadline starts again."""
        self._reactor = reactor
        self._source = source
        self._progress = progress
        self._outlet = Outlet()
        self._digest = hashlib.sha256()
        self._stopped = False
        self._finished: Deferred[None] = Deferred(lambda _: self.stopProducing())

    @property
    def sha256(self) -> bytes:
        """The digest of what was sent."""
        return self._digest.digest()

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Send everything; the Deferred fires when the last byte was given to the transport."""

        def done(result: Any) -> None:
            if not self._stopped:
                self._finished.callback(None) if result is None else self._finished.errback(result)

        Deferred.fromCoroutine(self._produce(consumer)).addBoth(done)
        return self._finished

    async def _produce(self, consumer: IConsumer) -> None:
        try:
            while data := await self._source.read():
                await self._outlet.ready()
                if self.length is not UNKNOWN_LENGTH and self.sent + len(data) > self.length:
                    raise LengthChanged("the file grew while it was sent")
                if len(data) < HASH_ELSEWHERE_BYTES:
                    self._digest.update(data)
                else:
                    pool = self._reactor.getThreadPool()
                    await deferToThreadPool(self._reactor, pool, self._digest.update, data)
                    await self._outlet.ready()
                consumer.write(data)  # type: ignore[call-arg,misc]  # zope interfaces declare no self
                self.sent += len(data)
                self.moved()
                if self._progress is not None:
                    self._progress(self.sent)
            if self.length is not UNKNOWN_LENGTH and self.sent < self.length:
                raise LengthChanged("the file shrank while it was sent")
        except Exception as fault:
            if not self._stopped:
                self.fault = fault
            raise

    def pauseProducing(self) -> None:
        """The transport is full."""
        self._outlet.pauseProducing()

    def resumeProducing(self) -> None:
        """The transport has room."""
        self.moved()
        self._outlet.resumeProducing()

    def stopProducing(self) -> None:
        """The connection is gone, or the answer came early: send no more."""
        self._stopped = True
        self._outlet.stopProducing()
