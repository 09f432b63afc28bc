"""One connection: deadlines for slow callers, and an answer to bytes that are not HTTP.

twisted.web answers unparsable bytes with a bare status line, closes without an answer when a line is too long,
and lets a caller that sends a byte now and then hold a connection for ever. Here each of these gets a complete
answer with the version header (contract a.0, i.5), and headers have a deadline of their own.

An answer of this kind ends the connection, in the way an early answer does: the write half is closed, and a bounded
amount is still read and dropped, because a reset for unread bytes could overtake the answer.

Relies on `HTTPChannel._respondToBadRequestAndDisconnect`, `_networkProducer`, `_handlingRequest`,
`_receivedHeaderSize` and `_receivedHeaderCount` beyond the documented interface; ``tests/http/test_canaries.py``
watches them.
"""

from typing import Any, Final

from twisted.internet.base import DelayedCall
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from agentd.config import LINGER_BYTES, LINGER_SECS
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

    refused = False
    """Whether an answer of our own has ended this connection, so that no other may follow."""

    _can_write_now = False
    _deadline: DelayedCall | None = None
    _fresh = True
    _held = False
    _dropped = 0

    def connectionMade(self) -> None:
        """A caller connected; beyond the limit it is told so."""
        super().connectionMade()
        self._can_write_now = hasattr(self.transport, "doWrite")
        if not self.site.connection_made(self):
            # No lingering here: a connection too many must not stay one.
            self._refuse(b"503 Service Unavailable", b"too many connections", linger=False)

    def dataReceived(self, data: bytes) -> None:
        """Bytes from the caller."""
        if self.refused:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abortConnection()
            return
        if self._fresh:
            self._fresh = False
            if data[0] == TLS_HANDSHAKE:
                self._refuse(b"400 Bad Request", b"this port speaks cleartext HTTP, not TLS")
                return
        super().dataReceived(data)
        # Looked at afterwards: the start of a request may have come behind the end of the one before.
        unfinished = self.line_mode and (self._buffer or self.requests)
        if unfinished and self._deadline is None and not self.refused:
            self._deadline = self.site.clock.callLater(self.site.header_timeout_secs, self._late)

    def allHeadersReceived(self) -> None:
        """A request's headers are complete."""
        self._cancel_deadline()
        super().allHeadersReceived()

    def headerReceived(self, line: bytes) -> bool:
        """A header line is complete."""
        try:
            accepted: bool = super().headerReceived(line)
        except ValueError:  # a length of more digits than int() takes
            self._respondToBadRequestAndDisconnect()
            return False
        return accepted

    def allContentReceived(self) -> None:
        """A request is complete; what is read from here on is the next one, or the caller's departure."""
        if self._held:
            self.release_body()
        super().allContentReceived()

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
        if request is not None and not request.startedWriting and not self.refused:
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

    def _refuse(self, status: bytes, text: bytes, linger: bool = True) -> None:
        if self.refused:
            return
        self.refused = True
        self._held = False
        self._cancel_deadline()
        self.setTimeout(None)
        self.persistent = False
        self.clearLineBuffer()
        for request in self.requests:
            request.supersede()
        self.transport.write(bare_answer(status, text))
        self._deadline = self.site.clock.callLater(LINGER_SECS, self._abort)
        if linger:
            self.transport.loseWriteConnection()
            self._networkProducer.resumeProducing()
        else:
            self.loseConnection()

    def _abort(self) -> None:
        self._deadline = None
        self.transport.abortConnection()

    def write_now(self, data: bytes) -> None:
        """Write a whole answer, with the system call in this turn rather than the next.

        Twisted waits for the socket to be writable first, which costs a turn of the reactor and two changes of the
        poll set per answer. What does not fit, and any error, is left to the reactor as usual.
        """
        transport = self.transport
        transport.write(data)
        if not transport.disconnecting and self._can_write_now:
            transport.doWrite()

    def hold_body(self) -> None:
        """Stop reading: the body's consumer is behind. Its silence is then our doing, so no timer runs."""
        self._held = True
        self.setTimeout(None)
        self._networkProducer.pauseProducing()

    def release_body(self) -> None:
        """Read on."""
        self._held = False
        self.setTimeout(self.site.timeOut)
        self._networkProducer.resumeProducing()

    def resumeProducing(self) -> None:
        """The caller has taken what was written. That does not end a hold on what it sends."""
        super().resumeProducing()
        if self._held:
            self._networkProducer.pauseProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection ended."""
        self._cancel_deadline()
        self.site.connection_lost(self)
        super().connectionLost(reason)
