"""One connection: deadlines for slow callers, and an answer to bytes that are not HTTP.

twisted.web answers unparsable bytes with a bare status line, closes without an answer when a line is too long,
and lets a caller that sends a byte now and then hold a connection for ever. Here each of these gets a complete
answer with the version header (contract a.0, i.5), and headers have a deadline of their own.

Relies on `HTTPChannel._respondToBadRequestAndDisconnect`, `_networkProducer` and `_handlingRequest` beyond the
documented interface; ``tests/http/test_canaries.py`` watches them.
"""

from typing import Any, Final

from twisted.internet.base import DelayedCall
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from agentd.http.messages import TEXT
from agentd.http.request import _VERSION_LINE

TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS ClientHello record (RFC 8446 5.1)."""


def bare_answer(status: bytes, text: bytes) -> bytes:
    """A complete answer that closes the connection, for when there is no request to answer."""
    return b"HTTP/1.1 %s\r\n%sContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        status,
        _VERSION_LINE,
        TEXT,
        len(text),
        text,
    )


class AgentChannel(HTTPChannel):
    """The server side of one connection."""

    site: Any
    transport: Any
    _networkProducer: Any
    totalHeadersSize = 32768
    maxHeaders = 100

    _deadline: DelayedCall | None = None
    _fresh = True
    _refused = False

    def connectionMade(self) -> None:
        """A caller connected; beyond the limit it is told so."""
        super().connectionMade()
        if not self.site.connection_made(self):
            self._refuse(b"503 Service Unavailable", b"too many connections")

    def dataReceived(self, data: bytes) -> None:
        """Bytes from the caller."""
        if self._refused:
            return
        if self._fresh:
            self._fresh = False
            if data[0] == TLS_HANDSHAKE:
                self._refuse(b"400 Bad Request", b"this port speaks cleartext HTTP, not TLS")
                return
        if self._deadline is None and not self._handlingRequest and not self.requests:
            self._deadline = self.site.clock.callLater(self.site.header_timeout_secs, self._late)
        super().dataReceived(data)

    def allHeadersReceived(self) -> None:
        """A request's headers are complete."""
        self._cancel_deadline()
        super().allHeadersReceived()

    def _late(self) -> None:
        self._deadline = None
        self._refuse(b"408 Request Timeout", b"the request's headers did not arrive in time")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def timeoutConnection(self) -> None:
        """Nothing came for the idle time: between requests just close, inside a body say why."""
        request = self.requests[-1] if self.requests else None
        if request is not None and not request.startedWriting and not self._refused:
            self._refuse(b"408 Request Timeout", b"the request's body did not arrive in time")
        else:
            super().timeoutConnection()

    def lineLengthExceeded(self, line: bytes) -> None:
        """A request line or header line is longer than the parser takes."""
        if self.requests and not self._handlingRequest:
            self._refuse(b"431 Request Header Fields Too Large", b"a header line is too long")
        else:
            self._refuse(b"414 URI Too Long", b"the request line is too long")

    def _respondToBadRequestAndDisconnect(self) -> None:
        if self.requests and self.requests[-1].startedWriting:
            self.loseConnection()
        elif self._receivedHeaderSize > self.totalHeadersSize or self._receivedHeaderCount > self.maxHeaders:
            self._refuse(b"431 Request Header Fields Too Large", b"the request's headers are too large")
        else:
            self._refuse(b"400 Bad Request", b"the bytes received are not an HTTP request")

    def _refuse(self, status: bytes, text: bytes) -> None:
        if self._refused:
            return
        self._refused = True
        self._cancel_deadline()
        self.persistent = False
        self.transport.write(bare_answer(status, text))
        self.setTimeout(None)
        self._abortingCall = self.callLater(self.abortTimeout, self.forceAbortClient)
        self.loseConnection()

    def hold_body(self) -> None:
        """Stop reading: the body's consumer is behind. Its silence is then our doing, so no timer runs."""
        self.setTimeout(None)
        self._networkProducer.pauseProducing()

    def release_body(self) -> None:
        """Read on."""
        if not self._handlingRequest:
            self.setTimeout(self.timeOut)
        self._networkProducer.resumeProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection ended."""
        self._cancel_deadline()
        self.site.connection_lost(self)
        super().connectionLost(reason)
