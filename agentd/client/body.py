"""The body of an answer, read by awaiting, with the sender held back while nobody reads.

A whole body ends with `ResponseDone`: a declared length was reached or the last chunk seen. Any other end is a
cut and is reported as one, so a short file or half a stream never passes for a whole one.
"""

from typing import Any

from attrs import frozen
from twisted.internet import protocol
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers

from agentd.client.errors import IdleTimeout, ProtocolFault, TransportFault
from agentd.client.flow import Inbox


class Body(protocol.Protocol):
    """The body of an answer, read in chunks; the sender is held back while nobody reads.

    Args:
        reactor: for the idle limit.
        idle: seconds to wait for the next bytes; time the reader itself takes does not count.
    """

    def __init__(self, reactor: Any, idle: float) -> None:
        self._reactor = reactor
        self._idle = idle
        self._inbox = Inbox()
        self._over = False

    def connectionMade(self) -> None:
        self._inbox.attach(self.transport)

    def dataReceived(self, data: bytes) -> None:
        self._inbox.put(data)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self._over = True
        if reason.check(ResponseDone):
            self._inbox.end()
        else:
            self._inbox.end(TransportFault("the answer was cut short"))

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end of a whole body.

        Raises:
            TransportFault: the connection was lost before the end.
            IdleTimeout: nothing came for `idle` seconds; the connection is closed.
        """
        if self._inbox.held or self._over:
            return await self._inbox.get()
        waiting = Deferred.fromCoroutine(self._inbox.get())
        waiting.addTimeout(self._idle, self._reactor)
        try:
            return await waiting
        except DeferredTimeout:
            self.close()
            raise IdleTimeout(f"nothing received for {self._idle:g} seconds") from None

    async def gather(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            ProtocolFault: it is longer than `limit`; the rest is not read.
        """
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self.read():
                size += len(data)
                if size > limit:
                    raise ProtocolFault(f"the answer is longer than {limit} bytes")
                parts.append(data)
        except BaseException:
            self.close()
            raise
        return b"".join(parts)

    def __aiter__(self) -> "Body":
        return self

    async def __anext__(self) -> bytes:
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    def close(self) -> None:
        """Stop: an unfinished body closes its connection. May be repeated.

        Not before the next turn of the reactor: the end may be in the bytes that are just being delivered, and then
        the connection is whole and can be kept.
        """
        self._inbox.discard()
        if not self._over:
            self._reactor.callLater(0, self._stop)

    def _stop(self) -> None:
        if not self._over and self.transport is not None:
            self._over = True
            self.transport.stopProducing()


@frozen
class Answer:
    """A successful answer whose body is still to be read."""

    status: int
    headers: Headers
    body: Body
    length: int | None
    """The declared length of the body in bytes, where one is declared."""

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        values = self.headers.getRawHeaders(name)
        return values[0] if values else None
